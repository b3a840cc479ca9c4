"""Functions that rearrange elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft.eager.axes import axes_of, axis_of
from weft.eager.functions.elementwise import operands
from weft.eager.node import Node
from weft.eager.record import as_node, record, wrap
from weft.support.errors import InvalidInputError

if TYPE_CHECKING:
    from weft.eager.tensor import Tensor


def sizes_of(sizes: tuple[Any, ...]) -> tuple[int, ...]:
    """Sizes given one by one or as a sequence."""
    if len(sizes) == 1 and not isinstance(sizes[0], int):
        sizes = tuple(sizes[0])
    return tuple([int(s) for s in sizes])


def reshape(input: Any, *shape: Any) -> Tensor:
    """The elements in row-major order in another shape; one size may be -1."""
    node = as_node(input)
    sizes = sizes_of(shape)
    wanted = _filled(sizes, node)
    if wanted == node.sig.out.shape:
        return wrap(record("copy", (node,), {}))
    return wrap(record("reshape", (node,), {"newshape": wanted, "allowzero": True}))


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


def permute(input: Any, *dims: Any) -> Tensor:
    """The axes in another order."""
    node = as_node(input)
    rank = len(node.sig.out.shape)
    axes = tuple([axis_of(d, rank) for d in sizes_of(dims)])
    if sorted(axes) != list(range(rank)):
        raise InvalidInputError("permute needs each axis once", got=repr(axes),
                                expected=f"an order of {tuple(range(rank))}")
    return wrap(record("transpose", (node,), {"axes": axes}))


def transpose(input: Any, dim0: int, dim1: int) -> Tensor:
    """Two axes exchanged."""
    node = as_node(input)
    rank = len(node.sig.out.shape)
    if not rank:
        return wrap(record("copy", (node,), {}))
    axes = list(range(rank))
    a, b = axis_of(dim0, rank), axis_of(dim1, rank)
    axes[a], axes[b] = axes[b], axes[a]
    return wrap(record("transpose", (node,), {"axes": tuple(axes)}))


def t(input: Any) -> Tensor:
    """The transpose of a matrix; tensors of fewer axes unchanged."""
    rank = len(as_node(input).sig.out.shape)
    if rank > 2:
        raise InvalidInputError("t takes tensors of at most 2 axes", got=str(rank))
    return transpose(input, 0, 1) if rank == 2 else reshape(input, (-1,) * rank)


def movedim(input: Any, source: Any, destination: Any) -> Tensor:
    """Axes moved to other positions."""
    node = as_node(input)
    rank = len(node.sig.out.shape)
    start, end = axes_of(source, rank) or (), axes_of(destination, rank) or ()
    rest = [a for a in range(rank) if a not in start]
    for at, axis in sorted(zip(end, start, strict=True)):
        rest.insert(at, axis)
    return permute(input, tuple(rest))


def squeeze(input: Any, dim: Any = None) -> Tensor:
    """Without axes of size 1: all of them, or those of ``dim`` that have size 1."""
    node = as_node(input)
    shape = node.sig.out.shape
    axes = range(len(shape)) if dim is None else axes_of(dim, len(shape)) or ()
    gone = {a for a in axes if a < len(shape) and shape[a] == 1}
    return reshape(input, tuple([s for a, s in enumerate(shape) if a not in gone]))


def unsqueeze(input: Any, dim: int) -> Tensor:
    """With a new axis of size 1."""
    node = as_node(input)
    at = axis_of(dim, len(node.sig.out.shape) + 1)
    return wrap(record("expand_dims", (node,), {"axis": at}))


def flatten(input: Any, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """The axes from ``start_dim`` to ``end_dim`` as one."""
    shape = as_node(input).sig.out.shape
    first, last = axis_of(start_dim, len(shape)), axis_of(end_dim, len(shape))
    if first > last:
        raise InvalidInputError("flatten has start_dim after end_dim", got=f"{first}, {last}")
    size = math.prod(shape[first:last + 1])
    return reshape(input, (*shape[:first], size, *shape[last + 1:]))


def unflatten(input: Any, dim: int, sizes: Sequence[int]) -> Tensor:
    """An axis as several."""
    shape = as_node(input).sig.out.shape
    at = axis_of(dim, len(shape))
    return reshape(input, (*shape[:at], *sizes, *shape[at + 1:]))


def expand(input: Any, *sizes: Any) -> Tensor:
    """Axes of size 1 repeated, and new leading axes; -1 keeps a size."""
    node = as_node(input)
    shape, wanted = node.sig.out.shape, sizes_of(sizes)
    lead = len(wanted) - len(shape)
    if lead < 0:
        raise InvalidInputError("expand has fewer sizes than axes", got=repr(wanted),
                                expected=f"at least {len(shape)}")
    full = tuple([shape[i - lead] if s == -1 and i >= lead else s for i, s in enumerate(wanted)])
    return wrap(record("broadcast_to", (node,), {"shape": full}))


broadcast_to = expand


def repeat(input: Any, *sizes: Any) -> Tensor:
    """The tensor repeated along its axes, and along new leading axes (NumPy's ``tile``)."""
    return wrap(record("tile", (as_node(input),), {"reps": sizes_of(sizes)}))


tile = repeat


def repeat_interleave(input: Any, repeats: int, dim: int | None = None) -> Tensor:
    """Each element repeated in place."""
    node = as_node(input)
    axis = None if dim is None else axis_of(dim, len(node.sig.out.shape))
    return wrap(record("repeat", (node,), {"repeats": int(repeats), "axis": axis}))


def cat(tensors: Sequence[Any], dim: int = 0) -> Tensor:
    """The tensors joined along an axis."""
    if not tensors:
        raise InvalidInputError("cat needs at least one tensor")
    nodes = operands(*tensors)
    axis = axis_of(dim, len(nodes[0].sig.out.shape))
    return wrap(record("concatenate", nodes, {"axis": axis}))


concat = concatenate = cat


def stack(tensors: Sequence[Any], dim: int = 0) -> Tensor:
    """The tensors, all of one shape, along a new axis."""
    if not tensors:
        raise InvalidInputError("stack needs at least one tensor")
    nodes = operands(*tensors)
    axis = axis_of(dim, len(nodes[0].sig.out.shape) + 1)
    return wrap(record("stack", nodes, {"axis": axis}))


def split(tensor: Any, split_size_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Parts along an axis: of one size (the last may be smaller), or of the sizes given."""
    node = as_node(tensor)
    axis = axis_of(dim, len(node.sig.out.shape))
    size = node.sig.out.shape[axis]
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
    if len(sizes) == 1:
        return (wrap(record("copy", (node,), {})),)
    ends = [sum(sizes[:i]) for i in range(1, len(sizes))]
    return wrap(record("split", (node,), {"indices_or_sections": tuple(ends), "axis": axis}))


def chunk(input: Any, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most ``chunks`` parts of equal size along an axis; the last may be smaller."""
    shape = as_node(input).sig.out.shape
    size = shape[axis_of(dim, len(shape))]
    return split(input, max(1, -(-size // chunks)), dim)


def unbind(input: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """The slices along an axis, without the axis."""
    node = as_node(input)
    axis = axis_of(dim, len(node.sig.out.shape))
    size = node.sig.out.shape[axis]
    if not size:
        return ()
    return tuple([squeeze(part, axis) for part in split(input, 1, axis)])


def flip(input: Any, *dims: Any) -> Tensor:
    """The order of elements reversed along axes."""
    node = as_node(input)
    for axis in axes_of(sizes_of(dims), len(node.sig.out.shape)) or ():
        node = record("reverse", (node,), {"axis": axis})
    return wrap(node)


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


def tril(input: Any, diagonal: int = 0) -> Tensor:
    """The lower triangle of each matrix; zeros elsewhere."""
    return _triangle(input, diagonal, upper=False)


def triu(input: Any, diagonal: int = 0) -> Tensor:
    """The upper triangle of each matrix; zeros elsewhere."""
    return _triangle(input, diagonal, upper=True)


def _triangle(input: Any, diagonal: int, *, upper: bool) -> Tensor:
    nodes = (as_node(input), as_node(int(diagonal)))
    return wrap(record("trilu", nodes, {"upper": upper}))


def masked_fill(input: Any, mask: Any, value: Any) -> Tensor:
    """``value`` where ``mask`` holds."""
    node = as_node(input)
    number = as_node(value, node.sig.out.dtype)
    return wrap(record("where", (as_node(mask), number, node), {}))
