"""Compilation of lowered loop programs to kernel objects."""

from __future__ import annotations

from weft.codegen.cuda.emit.module import DeviceModule, write_device_module
from weft.codegen.cuda.nvptx import ptx_by_nvptx
from weft.runtime.devices.cuda.image import KernelObject
from weft.target import CudaTarget
from weft.tir.func import PrimFunc


def emit_llvm(func: PrimFunc, target: CudaTarget) -> str:
    """LLVM IR of a lowered function before optimisation."""
    return write_device_module(func, target).text


def emit_ptx(func: PrimFunc, target: CudaTarget) -> str:
    """PTX of a lowered function."""
    return _ptx(write_device_module(func, target), target)


def build_kernel_object(func: PrimFunc, target: CudaTarget) -> KernelObject:
    """Compile a lowered function; raises ``CodegenError`` for what the GPU cannot run."""
    module = write_device_module(func, target)
    return KernelObject(
        symbol=func.name, arch=target.arch, ptx=_ptx(module, target), launches=module.kernels,
        workspace_bytes=func.attrs.get("workspace_bytes", 0), sizes=module.sizes)


def _ptx(module: DeviceModule, target: CudaTarget) -> str:
    return ptx_by_nvptx(module.text, target)
