"""Converter of Det by Gaussian elimination with partial pivoting."""

from __future__ import annotations

from weft import op
from weft.frontend.common import arrays
from weft.frontend.onnx.node import Node, tensor_type
from weft.frontend.onnx.registry import converts
from weft.ir.expr import Expr
from weft.op.composites.terms import Term
from weft.support.errors import UnsupportedModelError

# The elimination is unrolled: every column adds kernels.
_LARGEST = 64


@converts("Det", since=11)
def det(node: Node) -> Expr:
    """Return the product of the pivots; each row exchange flips the sign."""
    shape = node.shape()
    size = shape[-1] if shape else None
    if len(shape) < 2 or shape[-2] != size:
        raise node.fail("the matrices are not square", got=str(tensor_type(node.input(0))))
    if not isinstance(size, int) or size > _LARGEST:
        raise UnsupportedModelError("Det of large matrices", where=node.span,
                                    expected=f"at most {_LARGEST}", got=str(size))  # fmt: skip
    matrix = node.input(0)
    result: Term | None = None
    for _ in range(size):
        matrix, pivot = _eliminated(node, matrix)
        result = pivot if result is None else result * pivot
    if result is None:
        ones = node.call(op.sum, matrix, axis=(-2, -1))
        return node.call(op.add, ones, node.scalar_like(1, ones))
    return result.expr


def _eliminated(node: Node, matrix: Expr) -> tuple[Expr, Term]:
    """Eliminate the first column; return the remaining matrix and the signed pivot."""
    rank = len(tensor_type(matrix).shape)
    size = tensor_type(matrix).concrete_shape[-1]
    column = _slice(node, matrix, 0, 1, rank - 1)
    position = node.call(op.argmax, node.call(op.abs, column), axis=(rank - 2,), keepdims=True)
    rows = node.constant(arrays.arange(size).reshape(size, 1), tensor_type(position).dtype)
    chosen = node.call(op.equal, rows, position)
    kept = node.call(op.cast, chosen, dtype=tensor_type(matrix).dtype.name)
    picked = node.call(op.multiply, matrix, kept)
    pivots = node.call(op.sum, picked, axis=(rank - 2,), keepdims=True)
    first = _slice(node, matrix, 0, 1, rank - 2)
    swapped = node.call(op.where, chosen, first, matrix)  # the first row is not used again
    pivot = Term(node, _slice(node, pivots, 0, 1, rank - 1))
    moved = Term(node, position) > 0
    one = 0 * pivot + 1
    sign = moved.apply("where", -1.0, one)
    signed = Term(node, node.call(op.squeeze, (pivot * sign).expr, axis=(rank - 2, rank - 1)))
    rest = _slice(node, _slice(node, swapped, 1, size, rank - 2), 1, size, rank - 1)
    below = Term(node, _slice(node, _slice(node, swapped, 1, size, rank - 2), 0, 1, rank - 1))
    beside = Term(node, _slice(node, pivots, 1, size, rank - 1))
    # A zero column has pivot 0 and makes the determinant 0; divide by 1 to avoid NaN.
    is_zero = Term(node, node.call(op.equal, pivot.expr, node.scalar_like(0, pivot.expr)))
    divisor = is_zero.apply("where", 1.0, pivot)
    return (Term(node, rest) - below / divisor * beside).expr, signed


def _slice(node: Node, x: Expr, begin: int, end: int, axis: int) -> Expr:
    return node.call(op.strided_slice, x, begin=(begin,), end=(end,), strides=(1,), axes=(axis,))
