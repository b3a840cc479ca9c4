"""Compilation of Python bodies by numba, up to LLVM IR in numba's calling convention.

numba takes a third of a second to import, so it is imported when the first body is compiled.
"""

from __future__ import annotations

import dis
import re
from types import FunctionType
from typing import Any

from weft.ir.dtype import DType
from weft.support.dataclass import dataclass
from weft.support.errors import CodegenError, MissingToolError
from weft.support.function_digest import plain_function
from weft.support.user_code import location_of
from weft.target import CpuTarget
from weft.tir.python_function import ArrayParam, PythonFunction, Scalar


@dataclass(frozen=True, slots=True)
class NumbaCode:
    """LLVM IR, and the name of the compiled body in it. The body returns a status code."""

    text: str
    entry: str


def compile_body(function: PythonFunction, target: CpuTarget) -> NumbaCode:
    """Compile for the CPU of ``target``; for a generic one if it is not the host's architecture.

    Raises ``CodegenError`` with the line that numba cannot compile, and ``MissingToolError`` if it
    is not installed.
    """
    body = plain_function(function.body)
    try:
        from numba.core import compiler, types
        from numba.core.compiler_lock import global_compiler_lock
        from numba.core.registry import cpu_target
    except ImportError as error:
        raise MissingToolError(f"numba, which compiles {body.__name__}, cannot be imported",
                               got=error, where=location_of(body),
                               help="pip install numba") from None
    native: Any = cpu_target
    arguments = tuple(map(numba_type, (*function.arrays, *function.scalars)))
    flags: Any = compiler.Flags()
    flags.no_compile = True
    flags.no_cpython_wrapper = True
    flags.no_cfunc_wrapper = True
    flags.nrt = True  # views need reference counting, although these own no memory
    flags.error_model = "numpy"  # division by zero as in NumPy, no exception
    is_native = target.arch == CpuTarget.host().arch
    try:
        # numba's compiler is not thread-safe.
        with global_compiler_lock:
            context = native.target_context.with_aot_codegen(
                function.symbol, cpu_name=target.cpu if is_native else "")
            result = compiler.compile_extra(
                native.typing_context, context, body, arguments, None, flags, {})
            result.library.finalize()
            text = result.library.get_llvm_str()
    except Exception as error:  # numba raises more than its own error classes
        raise refusal(body, error) from error
    if result.signature.return_type is not types.none:
        raise CodegenError(f"{body.__name__} returns a value", where=location_of(body),
                           got=result.signature.return_type,
                           help="write results into the output arrays")
    return NumbaCode(text, result.fndesc.llvm_func_name)


def raising_line(body: FunctionType) -> int | None:
    """The first line with a ``raise`` or an ``assert``."""
    for instruction in dis.get_instructions(body):
        if instruction.opname == "RAISE_VARARGS" and instruction.positions is not None:
            return instruction.positions.lineno
    return None


def numba_type(param: ArrayParam | Scalar) -> Any:
    """The type of a parameter: an array, a run-time value, or a constant."""
    from numba import from_dtype, types

    if isinstance(param, ArrayParam):
        return types.Array(from_dtype(param.dtype.numpy), len(param.shape), "C",
                           readonly=not param.is_written)
    if isinstance(param, DType):
        return from_dtype(param.numpy)
    if isinstance(param, bool):
        return types.boolean
    return types.int64 if isinstance(param, int) else types.float64


def refusal(body: FunctionType, error: Exception) -> CodegenError:
    """Numba's error with the line of the user's file, without its list of candidate signatures."""
    text = str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(("Failed in", "- Resolution failure"))]
    end = next((i for i, line in enumerate(lines)
                if line.startswith(("There ", "During:", "File ", "raised from"))), len(lines))
    help_ = None
    if "Cannot modify readonly array" in text:
        help_ = "inputs cannot be written; copy what changes into an output or into scratch"
    elif "Untyped global name" in text:
        help_ = "decorate functions that the body calls with numba.njit"
    return CodegenError(f"numba cannot compile {body.__name__}",
                        where=location_of(body, _line_of(body, error, text)),
                        got=" ".join(lines[:end]) or type(error).__name__, help=help_)


def _line_of(body: FunctionType, error: Exception, text: str) -> int | None:
    file = body.__code__.co_filename
    location = getattr(error, "loc", None)
    if location is not None and location.filename == file:
        return location.line
    found = re.search(rf"{re.escape(file)} \((\d+)\)", text)
    return int(found[1]) if found else None
