"""Gradients of factorizations, triangular systems and the matrix exponential.

The formulas for Cholesky are those of Murray, "Differentiation of the Cholesky decomposition"
(2016); those for LU follow de Hoog, Anderssen and Lukas (2011), with the rectangular parts as
triangular systems of their own; that of the exponential is the block matrix of Najfeld and Havel
(1995).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import op
from weft.ir import Call, Constant, Expr, Tuple, TupleGetItem, const, infer_expr
from weft.op.gradients import (
    fixed_sizes,
    known_shape,
    scalar,
    tensor_type,
    typed_zeros,
)


def typed(x: Expr) -> Expr:
    """``x`` with its type."""
    return infer_expr(x, trust=True)


def product(a: Expr, b: Expr, *, transpose_a: bool = False, transpose_b: bool = False) -> Expr:
    """The product of two batches of matrices, typed."""
    return typed(op.nn.batch_matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b))


def transposed(x: Expr) -> Expr:
    """A batch of matrices, transposed."""
    return typed(op.transpose(x, axes=(0, 2, 1)))


def lower(x: Expr, diagonal: int = 0) -> Expr:
    """The elements on and below a diagonal, zeros elsewhere."""
    return typed(op.trilu(x, const(diagonal, "int64"), upper=False))


def upper(x: Expr, diagonal: int = 0) -> Expr:
    """The elements on and above a diagonal, zeros elsewhere."""
    return typed(op.trilu(x, const(diagonal, "int64"), upper=True))


def solve(a: Expr, b: Expr, *, lower: bool, unit: bool = False) -> Expr:
    """``x`` with ``a x = b``."""
    return typed(op.linalg.triangular_solve(a, b, lower=lower, unit=unit))


def solve_right(b: Expr, a: Expr, *, lower: bool, unit: bool = False) -> Expr:
    """``x`` with ``x a = b``."""
    found = solve(transposed(a), transposed(b), lower=not lower, unit=unit)
    return transposed(found)


def triangular_solve_gradient(call: Call, y: Expr, dy: Expr) -> list[Expr]:
    """The transposed system for ``dy``; its outer product with the solution for the matrix."""
    a, _ = call.args
    attrs: Any = call.attrs
    db = solve(transposed(a), dy, lower=not attrs.lower, unit=attrs.unit)
    outer = typed(op.negative(product(db, y, transpose_b=True)))
    step = 1 if attrs.unit else 0
    return [lower(outer, -step) if attrs.lower else upper(outer, step), db]


def cholesky_gradient(_call: Call, y: Expr, dy: Expr) -> list[Expr]:
    """That of the lower triangle, which is the one that is read."""
    root = typed(TupleGetItem(y, 0))
    arriving = lower(typed(TupleGetItem(dy, 0)))
    inner = _halved_diagonal(lower(product(root, arriving, transpose_a=True)))
    left = solve(transposed(root), inner, lower=False)
    slope = solve_right(left, root, lower=True)
    both = typed(op.add(slope, transposed(slope)))
    return [_halved_diagonal(lower(both))]


def _halved_diagonal(x: Expr) -> Expr:
    half = scalar(0.5, x)
    return typed(op.multiply(op.add(x, lower(x, -1)), half) if tensor_type(x).shape[1] != 0 else x)


def lu_gradient(call: Call, y: Expr, dy: Expr) -> list[Expr]:
    """Leading square part as for square matrices; the rows below and columns beside it solve
    triangular systems, through which they also act on the square part.
    """
    batch, *shape = known_shape(call.args[0], call)
    rows, columns = fixed_sizes(shape, call)
    size = min(rows, columns)
    if 0 in (rows, columns, batch):
        return [typed_zeros(call.args[0])]
    factors, arriving = (typed(TupleGetItem(t, 0)) for t in (y, dy))
    square, d_square = (_corner(t, size) for t in (factors, arriving))
    d_lower, d_upper = lower(d_square, -1), upper(d_square)
    beside = below = None
    if columns != size:
        right = cut(factors, 2, size, columns)
        d_right = cut(arriving, 2, size, columns)
        beside = solve(transposed(square), d_right, lower=False, unit=True)
        d_lower = typed(op.subtract(d_lower, lower(product(beside, right, transpose_b=True), -1)))
    if rows != size:
        under = cut(factors, 1, size, rows)
        d_under = cut(arriving, 1, size, rows)
        below = solve_right(d_under, transposed(square), lower=True)
        d_upper = typed(op.subtract(d_upper, upper(product(under, below, transpose_a=True))))
    whole = _square_lu_gradient(square, d_lower, d_upper)
    if beside is not None:
        whole = typed(op.concatenate(Tuple((whole, beside)), axis=2))
    if below is not None:
        whole = typed(op.concatenate(Tuple((whole, below)), axis=1))
    back = op.expand_dims(op.argsort(TupleGetItem(y, 2), axis=1, dtype="int64"), axis=2)
    return [op.gather(whole, op.broadcast_to(back, shape=(batch, rows, columns)), axis=1)]


def _square_lu_gradient(factors: Expr, d_lower: Expr, d_upper: Expr) -> Expr:
    """Of packed square factors, before the rows are exchanged."""
    unit, rest = _unit_lower(factors), upper(factors)
    inner = typed(op.add(lower(product(unit, d_lower, transpose_a=True), -1),
                         upper(product(d_upper, rest, transpose_b=True))))
    left = solve(transposed(factors), inner, lower=False, unit=True)
    return solve_right(left, transposed(rest), lower=True)


def _unit_lower(factors: Expr) -> Expr:
    type_ = tensor_type(factors)
    (size,) = fixed_sizes(type_.shape[1:2], factors)
    return typed(op.add(lower(factors, -1), Constant(np.eye(size, dtype=type_.dtype.numpy))))


def _corner(x: Expr, size: int) -> Expr:
    return cut(cut(x, 1, 0, size), 2, 0, size)


def matrix_exp_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    """The upper right block of exp([[A', dy], [0, A']])."""
    batch, size, _ = known_shape(call.args[0], call)
    if 0 in (batch, size):
        return [typed_zeros(call.args[0])]
    matrix = transposed(call.args[0])
    top = op.concatenate(Tuple((matrix, dy)), axis=2)
    bottom = op.concatenate(Tuple((typed_zeros(call.args[0]), matrix)), axis=2)
    whole = op.linalg.matrix_exp(op.concatenate(Tuple((top, bottom)), axis=1))
    return [op.strided_slice(whole, begin=(0, size), end=(size, 2 * size), axes=(1, 2))]


def expand_reflect(call: Call) -> Expr | None:
    """One rank-1 update per reflector, of a fixed number; the last reflector acts first."""
    packed, scales, c = call.args
    attrs: Any = call.attrs
    count, rows = tensor_type(scales).shape[1], tensor_type(packed).shape[1]
    if not isinstance(count, int) or not isinstance(rows, int):
        return None
    order = range(count) if attrs.transpose else reversed(range(count))
    for k in order:
        c = _reflected(_reflector(packed, k, rows), _column(scales, k), c)
    return c


def expand_qr(call: Call) -> Expr | None:
    """LAPACK's unblocked algorithm, of a fixed number of steps."""
    shape = tensor_type(call.args[0]).shape
    if not all(isinstance(d, int) for d in shape[1:]) or 0 in shape[1:]:
        return None
    rows, columns = fixed_sizes(shape[1:], call)
    x, count = call.args[0], min(rows, columns)
    scales: list[Expr] = []
    for k in range(count):
        scale, vector = _householder(cut(x, 2, k, k + 1), k, rows)
        scales.append(scale)
        if k + 1 < rows:
            done, rest = cut(x, 2, 0, k), cut(x, 2, k, columns)
            moved = _reflected(vector, scale, rest)
            first = op.add(_masked(cut(moved, 2, 0, 1), k + 1, rows, below=False),
                           _masked(vector, k + 1, rows, below=True))
            parts = (done, typed(first), cut(moved, 2, 1, columns - k))
            kept = tuple(p for p in parts if tensor_type(p).shape[2] != 0)
            x = typed(op.concatenate(Tuple(kept), axis=2))
    joined = op.concatenate(Tuple(tuple(op.squeeze(s, axis=(2,)) for s in scales)), axis=1)
    return Tuple((x, joined))


def _householder(column: Expr, k: int, rows: int) -> tuple[Expr, Expr]:
    """The scale (batch, 1, 1) and vector (batch, rows, 1) that clear a column below row ``k``."""
    head = cut(column, 1, k, k + 1)
    if k + 1 == rows:
        return typed(op.zeros_like(head)), column
    tail = _masked(column, k + 1, rows, below=True)
    squares = op.sum(op.multiply(tail, tail), axis=(1,), keepdims=True)
    one, zero = scalar(1.0, head), scalar(0.0, head)
    is_clear = typed(op.equal(squares, zero))  # LAPACK's H = I
    norm = op.sqrt(op.add(op.multiply(head, head), op.where(is_clear, one, squares)))
    sign = op.where(op.less(head, zero), scalar(-1.0, head), one)
    beta = typed(op.negative(op.multiply(sign, norm)))
    scale = op.where(is_clear, zero, op.divide(op.subtract(beta, head), beta))
    unit = Constant((np.arange(rows) == k).astype(tensor_type(head).dtype.numpy).reshape(-1, 1))
    return typed(scale), typed(op.add(op.divide(tail, op.subtract(head, beta)), unit))


def _reflector(packed: Expr, k: int, rows: int) -> Expr:
    """The vector (batch, rows, 1): zeros, a one in row ``k``, and what is packed below."""
    column = cut(packed, 2, k, k + 1)
    unit = Constant((np.arange(rows) == k).astype(tensor_type(packed).dtype.numpy).reshape(-1, 1))
    return typed(op.add(_masked(column, k + 1, rows, below=True), unit))


def _reflected(vector: Expr, scale: Expr, c: Expr) -> Expr:
    """``c - scale v (v' c)``."""
    along = product(vector, c, transpose_a=True)
    return typed(op.subtract(c, op.multiply(op.multiply(scale, vector), along)))


def _column(scales: Expr, k: int) -> Expr:
    return typed(op.expand_dims(cut(scales, 1, k, k + 1), axis=2))


def _masked(x: Expr, first: int, rows: int, *, below: bool) -> Expr:
    """The rows from ``first`` on, or those before; zeros in the others."""
    chosen = (np.arange(rows) >= first) == below
    return typed(op.where(Constant(chosen.reshape(-1, 1)), x, scalar(0.0, x)))


def cut(x: Expr, axis: int, first: int, stop: int) -> Expr:
    """The elements from ``first`` to ``stop`` (exclusive) along ``axis``, typed."""
    return typed(op.strided_slice(x, begin=(first,), end=(stop,), axes=(axis,)))
