"""Functions that rearrange elements."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.eager.axes import axes_of, axis_of
from weft.eager.cell import Cell, spec_of_cell, view_of
from weft.eager.dtypes import as_dtype
from weft.eager.functions.elementwise import operands
from weft.eager.node import Node
from weft.eager.record import as_node, field, record, wrap
from weft.eager.signature import checked, public
from weft.eager.storage import Layout, ViewOp, row_major
from weft.eager.views import (
    Bits,
    Expand,
    Part,
    Permute,
    Reshape,
    Slices,
    reshaped,
    reshaped_layout,
)
from weft.support.errors import InvalidInputError

if TYPE_CHECKING:
    from weft.eager.tensor import Tensor


def sizes_of(sizes: tuple[Any, ...]) -> tuple[int, ...]:
    """Sizes given one by one or as a sequence."""
    if len(sizes) == 1 and not isinstance(sizes[0], int):
        sizes = tuple(sizes[0])
    return tuple([int(s) for s in sizes])


def viewed(input: Any, *ops: ViewOp) -> Tensor:
    """A view of a tensor, or the same part of an array."""
    return view_of(input if isinstance(input, Cell) else wrap(as_node(input)), *ops)


def layout_of(x: Any) -> Layout:
    """Sizes, strides and offset of a tensor."""
    return row_major(spec_of_cell(x).shape) if x._view is None else x._view.layout  # noqa: SLF001


@public
def reshape(input: Any, *shape: Any) -> Tensor:
    """The elements in row-major order in another shape; one size may be -1.

    A view, unless the elements of a view are not at even distances: then a copy.
    """
    node = as_node(input)
    wanted = _filled(sizes_of(shape), node)
    if isinstance(input, Cell) and reshaped_layout(layout_of(input), wanted) is None:
        return wrap(reshaped(node, wanted))
    return viewed(input, Reshape(wanted))


@checked
def view(input: Any, *shape: Any) -> Tensor:
    """The same elements in another shape, never copied; or in another dtype."""
    if len(shape) == 1 and not isinstance(shape[0], (int, tuple, list)):
        d = as_dtype(shape[0])
        if d is input.dtype:
            return viewed(input)
        if d.itemsize != input.dtype.itemsize:
            raise InvalidInputError("the memory of a tensor is read as a dtype of another size",
                                    expected=f"{input.dtype.itemsize} bytes", got=repr(d),
                                    help="convert it with .to(dtype), or view numpy()'s array")
        return viewed(input, Bits(d))
    op = Reshape(_filled(sizes_of(shape), as_node(input)))
    op.layout(layout_of(input))
    return viewed(input, op)


def _filled(sizes: tuple[int, ...], node: Node) -> tuple[int, ...]:
    """``sizes`` with a number for -1."""
    have = math.prod(node.sig.out.shape)
    known = math.prod([s for s in sizes if s != -1])
    fits = have == known
    if sizes.count(-1) == 1 and known:
        fits = have % known == 0
        sizes = tuple([have // known if s == -1 else s for s in sizes])
    if not fits or any(s < 0 for s in sizes):
        raise InvalidInputError(f"a shape does not fit a tensor of {have} elements",
                                got=repr(sizes), expected=f"the elements of {node.sig.out.shape}")
    return sizes


@public
def permute(input: Any, *dims: Any) -> Tensor:
    """The axes in another order."""
    node = as_node(input)
    rank = len(node.sig.out.shape)
    axes = tuple([axis_of(d, rank) for d in sizes_of(dims)])
    if sorted(axes) != list(range(rank)):
        raise InvalidInputError("permute needs each axis once", got=repr(axes),
                                expected=f"an order of {tuple(range(rank))}")
    return viewed(input, Permute(axes))


@checked
def transpose(input: Any, dim0: int, dim1: int) -> Tensor:
    """Two axes exchanged."""
    rank = len(as_node(input).sig.out.shape)
    a, b = axis_of(dim0, max(rank, 1)), axis_of(dim1, max(rank, 1))
    axes = list(range(rank))
    if rank:
        axes[a], axes[b] = axes[b], axes[a]
    return viewed(input, Permute(tuple(axes)))


@checked
def t(input: Any) -> Tensor:
    """The transpose of a matrix; tensors of fewer axes unchanged."""
    rank = len(as_node(input).sig.out.shape)
    if rank > 2:
        raise InvalidInputError("t takes tensors of at most 2 axes", got=str(rank))
    return viewed(input, Permute(tuple(range(rank))[::-1]))


@checked
def movedim(input: Any, source: Any, destination: Any) -> Tensor:
    """Axes moved to other positions."""
    node = as_node(input)
    rank = len(node.sig.out.shape)
    start, end = axes_of(source, max(rank, 1)) or (), axes_of(destination, max(rank, 1)) or ()
    if not rank:
        return viewed(input)
    rest = [a for a in range(rank) if a not in start]
    for at, axis in sorted(zip(end, start, strict=True)):
        rest.insert(at, axis)
    return permute(input, tuple(rest))


@checked
def squeeze(input: Any, dim: Any = None) -> Tensor:
    """Without axes of size 1: all of them, or those of ``dim`` that have size 1."""
    node = as_node(input)
    shape = node.sig.out.shape
    axes = range(len(shape)) if dim is None else axes_of(dim, len(shape)) or ()
    gone = {a for a in axes if a < len(shape) and shape[a] == 1}
    return viewed(input, Part(_whole(shape), tuple([a for a in range(len(shape))
                                                    if a not in gone])))


@checked
def unsqueeze(input: Any, dim: int) -> Tensor:
    """With a new axis of size 1."""
    shape = as_node(input).sig.out.shape
    at = axis_of(dim, len(shape) + 1)
    axes = range(len(shape))
    return viewed(input, Part(_whole(shape), (*axes[:at], None, *axes[at:])))


def _whole(shape: tuple[int, ...]) -> Slices:
    """The slices of all elements."""
    return tuple([(0, size, 1) for size in shape])


@checked
def flatten(input: Any, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """The axes from ``start_dim`` to ``end_dim`` as one."""
    shape = as_node(input).sig.out.shape
    rank = max(len(shape), 1)
    first, last = axis_of(start_dim, rank), axis_of(end_dim, rank)
    if first > last:
        raise InvalidInputError("flatten has start_dim after end_dim", got=f"{first}, {last}")
    if first == last and shape and isinstance(input, Cell):
        return input  # type: ignore[return-value]
    size = math.prod(shape[first:last + 1])
    return reshape(input, (*shape[:first], size, *shape[last + 1:]))


@checked
def ravel(input: Any) -> Tensor:
    """The elements in one axis, a view where ``reshape`` gives one."""
    return reshape(input, -1)


@checked
def unflatten(input: Any, dim: int, sizes: Sequence[int]) -> Tensor:
    """An axis as several."""
    shape = as_node(input).sig.out.shape
    at = axis_of(dim, len(shape))
    inner = sizes_of((sizes,))
    known = math.prod([s for s in inner if s != -1])
    if inner.count(-1) == 1 and known:
        inner = tuple([shape[at] // known if s == -1 else s for s in inner])
    if math.prod(inner) != shape[at]:
        raise InvalidInputError(f"the sizes of unflatten do not multiply to {shape[at]}",
                                got=repr(inner))
    return reshape(input, (*shape[:at], *inner, *shape[at + 1:]))


@public
def expand(input: Any, *size: Any) -> Tensor:
    """Axes of size 1 repeated, and new leading axes; -1 keeps a size."""
    node = as_node(input)
    shape, wanted = node.sig.out.shape, sizes_of(size)
    lead = len(wanted) - len(shape)
    if lead < 0:
        raise InvalidInputError("expand has fewer sizes than axes", got=repr(wanted),
                                expected=f"at least {len(shape)}")
    full = tuple([shape[i - lead] if s == -1 and i >= lead else s for i, s in enumerate(wanted)])
    for axis, one in enumerate(full):
        if one < 0 or (axis >= lead and shape[axis - lead] not in (1, one)):
            raise InvalidInputError("a shape cannot be expanded to the sizes", got=repr(wanted),
                                    expected=f"the sizes of {shape} where they are not 1")
    return viewed(input, Expand(full))


broadcast_to = expand


@public
def repeat(input: Any, *dims: Any) -> Tensor:
    """The tensor repeated along its axes, and along new leading axes (NumPy's ``tile``)."""
    return wrap(record("tile", (as_node(input),), {"reps": sizes_of(dims)}))


tile = repeat


@public
def repeat_interleave(input: Any, repeats: Any = None, dim: int | None = None, *,
                      output_size: int | None = None) -> Tensor:  # noqa: ARG001 - a hint
    """Each element repeated in place, so often or each as often as a tensor says.

    ``repeat_interleave(repeats)`` gives the indices of the elements. Such a tensor is looked at.
    """
    node = as_node(input)
    axis = None if dim is None else axis_of(dim, len(node.sig.out.shape))
    if repeats is None or (isinstance(repeats, Cell) and spec_of_cell(repeats).shape):
        chosen = input if repeats is None else repeats
        counts = np.asarray(chosen.cpu() if isinstance(chosen, Cell) else chosen)  # type: ignore[attr-defined]
        at = wrap(as_node(np.repeat(np.arange(len(counts)), counts)))
        if repeats is None:
            return at.to(device=chosen.device) if isinstance(chosen, Cell) else at  # type: ignore[attr-defined]
        x = wrap(node) if axis is not None else reshape(input, -1)
        nodes = (as_node(x), as_node(at))
        if counts.size == 1:
            nodes = (nodes[0], as_node(np.repeat(np.arange(x.shape[axis or 0]), counts)))
        return wrap(record("take", nodes, {"axis": axis or 0}))
    return wrap(record("repeat", (node,), {"repeats": int(repeats), "axis": axis}))


@public
def cat(tensors: Sequence[Any], dim: int = 0) -> Tensor:
    """The tensors joined along an axis."""
    if not tensors:
        raise InvalidInputError("cat needs at least one tensor")
    nodes = operands(*tensors)
    # As in torch, vectors without elements fit all others.
    parts = tuple([n for n in nodes if n.sig.out.shape != (0,)])
    nodes = parts if any(len(n.sig.out.shape) > 1 for n in parts) else nodes
    axis = axis_of(dim, len(nodes[0].sig.out.shape))
    return wrap(record("concatenate", nodes, {"axis": axis}))


concat = concatenate = cat


@public
def stack(tensors: Sequence[Any], dim: int = 0) -> Tensor:
    """The tensors, all of one shape, along a new axis."""
    if not tensors:
        raise InvalidInputError("stack needs at least one tensor")
    nodes = operands(*tensors)
    axis = axis_of(dim, len(nodes[0].sig.out.shape) + 1)
    return wrap(record("stack", nodes, {"axis": axis}))


@checked
def split(tensor: Any, split_size_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Parts along an axis: of one size (the last may be smaller), or of the sizes given."""
    node = as_node(tensor)
    axis = axis_of(dim, len(node.sig.out.shape))
    shape = node.sig.out.shape
    size = shape[axis]
    if isinstance(split_size_or_sections, int):
        step = split_size_or_sections
        if step <= 0:
            raise InvalidInputError("split needs a positive size", got=str(step))
        sizes = [min(step, size - at) for at in range(0, max(size, 1), step)]
    else:
        sizes = list(split_size_or_sections)
        if sum(sizes) != size:
            raise InvalidInputError("the sizes of split do not add up", got=repr(sizes),
                                    expected=f"a sum of {size}")
    if not isinstance(tensor, Cell):
        tensor = wrap(node)
    if len(sizes) == 1:
        return (viewed(tensor),)
    ends = [sum(sizes[:i]) for i in range(1, len(sizes))]
    parts = record("split", (node,), {"indices_or_sections": tuple(ends), "axis": axis})
    found = []
    for i, (begin, end) in enumerate(itertools.pairwise([0, *ends, size])):
        slices = list(_whole(shape))
        slices[axis] = (begin, end, 1)
        op = Part(tuple(slices), tuple(range(len(shape))))
        found.append(view_of(tensor, op, node=field(parts, i)))
    return tuple(found)


@checked
def chunk(input: Any, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most ``chunks`` parts of equal size along an axis; the last may be smaller."""
    shape = as_node(input).sig.out.shape
    size = shape[axis_of(dim, len(shape))]
    return split(input, max(1, -(-size // chunks)), dim)


@checked
def unbind(input: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """The slices along an axis, without the axis."""
    node = as_node(input)
    axis = axis_of(dim, len(node.sig.out.shape))
    size = node.sig.out.shape[axis]
    if not size:
        return ()
    return tuple([squeeze(part, axis) for part in split(input, 1, axis)])


@public
def flip(input: Any, *dims: Any) -> Tensor:
    """The order of elements reversed along axes."""
    node = as_node(input)
    for axis in axes_of(sizes_of(dims), len(node.sig.out.shape)) or ():
        node = record("reverse", (node,), {"axis": axis})
    return wrap(node)


@checked
def roll(input: Any, shifts: Any, dims: Any = None) -> Tensor:
    """Elements moved along axes; those moved past the end come back at the start."""
    x = wrap(as_node(input))
    if dims is None:
        return roll(x.flatten(), shifts, 0).reshape(x.shape)
    moves = zip(sizes_of((shifts,)), sizes_of((dims,)), strict=True)
    for shift, dim in moves:
        size = x.shape[dim]
        cut = (size - shift) % size if size else 0
        if cut:
            x = cat(split(x, (cut, size - cut), dim)[::-1], dim)
    return x


@checked
def tril(input: Any, diagonal: int = 0) -> Tensor:
    """The lower triangle of each matrix; zeros elsewhere."""
    return _triangle(input, diagonal, upper=False)


@checked
def triu(input: Any, diagonal: int = 0) -> Tensor:
    """The upper triangle of each matrix; zeros elsewhere."""
    return _triangle(input, diagonal, upper=True)


def _triangle(input: Any, diagonal: int, *, upper: bool) -> Tensor:
    nodes = (as_node(input), as_node(int(diagonal)))
    return wrap(record("trilu", nodes, {"upper": upper}))


@checked
def masked_fill(input: Any, mask: Any, value: Any) -> Tensor:
    """``value`` where ``mask`` holds."""
    node = as_node(input)
    number = as_node(value, node.sig.out.dtype)
    return wrap(record("where", (as_node(mask), number, node), {}))
