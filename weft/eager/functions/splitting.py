"""Tensors split into parts, broadcast together, and copied where torch has a copying form."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.eager.axes import axis_of
from weft.eager.cell import Cell
from weft.eager.functions import indexing, shape
from weft.eager.functions.assembly import listed
from weft.eager.functions.reduction import sum
from weft.eager.record import as_node, wrap
from weft.eager.signature import checked, public
from weft.support.errors import InvalidInputError


@public
def tensor_split(input: Any, indices_or_sections: Any, dim: int = 0) -> tuple[Any, ...]:
    """Parts along an axis: so many of almost equal sizes, or cut at these indices."""
    (x,) = listed((input,))
    if not x.ndim:
        raise InvalidInputError("tensor_split takes tensors with at least one axis")
    axis = axis_of(dim, x.ndim)
    size = x.shape[axis]
    if isinstance(indices_or_sections, Cell):
        indices_or_sections = indices_or_sections.tolist()  # type: ignore[attr-defined]
    if isinstance(indices_or_sections, int):
        if indices_or_sections <= 0:
            raise InvalidInputError("tensor_split needs at least one section",
                                    got=str(indices_or_sections))
        small, more = divmod(size, indices_or_sections)
        widths = [small + (i < more) for i in range(indices_or_sections)]
        ends = np.cumsum(widths).tolist()[:-1]
    else:
        ends = [slice(None, int(end)).indices(size)[1] for end in indices_or_sections]
    starts = [0, *ends]
    return tuple([x.narrow(axis, start, max(0, end - start))
                  for start, end in zip(starts, [*ends, size], strict=True)])


def _split_along(name: str, input: Any, parts: Any, dim: int, rank: int) -> tuple[Any, ...]:
    (x,) = listed((input,))
    if x.ndim < rank:
        raise InvalidInputError(f"{name} takes tensors of at least {rank} axes", got=str(x.ndim))
    if isinstance(parts, int) and x.shape[dim] % parts:
        raise InvalidInputError(f"{name}: the size is not divisible by the number of parts",
                                got=f"{x.shape[dim]} and {parts}")
    return tensor_split(x, parts, dim)


@public
def hsplit(input: Any, indices_or_sections: Any) -> tuple[Any, ...]:
    """Parts along the second axis, of vectors along the first."""
    return _split_along("hsplit", input, indices_or_sections, 0 if input.ndim == 1 else 1, 1)


@public
def vsplit(input: Any, indices_or_sections: Any) -> tuple[Any, ...]:
    """Parts along the first axis."""
    return _split_along("vsplit", input, indices_or_sections, 0, 2)


@public
def dsplit(input: Any, indices_or_sections: Any) -> tuple[Any, ...]:
    """Parts along the third axis."""
    return _split_along("dsplit", input, indices_or_sections, 2, 3)


@public
def split_with_sizes(input: Any, split_sizes: Any, dim: int = 0) -> tuple[Any, ...]:
    """Parts of these sizes along an axis."""
    return shape.split(input, list(split_sizes), dim)


unsafe_split_with_sizes, unsafe_split, unsafe_chunk = split_with_sizes, shape.split, shape.chunk


def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """The shape that shapes broadcast to."""
    sizes = [(s,) if isinstance(s, int) else tuple(s) for s in shapes]
    try:
        found = np.broadcast_shapes(*sizes)
    except ValueError:
        raise InvalidInputError("the shapes do not broadcast", got=repr(sizes)) from None
    return tuple(found)


@public
def broadcast_tensors(*tensors: Any) -> tuple[Any, ...]:
    """Tensors expanded to the shape that they broadcast to."""
    parts = listed(tensors)
    common = broadcast_shapes(*[tuple(p.shape) for p in parts])
    return tuple([p.expand(common) for p in parts])


@public
def sum_to_size(input: Any, *size: Any) -> Any:
    """The sum over axes that broadcasting this size would repeat."""
    (x,), wanted = listed((input,)), shape.sizes_of(size)
    if not wanted:
        return sum(x)
    lead = x.ndim - len(wanted)
    if lead < 0 or any(w not in (1, s) for w, s in zip(wanted, x.shape[lead:], strict=True)):
        raise InvalidInputError("sum_to_size: the size does not broadcast to the tensor",
                                got=repr(wanted), expected=f"to {tuple(x.shape)}")
    axes = [a for a in range(x.ndim) if a < lead or (wanted[a - lead] == 1 and x.shape[a] != 1)]
    found = sum(x, axes, keepdim=True) if axes else x
    return found.reshape(wanted)


@checked
def unravel_index(indices: Any, shape: Any) -> tuple[Any, ...]:
    """Flat indices as indices of the axes of a shape."""
    at = wrap(as_node(indices))
    found = []
    for size in reversed((shape,) if isinstance(shape, int) else tuple(shape)):
        found.append(at % size)
        at = at // size
    return tuple(found[::-1])


def _copied(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The form of a function of views that copies."""

    def call(*args: Any, **named: Any) -> Any:
        found = function(*args, **named)
        return tuple([part.clone() for part in found]) if isinstance(found, tuple) else \
            found.clone()

    call.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"``{name.removesuffix('_copy')}``, copied."
    return call


as_strided_copy = _copied("as_strided_copy", indexing.as_strided)
unfold_copy = _copied("unfold_copy", indexing.unfold)
alias_copy = _copied("alias_copy", lambda x: x)
diagonal_copy = _copied("diagonal_copy", indexing.diagonal)
expand_copy = _copied("expand_copy", shape.expand)
narrow_copy = _copied("narrow_copy", indexing.narrow)
permute_copy = _copied("permute_copy", shape.permute)
select_copy = _copied("select_copy", indexing.select)
split_copy = _copied("split_copy", shape.split)
split_with_sizes_copy = _copied("split_with_sizes_copy", split_with_sizes)
squeeze_copy = _copied("squeeze_copy", shape.squeeze)
t_copy = _copied("t_copy", shape.t)
transpose_copy = _copied("transpose_copy", shape.transpose)
unbind_copy = _copied("unbind_copy", shape.unbind)
unsqueeze_copy = _copied("unsqueeze_copy", shape.unsqueeze)
view_copy = _copied("view_copy", shape.reshape)
