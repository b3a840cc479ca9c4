"""Python functions for GPUs, compiled by numba-cuda to LLVM IR in the dialect of libnvvm.

This is what ``numba.cuda.compile`` does before it calls libnvvm. That function itself loads nvrtc
to look up the architecture, and asks the driver for it when a body calls other functions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from weft.codegen.cuda.foreign_kernels import blamed_on_operator
from weft.codegen.cuda.toolkit import numba_cuda
from weft.codegen.ir_text.types import float_constant
from weft.codegen.llvm.python_bodies.numba_compile import numba_type, raising_line, refusal
from weft.ir.dtype import DType, float64
from weft.support.errors import CodegenError
from weft.support.function_digest import plain_function
from weft.support.user_code import location_of
from weft.target import CudaTarget
from weft.tir.foreign_kernel import ForeignKernel
from weft.tir.python_function import ArrayParam, PythonFunction, Scalar

_PURPOSE = "compiles Python for GPUs"
_DEFINED = re.compile(r'^(?:define [^@\n]*)?@"([^"]+)"(?: = |\()', re.MULTILINE)
_DECLARED = re.compile(r'^declare [^@\n]*@"([^"]+)"', re.MULTILINE)
# The environment of a function in the interpreter, which no code for GPUs reads, and the list that
# keeps kernels, which are visible anyway.
_UNUSED = re.compile(r'^@"(?:_ZN08NumbaEnv[^"]*|llvm\.used)" = [^\n]*\n', re.MULTILINE)
_PROVIDED = ("llvm.", "__nv_", "vprintf")


def is_device_function(function: PythonFunction) -> bool:
    """Whether the body is written for GPUs, with ``numba.cuda.jit(device=True)``."""
    return bool(getattr(function.body, "targetoptions", {}).get("device"))


def kernel_ir(kernel: ForeignKernel, target: CudaTarget) -> list[str]:
    """Modules of LLVM IR that define a Python kernel under its symbol.

    Raises ``OperatorError`` with the line that numba cannot compile, and ``MissingToolError`` if
    numba-cuda is not installed.
    """
    with blamed_on_operator():
        return _kernel_ir(kernel, target)


def _kernel_ir(kernel: ForeignKernel, target: CudaTarget) -> list[str]:
    options = getattr(kernel.source, "targetoptions", {})
    found = _lowered(kernel.source, kernel.parameters, target, "numba")
    entry = found.fndesc.llvm_func_name
    function = found.library.get_function(entry)
    numba_cuda("compiler", _PURPOSE).kernel_fixup(function, False)
    bounds = numba_cuda("cudadrv.nvvm", _PURPOSE).set_launch_bounds
    bounds(function, options.get("launch_bounds"))
    return _named(kernel.source, found.library.llvm_strs, entry, kernel.symbol)


def device_function_ir(function: PythonFunction, target: CudaTarget) -> list[str]:
    """Modules that define ``void @symbol(arrays..., run-time values...)`` over a device function.

    Raises ``CodegenError`` with the line that numba cannot compile, and for a body that raises: the
    C ABI has no exceptions.
    """
    body = plain_function(function.body)
    line = raising_line(body)
    if line is not None:
        raise CodegenError(f"{body.__name__} may raise an exception",
                           where=location_of(body, line),
                           help="report bad data by a marker in an output")
    callee = f"{function.symbol}_body"
    found = _lowered(function.body, (*function.arrays, *function.scalars), target, "c", callee)
    texts = _named(function.body, found.library.llvm_strs, callee, callee)
    texts[0] += _wrapper(function, callee)
    return texts


def _lowered(body: Any, parameters: Sequence[ArrayParam | Scalar], target: CudaTarget, abi: str,
             name: str = "") -> Any:
    """Numba's compile result, which holds LLVM IR."""
    compiler = numba_cuda("compiler", _PURPOSE)
    lock = numba_cuda("core.compiler_lock", _PURPOSE).global_compiler_lock
    function, options = plain_function(body), getattr(body, "targetoptions", {})
    arguments = tuple(map(numba_type, parameters))
    fastmath = bool(options.get("fastmath"))
    try:
        with lock, _device_of(target.capability):
            found = compiler.compile_cuda(
                function, None, arguments, fastmath=fastmath, cc=target.capability, abi=abi,
                abi_info={"abi_name": name} if name else None,
                nvvm_options={"fastmath": fastmath, "opt": 3})
    except Exception as error:  # numba raises more than its own error classes
        raise refusal(function, error) from error
    if str(found.signature.return_type) != "none":
        raise CodegenError(f"{function.__name__} returns a value", where=location_of(function),
                           got=found.signature.return_type,
                           help="write results into the output arrays")
    return found


@contextmanager
def _device_of(capability: tuple[int, int]) -> Iterator[None]:
    """Let numba compile called functions for the target, not for a device that the driver names.

    The context of this thread stands for a device of that capability meanwhile.
    """
    local = numba_cuda("cudadrv.devices", _PURPOSE)._runtime._tls  # noqa: SLF001 - no public name
    before = getattr(local, "attached_context", None)
    local.attached_context = SimpleNamespace(device=SimpleNamespace(compute_capability=capability))
    try:
        yield
    finally:
        local.attached_context = before


def _named(body: Any, texts: Sequence[str], entry: str, symbol: str) -> list[str]:
    """The modules under names without numba's counters; ``CodegenError`` for undefined ones."""
    texts = [_UNUSED.sub("", text) for text in texts]
    defined = {name: None for text in texts for name in _DEFINED.findall(text)}
    needed = {name for text in texts for name in _DECLARED.findall(text)
              if name not in defined and not name.startswith(_PROVIDED)}
    if needed:
        function = plain_function(body)
        raise CodegenError(f"{function.__name__} calls functions that no GPU code defines",
                           where=location_of(function), got=", ".join(sorted(needed)))
    names = {name: f"{symbol}_{number}" for number, name in enumerate(defined)} | {entry: symbol}
    pattern = re.compile('@"(' + "|".join(map(re.escape, names)) + ')"')
    named = [pattern.sub(lambda m: f'@"{names[m[1]]}"', text) for text in texts]
    return [re.sub(r"\A; ModuleID = [^\n]*\n", "", text) for text in named]


def _wrapper(function: PythonFunction, callee: str) -> str:
    """The definition of the symbol: it calls the body with numba's fields of each array."""
    lines: list[str] = []
    params = [f"i8* %p{i}" for i in range(len(function.arrays))]
    operands: list[str] = []

    def value(kind: str) -> str:
        params.append(f"{kind} %p{len(params)}")
        return params[-1].split()[1]

    def emit(text: str) -> str:
        lines.append(f"  %v{len(lines)} = {text}")
        return f"%v{len(lines) - 1}"

    for number, param in enumerate(function.arrays):
        sizes = [value("i64") if size is None else str(size) for size in param.shape]
        stride, strides = str(param.dtype.itemsize), list[str]()
        for size in reversed(sizes):
            strides.insert(0, stride)
            stride = emit(f"mul i64 {stride}, {size}")
        count = emit(f"udiv i64 {stride}, {param.dtype.itemsize}")
        element = _element(param.dtype)
        data = emit(f"bitcast i8* %p{number} to {element}*")
        operands += ["i8* null", "i8* null", f"i64 {count}", f"i64 {param.dtype.itemsize}",
                     f"{element}* {data}", *(f"i64 {n}" for n in (*sizes, *strides))]
    for scalar in function.scalars:
        if isinstance(scalar, DType):
            operands.append(f"{_element(scalar)} {value(_element(scalar))}")
        elif isinstance(scalar, float):
            operands.append(f"double {float_constant(scalar, float64)}")
        else:
            operands.append(f"{'i8' if isinstance(scalar, bool) else 'i64'} {int(scalar)}")
    call = f'  call i8* @"{callee}"({", ".join(operands)})'
    return "\n".join(["", f"define void @{function.symbol}({', '.join(params)}) {{", *lines, call,
                      "  ret void", "}", ""])


def _element(dtype: DType) -> str:
    """The type in memory; numba's booleans are bytes."""
    if dtype.is_float:
        return {16: "half", 32: "float", 64: "double"}[8 * dtype.itemsize]
    return f"i{8 * dtype.itemsize}"
