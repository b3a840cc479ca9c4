"""Indexing: parts of tensors, by slices, integers, masks and tensors of indices.

``x[key]`` follows torch's rules, whether ``x`` is computed already or not. A key becomes a few
operators of the catalogue: slices are one ``strided_slice``, tensors of indices one ``gather_nd``
over flat positions along their axes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.eager.axes import axis_of
from weft.eager.cell import MODE, Cell, node_of
from weft.eager.checks import IndexRangeError, in_range
from weft.eager.device import on_host
from weft.eager.dtypes import bool_, int64
from weft.eager.evaluate import value_of
from weft.eager.functions.elementwise import add, cast, lt, where
from weft.eager.functions.keys import (
    Key,
    check_mask,
    parse_key,
    part_of,
    without_booleans,
)
from weft.eager.functions.shape import expand, layout_of, reshape, viewed
from weft.eager.node import Node, Spec, unpaired, value_node
from weft.eager.placement import beside, moved
from weft.eager.record import as_node, record, wrap
from weft.eager.signature import checked
from weft.eager.views import (
    Diagonal,
    Part,
    Strided,
    Unfold,
    counts_of,
    permuted,
    reshaped,
    slice_of,
    sliced,
    written,
)
from weft.support.errors import InvalidInputError

if TYPE_CHECKING:
    from weft.eager.tensor import Tensor


def in_bounds(tensor: Tensor, index: Tensor, size: int, axis: int) -> Tensor:
    """``tensor``, recorded with ``index``, with the check of an index that is not known yet."""
    check_index(node_of(tensor), index, size, axis)
    return tensor


def check_index(node: Node, index: Any, size: int, axis: int) -> None:
    """Let a node check an index that is not known yet."""
    at = as_node(index)
    if at.value is None:
        node.check = in_range(at, size, axis)


def getitem(x: Any, key: Any) -> Tensor:
    """``x[key]``: a view for slices, integers, ``None`` and ``...``, else a copy."""
    node = as_node(x)
    part = part_of(key, node.sig.out.shape)
    if part is not None:
        return viewed(x, part)
    key, shape = without_booleans(key, node.sig.out.shape)
    parsed = parse_key(key, shape)
    if not parsed.tensors:
        return viewed(x, Part(parsed.slices, parsed.kept))
    node = reshaped(node, shape)
    if node.grad is None and MODE.trace is None and isinstance(node.value, np.ndarray):
        indices = [as_node(index).value for _, index in parsed.tensors]
        if all(isinstance(index, np.ndarray) for index in indices):
            return _of_array(node, parsed, indices)
    return _gathered(sliced(node, parsed.slices), parsed)


def _of_array(node: Node, key: Key, indices: Sequence[np.ndarray]) -> Tensor:
    """Elements of a known array, so that programs take a batch of any position as an input."""
    value: Any = node.value
    value = unpaired(value) if node.sig.out.dtype.is_complex else value
    array = value[(*map(slice_of, key.slices), ...)]
    axes = [axis for axis, _ in key.tensors]
    rest = [axis for axis in range(array.ndim) if axis not in axes]
    try:
        found = array.transpose(*axes, *rest)[tuple(indices)]
    except IndexError as error:
        raise IndexRangeError(str(error)) from None
    common = found.shape[:found.ndim - len(rest)]
    order, shape = _placed(key, array.shape, common, 0)
    found = np.array(found.transpose(order).reshape(shape), order="C")
    return wrap(value_node(found, node.sig.out.dtype))


def _lines(spec: Spec, key: Key) -> tuple[list[Any], tuple[int, ...]]:
    """Index tensors on the tensor's device, broadcast together and counted from 0; their shape."""
    shape = spec.shape
    tensors = [wrap(moved(as_node(i), spec.device)) for _, i in key.tensors]
    try:
        common = np.broadcast_shapes(*[tuple(t.shape) for t in tensors])
    except ValueError:
        raise IndexRangeError("index tensors do not broadcast: "
                              f"{[tuple(t.shape) for t in tensors]}") from None
    found = []
    for (axis, _), given in zip(key.tensors, tensors, strict=True):
        t = given.to(int64)
        t = where(lt(t, 0), add(t, shape[axis]), t)
        found.append(expand(t, common) if tuple(t.shape) != common else t)
    return found, common


def _gathered(node: Node, key: Key) -> Tensor:
    """The elements at index tensors, with their axes where torch has them."""
    shape = node.sig.out.shape
    indexed = [axis for axis, _ in key.tensors]
    lines, common = _lines(node.sig.out, key)
    if len(indexed) == 1:
        at = indexed[0]
        found = record("take", (node, as_node(lines[0])), {"axis": at})
    else:
        rest = [a for a in range(len(shape)) if a not in indexed]
        at = 0
        stacked = record("stack", tuple(map(as_node, lines)), {"axis": 0})
        found = record("gather_nd", (permuted(node, (*indexed, *rest)), stacked), {})
    for axis, index in key.tensors:
        check_index(found, index, shape[axis], axis)
    order, sizes = _placed(key, shape, common, at)
    return wrap(reshaped(permuted(found, order), sizes))


def _placed(key: Key, shape: tuple[int, ...], common: tuple[int, ...], at: int
            ) -> tuple[list[int], tuple[int, ...]]:
    """How the axes of what was gathered, which are at ``at``, go to where torch has them: an order
    of axes, and the shape of the result.
    """
    indexed = [axis for axis, _ in key.tensors]
    count = len(common)
    rest = [a for a in range(len(shape)) if a not in indexed]
    position = {a: i if i < at else i + count for i, a in enumerate(rest)}
    kept = key.kept
    order = [position[a] for a in kept[:key.first] if a is not None]
    order += range(at, at + count)
    order += [position[a] for a in kept[key.first:] if a is not None]
    order += [position[a] for a in rest if a not in kept]  # at integers, of size 1
    sizes = [1 if a is None else shape[a] for a in kept]
    return order, (*sizes[:key.first], *common, *sizes[key.first:])


def setitem(x: Any, key: Any, value: Any, reduction: str = "update") -> Node:
    """``x`` after ``x[key] = value``; index tensors may add values to what is there."""
    node = as_node(x)
    shape, d = node.sig.out.shape, node.sig.out.dtype
    given = moved(cast(as_node(value, d), d), node.sig.out.device)
    if isinstance(key, Cell) and as_node(key).sig.out.dtype is bool_ \
            and not given.sig.out.shape and reduction == "update":
        return _set_masked(node, key, given)
    key, inner = without_booleans(key, shape)
    parsed = parse_key(key, inner)
    if parsed.tensors:
        return reshaped(_set_positions(reshaped(node, inner), key, given, reduction), shape)
    part = _fitted(given, counts_of(parsed.slices), parsed)
    return written(node, parsed.slices, part)


def _set_masked(node: Node, mask: Any, number: Node) -> Node:
    """A number where a mask holds, without looking at the mask."""
    shape = node.sig.out.shape
    check_mask(mask, 0, shape)
    there = moved(as_node(mask), node.sig.out.device)
    whole = reshaped(there, (*mask.shape, *(1,) * (len(shape) - mask.ndim)))
    return record("where", (whole, number, node), {})


def _fitted(value: Node, sizes: tuple[int, ...], key: Key) -> Node:
    """A value with an axis for each of the tensor: of the size of the slice, or 1."""
    result = tuple([1 if a is None else sizes[a] for a in key.kept])
    shape = value.sig.out.shape
    while len(shape) > len(result) and shape[0] == 1:
        shape = shape[1:]
    lead = len(result) - len(shape)
    if lead < 0 or any(s not in (1, r) for s, r in zip(shape, result[lead:], strict=True)):
        raise InvalidInputError("a value does not fit the part that is assigned to",
                                expected=f"a shape that broadcasts to {result}",
                                got=str(value.sig.out.shape))
    have = dict(zip(key.kept[lead:], shape, strict=True))
    return reshaped(value, tuple([have.get(a, 1) for a in range(len(sizes))]))


def _set_positions(node: Node, key: Any, value: Node, reduction: str) -> Node:
    """Assignment at index tensors, at the flat positions that the key takes of ``arange``."""
    shape = node.sig.out.shape
    count = int(np.prod(shape))
    attrs = {"start": 0, "stop": count, "dtype": int64.ir}
    positions = reshaped(beside(record("arange", (), attrs), node.sig.out.device), shape)
    chosen = getitem(wrap(positions), key)
    values = value if tuple(chosen.shape) == value.sig.out.shape \
        else as_node(expand(wrap(_trimmed(value, chosen.ndim)), chosen.shape))
    flat = reshaped(node, (count,))
    nodes = (flat, reshaped(as_node(chosen), (chosen.numel(),)),
             reshaped(values, (chosen.numel(),)))
    attrs = {"axis": 0} if reduction == "update" else {"axis": 0, "reduction": reduction}
    return reshaped(record("scatter_elements", nodes, attrs), shape)


def _trimmed(value: Node, rank: int) -> Node:
    """A value without leading axes of size 1 that a part does not have."""
    shape = value.sig.out.shape
    while len(shape) > rank and shape[0] == 1:
        shape = shape[1:]
    return reshaped(value, shape)


@checked
def take(input: Any, index: Any) -> Tensor:
    """The elements of the flattened tensor at these positions."""
    return getitem(reshape(input, -1), index)


@checked
def select(input: Any, dim: int, index: int) -> Tensor:
    """One slice along an axis, without the axis."""
    axis = axis_of(dim, input.ndim)
    return getitem(input, (*(slice(None),) * axis, index))


@checked
def narrow(input: Any, dim: int, start: int, length: int) -> Tensor:
    """The slices from ``start`` along an axis."""
    axis = axis_of(dim, input.ndim)
    return getitem(input, (*(slice(None),) * axis, slice(start, start + length)))


@checked
def masked_select(input: Any, mask: Any) -> Tensor:
    """The elements where ``mask`` holds, in one axis. The mask is looked at."""
    x, m = operands_of(input, mask)
    return getitem(x, m)


def operands_of(input: Any, mask: Any) -> tuple[Any, Any]:
    """Both broadcast to their common shape."""
    common = np.broadcast_shapes(tuple(input.shape), tuple(mask.shape))
    return expand(input, common), expand(mask, common)


@checked
def nonzero(input: Any, *, as_tuple: bool = False) -> Any:
    """The indices of elements that are not zero, one per row. The tensor is looked at."""
    node = as_node(input)
    place = node.sig.out.device
    array = on_host(value_of(node), place)
    array = unpaired(array) if node.sig.out.dtype.is_complex else array
    if not np.ndim(array):
        if as_tuple:
            return nonzero(reshape(input, 1), as_tuple=True)
        return wrap(moved(as_node(np.zeros((int(bool(array)), 0), np.int64)), place))
    found = [np.ascontiguousarray(i) for i in np.nonzero(array)]
    if as_tuple:
        return tuple([wrap(moved(as_node(i), place)) for i in found])
    return wrap(moved(as_node(np.stack(found, axis=1)), place))


@checked
def argwhere(input: Any) -> Tensor:
    """The indices of elements that are not zero, one per row. The tensor is looked at."""
    return nonzero(input)


@checked
def nonzero_static(input: Any, *, size: int, fill_value: int = -1) -> Tensor:
    """``nonzero`` with so many rows: the first ones, or more of ``fill_value``."""
    rows_of = nonzero(input)
    found = rows_of.cpu().numpy()
    rows = np.full((size, found.shape[1]), fill_value, np.int64)
    rows[:len(found)] = found[:size]
    return wrap(moved(as_node(rows), rows_of.device))


@checked
def diagonal(input: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The diagonal of the matrices of two axes, as the last axis: a view."""
    rank = len(as_node(input).sig.out.shape)
    a, b = axis_of(dim1, rank), axis_of(dim2, rank)
    if a == b:
        raise InvalidInputError("diagonal needs two different axes", got=f"{dim1}, {dim2}")
    return viewed(input, Diagonal(offset, a, b))


@checked
def unfold(input: Any, dimension: int, size: int, step: int) -> Tensor:
    """Windows of an axis, ``step`` apart, with their elements as the last axis: a view."""
    shape = as_node(input).sig.out.shape
    if not shape:
        return narrow(reshape(input, 1), axis_of(dimension, 1), 0, min(size, 1))
    axis = axis_of(dimension, len(shape))
    if not 0 <= size <= shape[axis] or step <= 0:
        raise InvalidInputError("windows do not fit the axis", got=f"size {size}, step {step}",
                                expected=f"a size up to {shape[axis]} and a positive step")
    return viewed(input, Unfold(axis, size, step))


@checked
def as_strided(input: Any, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """A view of elements at these strides in memory; the offset is by default that of ``input``."""
    x: Any = input if isinstance(input, Cell) else wrap(as_node(input))
    own, sizes, strides = layout_of(x), tuple(size), tuple(stride)
    begin = own.offset if storage_offset is None else storage_offset
    last = begin + sum([(n - 1) * step for n, step in zip(sizes, strides, strict=True)])
    inside = own.is_contiguous and own.offset <= begin and last < own.offset + math.prod(own.shape)
    if not inside:  # it is a part of the base alone
        while x._view is not None:  # noqa: SLF001 - of this package
            x = x._view.base  # noqa: SLF001
    start = begin - layout_of(x).offset
    if min(start, 0, *strides) < 0 or (0 not in sizes and last >= begin - start + x.numel()):
        raise InvalidInputError("as_strided: elements are outside of the memory of the tensor",
                                got=f"sizes {sizes}, strides {strides}, offset {begin}",
                                expected=f"positions 0 to {x.numel() - 1}")
    return viewed(x, Strided(sizes, strides, start))


_diagonal = diagonal


@checked
def diag(input: Any, diagonal: int = 0) -> Tensor:
    """The diagonal of a matrix, or the matrix with a vector on its diagonal."""
    if input.ndim == 2:
        return _diagonal(input, diagonal).clone()
    size = input.shape[0] + abs(diagonal)
    zeros = wrap(record("zeros", (), {"shape": (size, size), "dtype": input.dtype.ir}))
    at = np.arange(input.shape[0])
    return wrap(setitem(zeros, (at - min(diagonal, 0), at + max(diagonal, 0)), input))
