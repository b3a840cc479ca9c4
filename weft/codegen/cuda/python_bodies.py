"""Python bodies of operators as device code, which one thread runs.

numba compiles a plain function to LLVM IR for a CPU without vector instructions of its own; the IR
is then compiled for the GPU in the kernel's module. numba-cuda would refuse many of them: it has
neither NumPy's functions of scalars nor assignments to slices, and drops ``raise`` silently. It
compiles functions that are written for GPUs (``weft.codegen.cuda.numba_functions``). Mathematical
functions are those of libdevice, NVIDIA's library of bitcode in the package ``nvidia-nvvm``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from llvmlite import binding as llvm

from weft.codegen.cuda.nvptx import nvptx_machine
from weft.codegen.cuda.toolkit import libdevice
from weft.codegen.llvm.python_bodies.link import (
    MATH_SYMBOLS,
    assembled,
    check_closed,
    rename_symbols,
)
from weft.codegen.llvm.python_bodies.numba_compile import compile_body
from weft.support.errors import MissingToolError
from weft.support.function_digest import plain_function
from weft.support.user_code import location_of
from weft.target import CpuTarget, CudaTarget
from weft.target.cpu_target import default_triple
from weft.target.cuda_target import TRIPLE
from weft.tir.python_function import PythonFunction

# Intrinsics that NVPTX has no instructions for: its code generator ends the process.
_INTRINSICS = re.compile(
    r"@llvm\.(exp|exp2|exp10|log|log2|log10|sin|cos|tan|pow|powi)\.(f32|f64)(\.i32)?\b")
_TARGET_LINES = re.compile(r"^target (?:datalayout|triple) = .*\n", re.MULTILINE)


def link_device_bodies(text: str, functions: Mapping[str, PythonFunction], layout: str) -> str:
    """The module ``text`` with definitions of the Python functions that it declares.

    Raises ``CodegenError`` for a body that numba refuses, that allocates, raises or needs the
    interpreter, and for mathematical functions without libdevice.
    """
    module = llvm.parse_assembly(text)
    for symbol, function in functions.items():
        module.link_in(llvm.parse_assembly(device_body_ir(function, layout)))
        module.get_function(symbol).linkage = "internal"
    return str(module)


def link_numba_modules(text: str, modules: Sequence[str], kernels: Iterable[str], layout: str
                       ) -> str:
    """The module ``text`` with modules of numba-cuda linked in; ``kernels`` stay visible."""
    module = llvm.parse_assembly(text)
    visible = {f.name for f in module.functions if not f.is_declaration} | {*kernels}
    for one in modules:
        plain = _TARGET_LINES.sub("", one)
        module.link_in(llvm.parse_assembly(
            f'target datalayout = "{layout}"\ntarget triple = "{TRIPLE}"\n{plain}'))
    for value in (*module.functions, *module.global_variables):
        if not value.is_declaration and value.name not in visible and value.linkage.name not in (
                "private", "internal"):
            value.linkage = "internal"
    _link_libdevice(module, "a kernel")
    return str(module)


def device_body_ir(function: PythonFunction, layout: str) -> str:
    """LLVM IR that defines ``void @symbol(arrays..., run-time values...)`` for a GPU."""
    plain = CpuTarget(default_triple(), "x86-64" if "x86_64" in default_triple() else "generic")
    code = compile_body(function, plain)
    text = assembled(function, code, layout, TRIPLE)
    text = _INTRINSICS.sub(lambda m: f"@__nv_{m[1]}{'f' if m[2] == 'f32' else ''}", text)
    text = _without_cpu_attributes(text)
    module = llvm.parse_assembly(text)
    for value in (*module.functions, *module.global_variables):
        if not value.is_declaration and value.name != function.symbol:
            value.linkage = "internal"
    rename_symbols(module, function.symbol)
    _link_libdevice(module, location_of(plain_function(function.body)))
    _optimize(module)
    check_closed(function, module)
    return str(module)


def _without_cpu_attributes(text: str) -> str:
    """Functions of the GPU are not compiled for the CPU that numba knows."""
    return re.sub(r'"(target-cpu|target-features|tune-cpu)"="[^"]*"', "", text)


def _link_libdevice(module: llvm.ModuleRef, where: str) -> None:
    needed = []
    for value in module.functions:
        if value.is_declaration and value.name in MATH_SYMBOLS:
            value.name = f"__nv_{value.name}"
        if value.is_declaration and value.name.startswith("__nv_"):
            needed.append(value.name)
    if not needed:
        return
    bitcode = libdevice()
    if bitcode is None:
        raise MissingToolError("a Python function needs libdevice, which was not found",
                               where=where, got=", ".join(needed),
                               help="pip install weft[cuda]")
    library = llvm.parse_bitcode(bitcode)
    library.triple, library.data_layout = module.triple, module.data_layout
    module.link_in(library)
    for value in module.functions:
        if not value.is_declaration and value.name.startswith("__nv_"):
            value.linkage = "internal"


def _optimize(module: llvm.ModuleRef) -> None:
    """Inline the body into its wrapper, whose constants fold sizes and remove exceptions."""
    machine = nvptx_machine(CudaTarget().arch, CudaTarget().ptx_version)
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = False
    options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
