"""Converters of LU factorization, determinants, inverses and solves."""

from __future__ import annotations

import numpy as np

from weft import op
from weft.frontend.common import arrays
from weft.frontend.torch.matrices import (
    broadcast_batch,
    diagonal,
    flattened,
    identity,
    permutation,
    permuted_rows,
    transposed,
    triangle,
)
from weft.frontend.torch.node import Node, broadcast_shape, dtype_in, rank_of, shape_in
from weft.frontend.torch.registry import converts
from weft.ir.expr import Constant, Expr

Several = tuple[Expr, ...]
# Converters return None for factors that only gradients read; torch runs a call that uses them.


def _factored(node: Node, x: Expr) -> Several:
    """Packed factors in float64, pivots, row order and info of ``x`` as (batch, rows, columns)."""
    made = node.call(op.linalg.lu, node.cast(flattened(node, x), "float64"))
    return tuple(node.field(made, i) for i in range(4))


def _stored(node: Node, x: Expr, factored: Several) -> Several:
    """Factors, pivots and info in the dtype and shapes of torch's results."""
    batch, size = shape_in(x)[:-2], min(shape_in(x)[-2:])
    packed, pivots, _, info = factored
    return (node.reshape(node.cast(packed, dtype_in(x)), shape_in(x)),
            node.reshape(pivots, (*batch, size)), node.reshape(info, batch))


def _as_torch_factors(node: Node, x: Expr) -> Expr:
    """``x`` or its transpose: the one in LAPACK's column-major order, which torch factors."""
    return transposed(node, x) if node.traced[0].is_contiguous() else x


@converts("linalg_lu_factor_ex")
def lu_factor(node: Node, x: Expr, pivot: bool, *_check: bool) -> Several:
    if not pivot:
        raise node.unsupported("factors without pivots")
    return _stored(node, x, _factored(node, x))


@converts("linalg_lu")
def lu(node: Node, x: Expr, pivot: bool) -> Several:
    if not pivot:
        raise node.unsupported("factors without pivots")
    packed, _, order, _ = _factored(node, x)
    return _unpacked(node, x, packed, order)


@converts("lu_unpack")
def lu_unpack(node: Node, packed: Expr, pivots: Expr, unpack_data: bool, unpack_pivots: bool
              ) -> Several:
    if not (unpack_data and unpack_pivots):
        raise node.unsupported("unpacking only data or only pivots")
    batch, rows = flattened(node, packed), shape_in(packed)[-2]
    line = node.reshape(pivots, (shape_in(batch)[0], shape_in(pivots)[-1]))
    order = node.call(op.linalg.pivot_order, line, rows=rows)
    return _unpacked(node, packed, node.cast(batch, "float64"), order)


def _unpacked(node: Node, x: Expr, packed: Expr, order: Expr) -> Several:
    """P, L and U."""
    *batch, rows, columns = shape_in(x)
    size, dtype = min(rows, columns), dtype_in(x)
    below = triangle(node, node.slice(packed, 2, 0, size), lower=True, offset=-1)
    lower = node.call(op.add, below, identity(node, packed, rows, size))
    upper = triangle(node, node.slice(packed, 1, 0, size), lower=False)
    return (node.reshape(permutation(node, order, dtype.name), (*batch, rows, rows)),
            node.reshape(node.cast(lower, dtype), (*batch, rows, size)),
            node.reshape(node.cast(upper, dtype), (*batch, size, columns)))


def _sign_of_order(node: Node, pivots: Expr) -> Expr:
    """The sign of the permutation: 1 for an even number of row exchanges, else -1."""
    count = shape_in(pivots)[-1]
    own = Constant(arrays.arange(1, count + 1, dtype=np.int32), span=node.span)
    moved = node.cast(node.call(op.not_equal, pivots, own), "int64")
    odd = node.call(op.floor_mod, node.call(op.sum, moved, axis=(1,)), node.constant(2, "int64"))
    is_odd = node.call(op.equal, odd, node.constant(1, "int64"))
    return node.call(op.where, is_odd, node.constant(-1, "float64"), node.constant(1, "float64"))


@converts("_linalg_det")
def det(node: Node, x: Expr) -> tuple[Expr, None, None]:
    source = _as_torch_factors(node, x)
    factored = _factored(node, source)
    product = node.call(op.prod, diagonal(node, factored[0]), axis=(1,))
    value = node.call(op.multiply, product, _sign_of_order(node, factored[1]))
    value = node.reshape(node.cast(value, dtype_in(x)), shape_in(x)[:-2])
    return value, None, None


@converts("_linalg_slogdet")
def slogdet(node: Node, x: Expr) -> tuple[Expr, Expr, None, None]:
    source = _as_torch_factors(node, x)
    factored = _factored(node, source)
    on_diagonal = diagonal(node, factored[0])
    sign = node.call(op.prod, node.call(op.sign, on_diagonal), axis=(1,))
    sign = node.call(op.multiply, sign, _sign_of_order(node, factored[1]))
    logs = node.call(op.log, node.call(op.abs, on_diagonal))
    size = node.call(op.sum, logs, axis=(1,))
    batch, dtype = shape_in(x)[:-2], dtype_in(x)
    return (node.reshape(node.cast(sign, dtype), batch),
            node.reshape(node.cast(size, dtype), batch), None, None)


@converts("linalg_inv_ex")
def inverse(node: Node, x: Expr, *_check: bool) -> tuple[Expr, Expr]:
    factored = _factored(node, x)
    right = identity(node, factored[0], shape_in(x)[-1])
    made = _solved(node, factored[0], factored[2], right)
    return (node.reshape(node.cast(made, dtype_in(x)), shape_in(x)),
            node.reshape(factored[3], shape_in(x)[:-2]))


@converts("_linalg_solve_ex")
def solve(node: Node, a: Expr, b: Expr, left: bool, *_check: bool
          ) -> tuple[Expr, None, None, Expr]:
    is_vector = rank_of(b) == 1 or shape_in(b) == shape_in(a)[:-1]
    right = node.call(op.expand_dims, b, axis=rank_of(b), num_newaxis=1) if is_vector else b
    source = _as_torch_factors(node, a)
    factored = _factored(node, source)
    made = _with_factors(node, factored[0], factored[2], shape_in(a)[:-2], right,
                         left=left or is_vector, adjoint=source is not a)
    made = node.call(op.squeeze, made, axis=(rank_of(made) - 1,)) if is_vector else made
    return made, None, None, _stored(node, source, factored)[2]


@converts("linalg_lu_solve")
def lu_solve(node: Node, packed: Expr, pivots: Expr, b: Expr, left: bool, adjoint: bool) -> Expr:
    batch = flattened(node, packed)
    line = node.reshape(pivots, (shape_in(batch)[0], shape_in(pivots)[-1]))
    order = node.call(op.linalg.pivot_order, line, rows=shape_in(packed)[-2])
    return _with_factors(node, node.cast(batch, "float64"), order, shape_in(packed)[:-2], b,
                         left=left, adjoint=adjoint)


def _with_factors(node: Node, packed: Expr, order: Expr, batch: tuple[int, ...], b: Expr, *,
                  left: bool, adjoint: bool) -> Expr:
    """Solve ``a x = b`` or ``x a = b``, with batches broadcast; ``adjoint`` transposes ``a``."""
    common = tuple(broadcast_shape(batch, shape_in(b)[:-2]))
    size = shape_in(packed)[-1]
    packed = broadcast_batch(node, node.reshape(packed, (*batch, size, size)), common)
    order = node.broadcast(node.reshape(order, (*batch, size)), (*common, size))
    right = broadcast_batch(node, b if left else transposed(node, b), common)
    flat = node.cast(flattened(node, right), "float64")
    count = shape_in(flat)[0]
    packed = node.reshape(packed, (count, size, size))
    order = node.reshape(order, (count, size))
    made = _solved(node, packed, order, flat) if adjoint == (not left) \
        else _solved_transposed(node, packed, order, flat)
    made = node.reshape(node.cast(made, dtype_in(b)), shape_in(right))
    return made if left else transposed(node, made)


def _solved(node: Node, packed: Expr, order: Expr, b: Expr) -> Expr:
    """Solve ``P L U x = b``."""
    y = node.call(op.linalg.triangular_solve, packed, permuted_rows(node, b, order), lower=True,
                  unit=True)
    return node.call(op.linalg.triangular_solve, packed, y, lower=False)


def _solved_transposed(node: Node, packed: Expr, order: Expr, b: Expr) -> Expr:
    """Solve ``U' L' P' x = b``."""
    mirrored = transposed(node, packed)
    y = node.call(op.linalg.triangular_solve, mirrored, b, lower=True)
    z = node.call(op.linalg.triangular_solve, mirrored, y, lower=False, unit=True)
    return permuted_rows(node, z, node.call(op.argsort, order, axis=1, dtype="int64"))
