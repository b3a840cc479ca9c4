"""Converters of triangular solves, Cholesky and QR factorizations, and the matrix exponential."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft import op
from weft.frontend.torch.matrices import (
    broadcast_batch,
    flattened,
    identity,
    transposed,
    triangle,
)
from weft.frontend.torch.node import Node, broadcast_shape, dtype_in, shape_in
from weft.frontend.torch.registry import converts
from weft.ir.expr import Expr


@converts("linalg_solve_triangular")
def solve_triangular(node: Node, a: Expr, b: Expr, upper: bool, left: bool, unit: bool) -> Expr:
    """Solve ``a x = b``, or ``x a = b`` as the transposed system."""
    if not left:
        return transposed(node, _solved(node, transposed(node, a), transposed(node, b),
                                        lower=upper, unit=unit))
    return _solved(node, a, b, lower=not upper, unit=unit)


@converts("triangular_solve")
def triangular_solve(node: Node, b: Expr, a: Expr, upper: bool, transpose: bool, unit: bool
                     ) -> tuple[Expr, Expr]:
    """The solution, and a copy of the matrix."""
    matrix = transposed(node, a) if transpose else a
    common = broadcast_shape(shape_in(a)[:-2], shape_in(b)[:-2])
    return (_solved(node, matrix, b, lower=upper == transpose, unit=unit),
            broadcast_batch(node, a, common))


def _solved(node: Node, a: Expr, b: Expr, *, lower: bool, unit: bool) -> Expr:
    common = broadcast_shape(shape_in(a)[:-2], shape_in(b)[:-2])
    a, b = broadcast_batch(node, a, common), broadcast_batch(node, b, common)
    made = node.call(op.linalg.triangular_solve, flattened(node, a), flattened(node, b),
                     lower=lower, unit=unit)
    return node.reshape(made, shape_in(b))


@converts("linalg_cholesky_ex")
def cholesky_ex(node: Node, x: Expr, upper: bool, *_check: bool) -> tuple[Expr, Expr]:
    made = node.call(op.linalg.cholesky, flattened(node, transposed(node, x) if upper else x))
    lower, info = node.field(made, 0), node.field(made, 1)
    factor = transposed(node, lower) if upper else lower
    return node.reshape(factor, shape_in(x)), node.reshape(info, shape_in(x)[:-2])


@converts("cholesky_solve")
def cholesky_solve(node: Node, b: Expr, factor: Expr, upper: bool) -> Expr:
    common = broadcast_shape(shape_in(factor)[:-2], shape_in(b)[:-2])
    b, factor = broadcast_batch(node, b, common), broadcast_batch(node, factor, common)
    right = node.cast(flattened(node, b), "float64")
    made = _with_cholesky(node, flattened(node, factor), right, upper)
    return node.reshape(node.cast(made, dtype_in(b)), shape_in(b))


@converts("cholesky_inverse")
def cholesky_inverse(node: Node, factor: Expr, upper: bool) -> Expr:
    flat = flattened(node, factor)
    made = _with_cholesky(node, flat, identity(node, flat, shape_in(factor)[-1]), upper)
    return node.reshape(node.cast(made, dtype_in(factor)), shape_in(factor))


def _with_cholesky(node: Node, factor: Expr, b: Expr, upper: bool) -> Expr:
    """Solve ``L L' x = b``."""
    factor = node.cast(factor, "float64")
    lower = transposed(node, factor) if upper else factor
    y = node.call(op.linalg.triangular_solve, lower, b, lower=True)
    return node.call(op.linalg.triangular_solve, transposed(node, lower), y, lower=False)


def _factored(node: Node, x: Expr) -> tuple[Expr, Expr]:
    made = node.call(op.linalg.qr, node.cast(flattened(node, x), "float64"))
    return node.field(made, 0), node.field(made, 1)


@converts("geqrf")
def geqrf(node: Node, x: Expr) -> tuple[Expr, Expr]:
    packed, scales = _factored(node, x)
    *batch, rows, columns = shape_in(x)
    return (node.reshape(node.cast(packed, dtype_in(x)), shape_in(x)),
            node.reshape(node.cast(scales, dtype_in(x)), (*batch, min(rows, columns))))


@converts("linalg_qr")
def qr(node: Node, x: Expr, mode: str) -> tuple[Expr, Expr]:
    packed, scales = _factored(node, x)
    *batch, rows, columns = shape_in(x)
    size = rows if mode == "complete" else min(rows, columns)
    upper = triangle(node, node.slice(packed, 1, 0, size), lower=False)
    upper = node.reshape(node.cast(upper, dtype_in(x)), (*batch, size, columns))
    if mode == "r":
        return node.constant(np.zeros(0), dtype_in(x)), upper
    made = node.call(op.linalg.reflect, packed, scales, identity(node, packed, rows, size))
    return node.reshape(node.cast(made, dtype_in(x)), (*batch, rows, size)), upper


@converts("linalg_householder_product")
def householder_product(node: Node, packed: Expr, scales: Expr) -> Expr:
    *_, rows, columns = shape_in(packed)
    flat, line = _reflections(node, packed, scales)
    made = node.call(op.linalg.reflect, flat, line, identity(node, flat, rows, columns))
    return node.reshape(node.cast(made, dtype_in(packed)), shape_in(packed))


@converts("ormqr")
def ormqr(node: Node, packed: Expr, scales: Expr, other: Expr, left: bool, transpose: bool
          ) -> Expr:
    """``Q c`` or ``c Q``, or with the transposed factor."""
    flat, line = _reflections(node, packed, scales)
    right = other if left else transposed(node, other)
    made = node.call(op.linalg.reflect, flat, line, node.cast(flattened(node, right), "float64"),
                     transpose=transpose == left)
    made = node.reshape(node.cast(made, dtype_in(other)), shape_in(right))
    return made if left else transposed(node, made)


def _reflections(node: Node, packed: Expr, scales: Expr) -> Sequence[Expr]:
    flat = node.cast(flattened(node, packed), "float64")
    count = shape_in(scales)[-1]
    if not count:
        raise node.unsupported("no reflections")
    return flat, node.cast(node.reshape(scales, (shape_in(flat)[0], count)), "float64")


@converts("linalg_matrix_exp")
def matrix_exp(node: Node, x: Expr) -> Expr:
    return node.reshape(node.call(op.linalg.matrix_exp, flattened(node, x)), shape_in(x))
