"""What the functions of linear algebra share: checks, and batches of matrices in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.eager.cell import node_of
from weft.eager.checks import Check, ValueCheckError
from weft.eager.emitter import call
from weft.eager.functions.elementwise import operands
from weft.eager.record import as_node, wrap
from weft.support.errors import InvalidInputError


class LinAlgError(ValueCheckError, ArithmeticError):
    """A matrix is singular or not positive definite, or an iteration does not converge."""


def matrices(x: Any, what: str, *, complex_too: bool = False) -> Any:
    """A tensor of floating-point matrices in its last two axes."""
    found = floats(x, what, complex_too=complex_too)
    if found.ndim < 2:
        raise InvalidInputError(f"{what}: expected matrices", got=f"shape {tuple(found.shape)}",
                                expected="at least 2 axes")
    return found


def floats(x: Any, what: str, *, complex_too: bool = False) -> Any:
    """A floating-point tensor."""
    found = wrap(as_node(x))
    if found.dtype.is_complex and not complex_too:
        raise InvalidInputError(f"{what} of complex numbers is not there", got=repr(found.dtype),
                                expected="a real tensor")
    if found.dtype.rank < 2:
        raise InvalidInputError(f"{what} of a tensor that is not floating point",
                                got=repr(found.dtype), help="convert it with .float()")
    return found


def squares(x: Any, what: str, *, complex_too: bool = False) -> Any:
    """A tensor of square matrices."""
    found = matrices(x, what, complex_too=complex_too)
    if found.shape[-1] != found.shape[-2]:
        raise InvalidInputError(f"{what}: expected square matrices",
                                got=f"shape {tuple(found.shape)}")
    return found


def same_dtype(*tensors: Any) -> tuple[Any, ...]:
    """Tensors in their common floating-point dtype."""
    return tuple([wrap(node) for node in operands(*tensors, to_float=True)])


def wide(x: Any) -> Any:
    """Matrices as a batch (count, rows, columns) in float64, in which factors are computed."""
    *batch, rows, columns = x.shape
    return in_dtype(x, "float64").reshape((math.prod(batch), rows, columns))


def narrow(x: Any, like: Any, *shape: int) -> Any:
    """A result for a batch of ``like``, in its dtype: ``shape`` are the last axes."""
    return in_dtype(x, like.dtype.name).reshape((*like.shape[:-2], *shape))


def in_dtype(x: Any, name: str) -> Any:
    """``x`` converted, if it has another dtype."""
    return x if x.dtype.name == name else call("cast", x, dtype=name)


def transposed(x: Any) -> Any:
    """The last two axes exchanged."""
    rank = x.ndim
    return call("transpose", x, axes=(*range(rank - 2), rank - 1, rank - 2))


def identity(rows: int, columns: int, name: str = "float64") -> Any:
    """Ones on the diagonal of a matrix."""
    return wrap(as_node(np.eye(rows, columns).astype(name if name != "bfloat16" else "float32")))


def batch_of(x: Any, batch: tuple[int, ...]) -> Any:
    """Matrices broadcast to a batch."""
    shape = (*batch, *x.shape[-2:])
    return x if tuple(x.shape) == shape else call("broadcast_to", x, shape=shape)


def common_batch(a: Any, b: Any, what: str) -> tuple[int, ...]:
    """The batch that two batches of matrices broadcast to."""
    try:
        return np.broadcast_shapes(tuple(a.shape[:-2]), tuple(b.shape[:-2]))
    except ValueError:
        raise InvalidInputError(f"{what}: the batches do not broadcast",
                                got=f"{tuple(a.shape)} and {tuple(b.shape)}") from None


def triangle(x: Any, *, lower: bool, offset: int = 0) -> Any:
    """A triangle of matrices, zeros elsewhere."""
    return call("trilu", x, np.int64(offset), upper=not lower)


def symmetric(x: Any, *, lower: bool) -> Any:
    """The symmetric matrices that one triangle holds; both triangles share the gradient."""
    fixed = x.detach()
    part = triangle(fixed, lower=lower)
    whole = part + transposed(triangle(fixed, lower=lower, offset=-1 if lower else 1))
    return with_slope_of(whole, (x + transposed(x)) * 0.5)


def with_slope_of(value: Any, slope: Any) -> Any:
    """``value`` with the gradient of ``slope``, which equals it in exact arithmetic."""
    return value.detach() + (slope - slope.detach())


def diagonal_of(x: Any) -> Any:
    """The main diagonals (count, n) of a batch (count, rows, columns)."""
    count = min(x.shape[1:])
    flat = x.reshape((x.shape[0], x.shape[1] * x.shape[2]))
    return call("take", flat, np.arange(count) * (x.shape[2] + 1), axis=1)


def require_zero(holder: Any, info: Any, message: str) -> None:
    """Raise ``LinAlgError`` for ``holder`` when it runs and an element of ``info`` is not 0."""
    if not info.numel():
        return
    node = node_of(holder)
    while node.sig.kind != "call" and node.args:
        node = node.args[0]
    holds = call("all", call("equal", info.detach(), 0))
    node.check = Check(node_of(holds), message, kind=LinAlgError)
