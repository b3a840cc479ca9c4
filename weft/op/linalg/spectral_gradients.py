"""Gradients of eigenvalues and of singular values, and of their vectors.

The formulas are those of Giles, "An extended collection of matrix derivative results" (2008), and
of Townsend, "Differentiating the singular value decomposition" (2016). Vectors of equal values are
not unique; the parts of their gradients that divide by the difference of the values are 0.
"""

from __future__ import annotations

from typing import Any

from weft import op
from weft.ir import Call, Expr, TupleGetItem
from weft.op.gradients import known_shape, scalar, typed_zeros
from weft.op.linalg.gradients import lower, product, transposed, typed


def _rows(values: Expr) -> Expr:
    return typed(op.expand_dims(values, axis=1))


def _columns(values: Expr) -> Expr:
    return typed(op.expand_dims(values, axis=2))


def _reciprocal(x: Expr) -> Expr:
    """1 / x, and 0 where x is 0."""
    nothing = typed(op.equal(x, scalar(0.0, x)))
    safe = op.where(nothing, scalar(1.0, x), x)
    return typed(op.where(nothing, scalar(0.0, x), op.divide(scalar(1.0, x), safe)))


def eigh_gradient(call: Call, y: Expr, dy: Expr) -> list[Expr]:
    """That of the lower triangle, which is the one that is read."""
    batch, size, _ = known_shape(call.args[0], call)
    if 0 in (batch, size):
        return [typed_zeros(call.args[0])]
    values, vectors = (typed(TupleGetItem(y, i)) for i in range(2))
    d_values, d_vectors = (typed(TupleGetItem(dy, i)) for i in range(2))
    gaps = _reciprocal(typed(op.subtract(_rows(values), _columns(values))))
    inner = typed(op.multiply(product(vectors, d_vectors, transpose_a=True), gaps))
    rotated = typed(op.add(product(vectors, inner), op.multiply(vectors, _rows(d_values))))
    slope = product(rotated, vectors, transpose_b=True)
    both = typed(op.add(slope, transposed(slope)))
    halved = op.multiply(typed(op.add(lower(both), lower(both, -1))), scalar(0.5, both))
    return [halved]


def svd_gradient(call: Call, y: Expr, dy: Expr) -> list[Expr]:
    """Of the reduced factors; left vectors that complete the basis are constants."""
    batch, rows, columns = known_shape(call.args[0], call)
    if 0 in (batch, rows, columns):
        return [typed_zeros(call.args[0])]
    left, values, right = (typed(TupleGetItem(y, i)) for i in range(3))
    d_left, d_values, d_right = (typed(TupleGetItem(dy, i)) for i in range(3))
    attrs: Any = call.attrs
    if attrs.full:
        left, d_left = (typed(op.slice_like(t, call.args[0])) for t in (left, d_left))
    squares = typed(op.multiply(values, values))
    gaps = _reciprocal(typed(op.subtract(_rows(squares), _columns(squares))))
    of_left = op.multiply(op.multiply(_skew(left, d_left), gaps), _rows(values))
    of_right = op.multiply(_columns(values), op.multiply(_skew(right, d_right), gaps))
    inner = typed(op.add(of_left, of_right))
    rotated = typed(op.add(product(left, inner), op.multiply(left, _rows(d_values))))
    slope = product(rotated, right, transpose_b=True)
    if rows != columns:
        outside = typed(op.subtract(d_left, product(left, product(left, d_left,
                                                                  transpose_a=True))))
        outside = typed(op.multiply(outside, _rows(_reciprocal(values))))
        slope = typed(op.add(slope, product(outside, right, transpose_b=True)))
    return [slope]


def _skew(vectors: Expr, arriving: Expr) -> Expr:
    both = product(vectors, arriving, transpose_a=True)
    return typed(op.subtract(both, transposed(both)))
