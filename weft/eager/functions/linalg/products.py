"""Products and powers of matrices, and vectors of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.eager.axes import axis_of
from weft.eager.emitter import call
from weft.eager.functions import indexing
from weft.eager.functions.complex import conj
from weft.eager.functions.elementwise import operands
from weft.eager.functions.linalg.matrices import identity, in_dtype, squares
from weft.eager.functions.linalg.solving import inv
from weft.eager.functions.linear import matmul
from weft.eager.record import as_node, wrap
from weft.eager.signature import public
from weft.support.errors import InvalidInputError


@public
def matrix_power(A: Any, n: int) -> Any:
    """The product of ``n`` times ``A``, by squaring; negative powers are those of the inverse."""
    x = wrap(as_node(A)) if n > 0 else squares(A, "matrix_power", complex_too=True)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise InvalidInputError("matrix_power: expected square matrices",
                                got=f"shape {tuple(x.shape)}")
    if n == 0:
        size = x.shape[-1]
        return call("where", np.True_, in_dtype(identity(size, size), x.dtype.name), x)
    square, left = (inv(x), -n) if n < 0 else (x, n)
    found: Any = None
    while left:
        if left & 1:
            found = square if found is None else matmul(found, square)
        left >>= 1
        square = matmul(square, square) if left else square
    return found.clone() if n == 1 else found


@public
def multi_dot(tensors: Sequence[Any]) -> Any:
    """The product of matrices in the order of the fewest multiplications.

    The first and the last may be vectors: a row and a column.
    """
    parts = [wrap(node) for node in operands(*tensors)]
    if len(parts) < 2:
        raise InvalidInputError("multi_dot takes at least two tensors", got=len(parts))
    is_row, is_column = parts[0].ndim == 1, parts[-1].ndim == 1
    parts[0] = call("expand_dims", parts[0], axis=0) if is_row else parts[0]
    parts[-1] = call("expand_dims", parts[-1], axis=1) if is_column else parts[-1]
    if any(p.ndim != 2 for p in parts):
        raise InvalidInputError("multi_dot takes matrices, and vectors at the ends",
                                got=str([tuple(p.shape) for p in parts]))
    sizes = [p.shape[0] for p in parts] + [parts[-1].shape[1]]
    found = _multiplied(parts, _splits(sizes), 0, len(parts) - 1)
    kept = [s for s, gone in zip(found.shape, (is_row, is_column), strict=True) if not gone]
    return found.reshape(tuple(kept))


def _splits(sizes: list[int]) -> dict[tuple[int, int], int]:
    """Where to split each chain of matrices, by the cost of its two parts."""
    count = len(sizes) - 1
    cost: dict[tuple[int, int], int] = {(i, i): 0 for i in range(count)}
    split: dict[tuple[int, int], int] = {}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            costs = {k: cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1]
                     for k in range(i, j)}
            split[i, j] = min(costs, key=costs.__getitem__)
            cost[i, j] = costs[split[i, j]]
    return split


def _multiplied(parts: list[Any], split: dict[tuple[int, int], int], i: int, j: int) -> Any:
    if i == j:
        return parts[i]
    k = split[i, j]
    return matmul(_multiplied(parts, split, i, k), _multiplied(parts, split, k + 1, j))


@public
def cross(input: Any, other: Any, *, dim: int = -1) -> Any:
    """The cross product of vectors of three numbers along an axis."""
    x, y = [wrap(node) for node in operands(input, other)]
    if x.ndim != y.ndim:
        raise InvalidInputError("cross: the tensors differ in axes",
                                got=f"{tuple(x.shape)} and {tuple(y.shape)}")
    axis = axis_of(dim, x.ndim)
    if x.shape[axis] != 3 or y.shape[axis] != 3:
        raise InvalidInputError("cross takes vectors of three numbers", where=f"axis {axis}",
                                got=f"{tuple(x.shape)} and {tuple(y.shape)}")
    after, before = np.array([1, 2, 0]), np.array([2, 0, 1])
    x1, x2, y1, y2 = (call("take", t, at, axis=axis) for t in (x, y) for at in (after, before))
    return x1 * y2 - x2 * y1


@public
def vecdot(x: Any, y: Any, *, dim: int = -1) -> Any:
    """The sum of products of two tensors, which broadcast, along an axis."""
    product = conj(x) * wrap(as_node(y))
    return product.sum(dim, dtype=product.dtype)


@public
def diagonal(A: Any, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    """A diagonal of the matrices of two axes, as the last axis."""
    return indexing.diagonal(A, offset, dim1, dim2)


@public
def vander(x: Any, *, N: int | None = None) -> Any:
    """The powers 0 to N - 1 of each element, along a new last axis; a number is one element."""
    value = wrap(as_node(x))
    if not value.ndim:
        if N is None:
            raise InvalidInputError("vander of a number", help="pass N")
        value = value.reshape(1)
    count = N if N is not None else value.shape[-1]
    if count < 1:
        raise InvalidInputError("vander: N is not positive", got=count)
    value = value if value.dtype.rank else value.to("int64")
    ones = value.new_ones((*value.shape, 1))
    if count == 1:
        return ones
    shape = (*value.shape, count - 1)
    wide = call("broadcast_to", call("expand_dims", value, axis=value.ndim), shape=shape)
    return call("concatenate", ones, call("cumprod", wide, axis=value.ndim), axis=value.ndim)
