"""Compilation of lowered loop programs to kernel objects."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from weft.codegen.cuda.emit.module import DATA_LAYOUT, write_device_module
from weft.codegen.cuda.foreign_kernels import with_ptx
from weft.codegen.cuda.numba_functions import (
    device_function_ir,
    is_device_function,
    kernel_ir,
)
from weft.codegen.cuda.nvptx import ptx_by_nvptx
from weft.codegen.cuda.nvvm import ptx_by_nvvm
from weft.codegen.cuda.ptxas import assemble
from weft.codegen.cuda.ptxas_defects import without_fused_borrow
from weft.codegen.cuda.python_bodies import link_device_bodies, link_numba_modules
from weft.codegen.cuda.toolkit import find_program
from weft.runtime.devices.cpu.host import usable_cpus
from weft.runtime.devices.cuda.image import KernelObject
from weft.support.config import config
from weft.support.errors import CodegenError
from weft.support.fallback import Fallback, report
from weft.support.stage_times import stage
from weft.target import CudaTarget
from weft.tir import PrimFunc
from weft.tir.foreign_kernel import foreign_kernels_of
from weft.tir.python_function import PythonFunction, functions_of


def emit_llvm(func: PrimFunc, target: CudaTarget) -> str:
    """LLVM IR of a lowered function before optimisation, with its Python bodies linked in."""
    return _with_bodies(write_device_module(func, target).text, func,
                        _numba_modules(func, target))


def emit_own_llvm(func: PrimFunc, target: CudaTarget) -> str:
    """As ``emit_llvm``, but Python bodies are only declared, so numba is not needed.

    A comment has the launches of kernels of other compilers.
    """
    module = write_device_module(func, target)
    return f"{module.text}; {module.kernels}\n" if foreign_kernels_of(func) else module.text


def emit_ptx(func: PrimFunc, target: CudaTarget) -> str:
    """PTX of a lowered function."""
    return _ptx(write_device_module(func, target).text, func, target)


def build_kernel_object(func: PrimFunc, target: CudaTarget) -> KernelObject:
    """Compile a lowered function; raises ``CodegenError`` for what the GPU cannot run."""
    module = write_device_module(func, target)
    return KernelObject(
        symbol=func.name, arch=target.arch, launches=module.kernels,
        ptx=_ptx(module.text, func, target),
        workspace_bytes=func.attrs.get("workspace_bytes", 0), sizes=module.sizes,
        tensor_maps=module.tensor_maps)


@stage("LLVM")
def _ptx(text: str, func: PrimFunc, target: CudaTarget) -> str:
    # numba's LLVM IR for CPUs is too new for libnvvm: kernels with such bodies go through LLVM.
    kernels, modules = foreign_kernels_of(func), _numba_modules(func, target)
    if kernels and not modules and "\ndefine " not in text:
        own = ""  # PTX of users alone
    elif target.codegen == "nvvm" and not _plain_bodies(func):
        own = ptx_by_nvvm(text, target, modules)
    else:
        own = ptx_by_nvptx(_with_bodies(text, func, modules), target)
        if modules and "llvm.nvvm." in own:
            # A call: numba-cuda writes intrinsics (shuffles, votes) that libnvvm alone still has.
            own = ptx_by_nvvm(text, target, modules)
    return with_ptx(without_fused_borrow(own), kernels.values(), target)


def _numba_modules(func: PrimFunc, target: CudaTarget) -> list[str]:
    """The LLVM IR of the kernels and bodies that numba-cuda compiles."""
    kernels = [k for k in foreign_kernels_of(func).values() if not isinstance(k.source, str)]
    bodies = [f for f in functions_of(func).values() if is_device_function(f)]
    return [*(text for kernel in kernels for text in kernel_ir(kernel, target)),
            *(text for body in bodies for text in device_function_ir(body, target))]


def _plain_bodies(func: PrimFunc) -> dict[str, PythonFunction]:
    return {s: f for s, f in functions_of(func).items() if not is_device_function(f)}


def _with_bodies(text: str, func: PrimFunc, modules: Sequence[str]) -> str:
    bodies = _plain_bodies(func)
    if bodies:
        text = link_device_bodies(text, bodies, DATA_LAYOUT)
    return link_numba_modules(text, modules, foreign_kernels_of(func), DATA_LAYOUT) \
        if modules else text


_PTX_ALONE = Fallback(
    "the kernels of the artifact are PTX alone, without machine code",
    "ptxas of the CUDA toolkit was not found",
    "the driver compiles each kernel when the artifact is first used: up to seconds per kernel",
    "pip install weft[cuda], and export again")


def with_cubins(kernels: Sequence[KernelObject], arch: str) -> list[KernelObject]:
    """The kernels with code for ``WEFT_CUDA_ARCHS``, or else for ``arch``.

    Without ``ptxas`` they have PTX alone, which is reported as a fallback, unless the setting asks
    for code: ``MissingToolError``.
    """
    archs = config.cuda_archs or (arch,)
    if find_program("ptxas") is None and not config.cuda_archs:
        report(_PTX_ALONE)
        return list(kernels)

    def assembled(kernel: KernelObject) -> KernelObject:
        try:
            made = {one: assemble(kernel.ptx, one).cubin for one in archs}
        except CodegenError as error:
            raise error.at(kernel.symbol) from None
        return replace(kernel, cubins={**kernel.cubins, **made})

    with ThreadPoolExecutor(usable_cpus()) as pool:
        return list(pool.map(assembled, kernels))
