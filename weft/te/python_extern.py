"""Tensors computed by a Python function, for loops whose control flow depends on data.

Numba compiles the function to LLVM IR as part of the kernel: no Python runs at inference time,
and the kernel exports ahead of time like any other.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from itertools import chain
from types import FunctionType
from typing import TypeAlias

from weft.ir.dtype import DType, handle
from weft.support.errors import LoweringError
from weft.support.function_digest import function_digest, plain_function
from weft.support.user_code import location_of
from weft.te.tensor import ExternOp, Index, Tensor, as_shape
from weft.tir import Allocate, Buffer, Call, Evaluate, PrimExpr, Stmt, StringImm, const, int_value
from weft.tir.foreign_kernel import cuda_options
from weft.tir.python_function import ArrayParam, PythonFunction, Scalar

# Dtypes of arrays in a body; the operator converts narrower types before and after it.
_DTYPES = frozenset(["bool", "float32", "float64"]
                    + [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)])
TensorType: TypeAlias = "tuple[tuple[PrimExpr, ...], DType]"


def python_extern(shapes: Sequence[Sequence[Index]], inputs: Sequence[Tensor],
                  body: Callable[..., None], dtypes: Sequence[DType | str], *,
                  scalars: Sequence[PrimExpr | float] = (),
                  scratch: Sequence[tuple[Sequence[Index], DType | str]] = (),
                  name: str | None = None) -> tuple[Tensor, ...]:
    """Tensors of ``shapes`` and ``dtypes`` that ``body(*inputs, *outputs, *scratch, *scalars)``
    writes.

    Arrays are dense row-major views: ``x.shape``, ``x[i, j]``, ``x[i]`` and slices work. Inputs
    are read-only. ``scratch`` gives shapes and dtypes of work arrays, uninitialised like the
    outputs; the body cannot allocate. Scalars that are Python numbers become constants of the
    compiled code. The body may call functions decorated with ``numba.njit``; it cannot raise. For
    GPUs it may be a ``numba.cuda.jit(device=True)`` function, which one thread runs.

    Raises ``LoweringError``, pointing at the function, for a wrong number of parameters, for
    dtypes that compiled Python does not support, and for global values that cannot be frozen.
    What numba rejects raises ``CodegenError`` at its line when the kernel is built.
    """
    function = plain_function(body)
    types = tuple((as_shape(s), DType.of(d)) for s, d in zip(shapes, dtypes, strict=True))
    spare = tuple((as_shape(s), DType.of(d)) for s, d in scratch)
    arrays = [(t.shape, t.dtype) for t in inputs]
    _check_parameters(function, len(arrays) + len(types) + len(spare) + len(scalars))
    params = tuple(_param(function, t, is_written=False) for t in arrays) + tuple(
        _param(function, t, is_written=True) for t in (*types, *spare))
    constants: tuple[Scalar, ...] = tuple(_scalar(s) for s in scalars)
    name = name or function.__name__.strip("<>")
    symbol = _symbol(name, function, params, constants, *cuda_options(body))
    record = PythonFunction(symbol, body, params, constants)
    sizes = [s for shape, _ in (*arrays, *types, *spare) for s in shape if int_value(s) is None]
    values = (*sizes, *(s for s in scalars if isinstance(s, PrimExpr)))

    def build(sources: tuple[Buffer, ...], targets: tuple[Buffer, ...]) -> Stmt:
        memory = [Buffer(f"{name}.scratch", shape, dtype) for shape, dtype in spare]
        stmt: Stmt = Evaluate(_call(record, (*sources, *targets, *memory), values))
        for buffer in memory:
            stmt = Allocate(buffer, stmt)
        return stmt

    return ExternOp(name, tuple(inputs), types, build, (record,)).outputs


def _call(
    record: PythonFunction, buffers: Sequence[Buffer], values: Sequence[PrimExpr]
) -> PrimExpr:
    """A call of ``record`` with the addresses of whole buffers."""
    addresses = (
        Call(handle, "address_of", (b.load(*(const(0) for _ in b.shape)),)) for b in buffers)
    return Call(handle, "call_extern", (StringImm(record.symbol), *addresses, *values))


def _check_parameters(function: FunctionType, expected: int) -> None:
    parameters = inspect.signature(function).parameters.values()
    kinds = {p.kind for p in parameters} - {inspect.Parameter.POSITIONAL_OR_KEYWORD,
                                            inspect.Parameter.POSITIONAL_ONLY}
    if kinds or len(parameters) != expected:
        raise LoweringError(f"{function.__name__} takes the wrong number of parameters",
                            where=location_of(function),
                            expected=f"{expected} parameters: inputs, outputs, scratch, scalars",
                            got=f"{function.__name__}{inspect.signature(function)}")


def _param(function: FunctionType, type_: TensorType, *, is_written: bool) -> ArrayParam:
    shape, dtype = type_
    if str(dtype) not in _DTYPES:
        raise LoweringError(
            f"{function.__name__}: compiled Python does not support arrays of {dtype}",
            where=location_of(function), expected=", ".join(sorted(_DTYPES)),
            help="convert with .astype in a te.compute before and after the body",
        )
    return ArrayParam(dtype, tuple(int_value(s) for s in shape), is_written)


def _scalar(value: PrimExpr | float) -> Scalar:
    if isinstance(value, PrimExpr):
        return value.dtype
    if isinstance(value, bool | int | float):
        return value
    raise LoweringError("a scalar of a Python body is a number or an expression",
                        got=f"{value!r} of type {type(value).__name__}")


def _symbol(
    name: str, function: FunctionType, params: Sequence[ArrayParam], scalars: Sequence[Scalar],
    *more: str
) -> str:
    """A symbol that differs whenever the machine code would."""
    facts = chain((f"{p.dtype}{p.shape}{p.is_written}" for p in params), map(repr, scalars), more)
    return f"{name}_{function_digest(function, *facts)[:16]}"
