"""Tensors put together from others, and indices of triangles and products."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.eager.cell import Cell
from weft.eager.dtypes import as_dtype, int64
from weft.eager.functions.elementwise import operands
from weft.eager.functions.reduction import cumprod
from weft.eager.functions.shape import cat, flip, stack
from weft.eager.placement import new_value
from weft.eager.record import as_node, wrap
from weft.eager.signature import factory, public
from weft.support.errors import InvalidInputError

if TYPE_CHECKING:
    from weft.eager.tensor import Tensor


def listed(tensors: tuple[Any, ...]) -> list[Any]:
    """Tensors given one by one or as one sequence."""
    if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
        tensors = tuple(tensors[0])
    return [t if isinstance(t, Cell) else wrap(as_node(t)) for t in tensors]


def _at_least(rank: int, x: Any) -> Any:
    """A tensor with at least so many axes, where torch's ``atleast_`` functions put them."""
    if x.ndim >= rank:
        return x
    if rank == 3 and x.ndim == 2:
        return x.unsqueeze(2)
    if rank == 3 and x.ndim == 1:
        return x.reshape(1, -1, 1)
    return x.reshape((1,) * (rank - x.ndim) + tuple(x.shape))


def _each(rank: int, tensors: tuple[Any, ...]) -> Any:
    if len(tensors) == 1 and isinstance(tensors[0], Cell):
        return _at_least(rank, tensors[0])
    return tuple([_at_least(rank, t) for t in listed(tensors)])


@public
def atleast_1d(*tensors: Any) -> Any:
    """Tensors without axes as vectors; others as they are."""
    return _each(1, tensors)


@public
def atleast_2d(*tensors: Any) -> Any:
    """Tensors of fewer than two axes as matrices of one row."""
    return _each(2, tensors)


@public
def atleast_3d(*tensors: Any) -> Any:
    """Tensors of fewer than three axes with axes of size 1 added."""
    return _each(3, tensors)


@public
def hstack(tensors: Any) -> Tensor:
    """Tensors joined along the second axis, vectors along the first."""
    parts = [_at_least(1, t) for t in listed((tensors,))]
    return cat(parts, 0 if parts[0].ndim == 1 else 1)


@public
def vstack(tensors: Any) -> Tensor:
    """Tensors joined along the first axis, vectors as rows."""
    return cat([_at_least(2, t) for t in listed((tensors,))], 0)


@public
def dstack(tensors: Any) -> Tensor:
    """Tensors joined along the third axis."""
    return cat([_at_least(3, t) for t in listed((tensors,))], 2)


@public
def column_stack(tensors: Any) -> Tensor:
    """Tensors joined along the second axis, vectors as columns."""
    return cat([t.reshape(-1, 1) if t.ndim < 2 else t for t in listed((tensors,))], 1)


row_stack = vstack


@public
def block_diag(*tensors: Any) -> Tensor:
    """Matrices along the diagonal of one, with zeros elsewhere."""
    parts = [_at_least(2, wrap(n)) for n in operands(*listed(tensors))]
    if any(p.ndim > 2 for p in parts):
        raise InvalidInputError("block_diag takes tensors of at most 2 axes")
    width = sum(p.shape[1] for p in parts)
    rows, before = [], 0
    for part in parts:
        after = width - before - part.shape[1]
        zeros = [part.new_zeros((part.shape[0], size)) for size in (before, after)]
        rows.append(cat([zeros[0], part, zeros[1]], 1))
        before += part.shape[1]
    return cat(rows, 0)


@public
def cartesian_prod(*tensors: Any) -> Tensor:
    """All tuples with one element of each vector, as rows."""
    parts = [wrap(n) for n in operands(*listed(tensors))]
    if len(parts) == 1:
        return parts[0]
    lines = [p.reshape([-1 if a == i else 1 for a in range(len(parts))])
             for i, p in enumerate(parts)]
    sizes = tuple([p.shape[0] for p in parts])
    return stack([line.expand(sizes).reshape(-1) for line in lines], 1)


@public
def combinations(input: Any, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All combinations of ``r`` elements of a vector, as rows."""
    x = wrap(as_node(input))
    choose = itertools.combinations_with_replacement if with_replacement else \
        itertools.combinations
    at = np.array(list(choose(range(x.shape[0]), r)), np.int64).reshape(-1, r)
    return x.index_select(0, wrap(as_node(at.reshape(-1)))).reshape(at.shape)


@public
def fliplr(input: Any) -> Tensor:
    """The order of columns reversed."""
    if input.ndim < 2:
        raise InvalidInputError("fliplr takes tensors of at least 2 axes", got=str(input.ndim))
    return flip(input, 1)


@public
def flipud(input: Any) -> Tensor:
    """The order of rows reversed."""
    if input.ndim < 1:
        raise InvalidInputError("flipud takes tensors of at least 1 axis", got="0")
    return flip(input, 0)


@public
def rot90(input: Any, k: int = 1, dims: Any = (0, 1)) -> Tensor:
    """The tensor rotated ``k`` times by 90 degrees, from the first axis to the second."""
    first, second = dims
    turns = k % 4
    if turns == 2:
        return flip(input, first, second)
    if turns == 1:
        return flip(input, second).transpose(first, second)
    return flip(input, first).transpose(first, second) if turns else input.clone()


def _triangle(rows: int, columns: int, offset: int, dtype: Any, *, upper: bool) -> Any:
    make = np.triu if upper else np.tril
    found = np.stack(np.nonzero(make(np.ones((rows, columns), np.bool_), offset)))
    d = int64 if dtype is None else as_dtype(dtype)
    return wrap(new_value(np.ascontiguousarray(found.astype(d.numpy)), d))


@factory
def tril_indices(row: int, col: int, offset: int = 0, *, dtype: Any = None) -> Tensor:
    """Rows and columns of the elements of the lower triangle."""
    return _triangle(row, col, offset, dtype, upper=False)


@factory
def triu_indices(row: int, col: int, offset: int = 0, *, dtype: Any = None) -> Tensor:
    """Rows and columns of the elements of the upper triangle."""
    return _triangle(row, col, offset, dtype, upper=True)


@public
def vander(x: Any, N: int | None = None, increasing: bool = False) -> Tensor:
    """The powers of the elements of a vector, as columns."""
    input = wrap(as_node(x))
    count = input.shape[-1] if N is None else N
    ones = input.new_ones((*input.shape, 1))
    if input.dtype.rank < 2:
        ones = ones.to(int64)
    if count < 1:
        return ones.narrow(-1, 0, 0)
    parts = [ones]
    if count > 1:
        repeated = input.unsqueeze(-1).expand((*input.shape, count - 1))
        parts.append(cumprod(repeated, -1))
    found = cat(parts, -1)
    return found if increasing else flip(found, -1)
