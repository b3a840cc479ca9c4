"""Indexing: parts of tensors, by slices, integers, masks and tensors of indices.

``x[key]`` follows NumPy's rules. A key becomes a few operators of the catalogue: slices are one
``strided_slice``, tensors of indices one ``gather_nd`` over flat positions along their axes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft.eager.axes import axis_of
from weft.eager.cell import MODE, Cell, node_of
from weft.eager.checks import in_range
from weft.eager.dtypes import bool_, int64
from weft.eager.functions.elementwise import add, cast, is_one, lt, mul, where
from weft.eager.functions.shape import expand, permute, reshape, squeeze
from weft.eager.node import Node, value_node
from weft.eager.record import as_node, record, wrap
from weft.support.dataclass import dataclass
from weft.support.errors import InvalidInputError

if TYPE_CHECKING:
    from weft.eager.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Key:
    """A key of ``x[key]`` for a tensor of some shape.

    ``slices`` are begin, end and step per axis; ``tensors`` are the axes (after the slices) that
    tensors index; ``shape`` is the result of the slices, with size 1 at integers; ``kept`` maps
    its axes to those of the result: a number, or ``None`` for a new axis.
    """

    slices: tuple[tuple[int, int, int], ...]
    tensors: tuple[tuple[int, Any], ...]
    kept: tuple[int | None, ...]
    first: int  # where the axes of index tensors go in the result


def parse_key(key: Any, shape: tuple[int, ...]) -> Key:
    """A key of Python as ``Key``. Raises ``IndexError`` for integers out of range, else
    ``InvalidInputError``.
    """
    parts = _expanded(key if isinstance(key, tuple) else (key,), len(shape))
    slices: list[tuple[int, int, int]] = []
    tensors: list[tuple[int, Any]] = []
    kept: list[int | None] = []
    at: list[int] = []  # positions of tensors in the key
    first = 0
    for position, part in enumerate(parts):
        axis = len(slices)
        if part is None:
            kept.append(None)
        elif isinstance(part, slice):
            slices.append(_slice(part, shape[axis]))
            kept.append(axis)
        elif isinstance(part, (int, np.integer)) and not isinstance(part, (bool, np.bool_)):
            slices.append(_integer(int(part), axis, shape[axis]))
        else:
            for index in _indices(part, axis, shape):
                if not tensors:
                    first = len(kept)
                tensors.append((len(slices), index))
                slices.append((0, shape[len(slices)], 1))
            at.append(position)
    if at and at[-1] - at[0] + 1 != len(at):
        first = 0  # NumPy puts the axes of separated index tensors first
    return Key(tuple(slices), tuple(tensors), tuple(kept), first)


def _expanded(parts: tuple[Any, ...], rank: int) -> list[Any]:
    """The key with full slices for ``...`` and for missing axes."""
    used = 0
    dots = None
    for i, part in enumerate(parts):
        if part is Ellipsis:
            if dots is not None:
                raise InvalidInputError("an index has several ellipses")
            dots = i
        elif part is not None:
            used += _axes_taken(part)
    if used > rank:
        raise IndexError(f"too many indices: {used} for a tensor of {rank} axes")
    fill = [slice(None)] * (rank - used)
    if dots is None:
        return [*parts, *fill]
    return [*parts[:dots], *fill, *parts[dots + 1:]]


def _axes_taken(part: Any) -> int:
    if isinstance(part, (slice, int, np.integer)) and not isinstance(part, bool):
        return 1
    array: Any = part if hasattr(part, "ndim") else np.asarray(part)
    return array.ndim if array.dtype == bool_ else 1


def _slice(part: slice, size: int) -> tuple[int, int, int]:
    try:
        part = slice(*[None if v is None else int(v) for v in (part.start, part.stop, part.step)])
        start, stop, step = part.indices(size)
    except (TypeError, ValueError) as error:
        raise InvalidInputError("a slice cannot be used", got=f"{part}: {error}") from None
    count = len(range(start, stop, step))
    if step < 0:
        # The end that strided_slice counts from the end of the axis is one before the start.
        return (start, start + count * step, step) if count else (0, 0, 1)
    return start, start + count * step if count else start, step


def _integer(index: int, axis: int, size: int) -> tuple[int, int, int]:
    if not -size <= index < size:
        raise IndexError(f"index {index} is out of range for axis {axis} of size {size}")
    return index % size, index % size + 1, 1


def _indices(part: Any, axis: int, shape: tuple[int, ...]) -> list[Any]:
    """Tensors of indices, one per axis that the part of a key indexes."""
    tensor: Any
    if isinstance(part, Cell):
        tensor = part
    else:
        array = np.asarray(part)
        tensor = wrap(as_node(array if array.size else array.astype(np.int64)))
    d = tensor.dtype
    if d == bool_:
        _check_mask(tensor, axis, shape)
        return [wrap(as_node(np.ascontiguousarray(i))) for i in np.nonzero(tensor.numpy())]
    if d.is_floating_point:
        raise InvalidInputError("an index is a tensor of floats", got=repr(d),
                                expected="integers or booleans")
    check_range(tensor, shape[axis], axis)
    return [tensor]


def _check_mask(mask: Any, axis: int, shape: tuple[int, ...]) -> None:
    wanted = shape[axis:axis + mask.ndim]
    if mask.shape != wanted:
        raise IndexError(f"a mask of shape {tuple(mask.shape)} does not fit axes of {wanted}")


def checked(tensor: Tensor, index: Tensor, size: int, axis: int) -> Tensor:
    """``tensor``, recorded with ``index``, with the check of an index that is not known yet."""
    at = as_node(index)
    if at.value is None:
        node_of(tensor).check = in_range(at, size, axis)
    return tensor


def check_range(index: Tensor, size: int, axis: int) -> None:
    """Raise ``IndexError`` for known indices out of range; operators clamp or drop those."""
    value = as_node(index).value
    if isinstance(value, np.ndarray) and value.size:
        low, high = int(value.min()), int(value.max())
        if low < -size or high >= size:
            wrong = low if low < -size else high
            raise IndexError(f"index {wrong} is out of range for axis {axis} of size {size}")


def is_basic(key: Any) -> bool:
    """Whether a key has slices, integers, ``None`` and ``...`` only, so that torch gives a view."""
    parts = key if isinstance(key, tuple) else (key,)
    return all(part is None or part is Ellipsis or (isinstance(part, (slice, int, np.integer))
               and not isinstance(part, bool)) for part in parts)


def getitem(x: Any, key: Any) -> Tensor:
    """``x[key]``."""
    node = as_node(x)
    if node.grad is None and MODE.trace is None and isinstance(node.value, np.ndarray):
        known = _known_key(key)
        if known is not None:
            return _of_array(node, known)
    parsed = parse_key(key, node.sig.out.shape)
    node = _sliced(node, parsed)
    if not parsed.tensors:
        return _arranged(wrap(node), parsed.kept)
    return _gathered(node, parsed)


def _known_key(key: Any) -> Any:
    """A key with arrays for its tensors; ``None`` if the value of one is not known yet."""
    if isinstance(key, tuple):
        parts = [_known_key(part) for part in key]
        return None if any(p is None and k is not None for p, k in zip(parts, key, strict=True)) \
            else tuple(parts)
    if isinstance(key, Cell):
        value = node_of(key).value
        return value if isinstance(value, np.ndarray) else None
    return np.newaxis if key is None else key


def _of_array(node: Node, key: Any) -> Tensor:
    """A part of a known array, so that programs take a batch of any position as an input."""
    try:
        part = node.value[key if key is not None else np.newaxis]
    except IndexError as error:
        raise IndexError(str(error)) from None
    return wrap(value_node(np.array(part, order="C"), node.sig.out.dtype))


def _sliced(node: Node, key: Key) -> Node:
    """The slices of a key applied, with size 1 at integers."""
    axes = [a for a, (begin, end, step) in enumerate(key.slices)
            if (begin, end, step) != (0, node.sig.out.shape[a], 1)]
    if not axes:
        return node
    shape = node.sig.out.shape
    ends = [_end(key.slices[a], shape[a]) for a in axes]
    return record("strided_slice", (node,), {
        "begin": tuple([key.slices[a][0] for a in axes]), "end": tuple(ends),
        "strides": tuple([key.slices[a][2] for a in axes]), "axes": tuple(axes)})


def _end(one: tuple[int, int, int], size: int) -> int:
    """The end of a slice; before the first element for one that runs back to it."""
    return one[1] if one[1] >= 0 else -size - 1


def _arranged(x: Tensor, kept: tuple[int | None, ...]) -> Tensor:
    """Axes at integers removed, and new ones added."""
    shape = tuple([1 if axis is None else x.shape[axis] for axis in kept])
    return reshape(x, shape)


def _lines(shape: tuple[int, ...], key: Key) -> tuple[list[Any], tuple[int, ...]]:
    """Index tensors, broadcast together and counted from the start, and their shape."""
    tensors = [wrap(as_node(i)) for _, i in key.tensors]
    try:
        common = np.broadcast_shapes(*[tuple(t.shape) for t in tensors])
    except ValueError:
        raise IndexError("index tensors do not broadcast: "
                         f"{[tuple(t.shape) for t in tensors]}") from None
    found = []
    for (axis, _), given in zip(key.tensors, tensors, strict=True):
        t = given.to(int64)
        t = where(lt(t, 0), add(t, shape[axis]), t)
        found.append(expand(t, common) if tuple(t.shape) != common else t)
    return found, common


def _gathered(node: Node, key: Key) -> Tensor:
    """The axes of index tensors moved first, gathered, and moved to their place."""
    shape = node.sig.out.shape
    indexed = [axis for axis, _ in key.tensors]
    lines, common = _lines(shape, key)
    if len(indexed) == 1:
        x = wrap(record("take", (node, as_node(lines[0])), {"axis": indexed[0]}))
        order_first = indexed[0]
    else:
        rest = [a for a in range(len(shape)) if a not in indexed]
        front = as_node(permute(wrap(node), (*indexed, *rest)))
        stacked = record("stack", tuple(map(as_node, lines)), {"axis": 0})
        x = wrap(record("gather_nd", (front, stacked), {}))
        order_first = 0
    for axis, index in key.tensors:
        checked(x, index, shape[axis], axis)
    return _placed(x, key, shape, common, order_first)


def _placed(x: Tensor, key: Key, shape: tuple[int, ...], common: tuple[int, ...], at: int
            ) -> Tensor:
    """The gathered axes, at ``at`` in ``x``, moved to where NumPy has them."""
    indexed = [axis for axis, _ in key.tensors]
    count = len(common)
    rest = [a for a in range(len(shape)) if a not in indexed]
    position = {a: i if i < at else i + count for i, a in enumerate(rest)}
    kept = list(key.kept)
    order = [position[a] for a in kept[:key.first] if a is not None]
    order += range(at, at + count)
    order += [position[a] for a in kept[key.first:] if a is not None]
    order += [position[a] for a in rest if a not in kept]  # at integers, of size 1
    x = permute(x, tuple(order)) if order != sorted(order) else x
    sizes = [1 if a is None else shape[a] for a in kept]
    return reshape(x, (*sizes[:key.first], *common, *sizes[key.first:]))


def setitem(x: Any, key: Any, value: Any) -> Tensor:
    """``x`` after ``x[key] = value``."""
    node = as_node(x)
    shape, d = node.sig.out.shape, node.sig.out.dtype
    given = cast(as_node(value, d), d)
    if isinstance(key, Cell) and as_node(key).sig.out.dtype is bool_ \
            and not given.sig.out.shape:
        return _set_masked(node, key, given)
    parsed = parse_key(key, shape)
    if not parsed.tensors:
        return _set_slices(node, parsed, given)
    return _set_positions(node, key, given)


def _set_masked(node: Node, mask: Any, number: Node) -> Tensor:
    """A number where a mask holds, without looking at the mask."""
    shape = node.sig.out.shape
    _check_mask(mask, 0, shape)
    whole = reshape(mask, (*mask.shape, *(1,) * (len(shape) - mask.ndim)))
    return wrap(record("where", (as_node(whole), number, node), {}))


def _set_slices(node: Node, key: Key, value: Node) -> Tensor:
    """Assignment to slices: for every axis, which positions are written and from where.

    Both are data, so that another position in the next iteration runs the same program.
    """
    shape = node.sig.out.shape
    counts = [len(range(*one)) for one in key.slices]
    if all((b, e, s) == (0, size, 1) for (b, e, s), size in zip(key.slices, shape, strict=True)):
        return _broadcast(value, shape, key)
    if 0 in counts:
        return wrap(node)
    whole = as_node(_placed_in(value, tuple(counts), key))
    mask: Any = None
    for axis, (one, size) in enumerate(zip(key.slices, shape, strict=True)):
        if one == (0, size, 1):
            continue
        at = np.zeros(size, np.int64)
        written = np.zeros([size if a == axis else 1 for a in range(len(shape))], np.bool_)
        at[slice_of(one)] = np.arange(counts[axis])
        written.reshape(-1)[slice_of(one)] = True
        if whole.sig.out.shape[axis] != 1:
            whole = record("take", (whole, as_node(at)), {"axis": axis})
        here = as_node(written)
        mask = here if mask is None else record("logical_and", (mask, here), {})
    return wrap(record("where", (mask, whole, node), {}))


def slice_of(one: tuple[int, int, int]) -> slice:
    """A slice of Python from begin, end and step; an end before the first element is ``None``."""
    return slice(one[0], one[1] if one[1] >= 0 else None, one[2])


def _broadcast(value: Node, sizes: tuple[int, ...], key: Key) -> Tensor:
    """A value in the shape of the slices of a key."""
    x = _placed_in(value, sizes, key)
    return expand(x, sizes) if tuple(x.shape) != sizes else x


def _placed_in(value: Node, sizes: tuple[int, ...], key: Key) -> Tensor:
    """A value with an axis for each of the tensor: of the size of the slice, or 1."""
    result = tuple([1 if a is None else sizes[a] for a in key.kept])
    x = wrap(value)
    while x.ndim > len(result) and x.shape[0] == 1:
        x = squeeze(x, 0)
    lead = len(result) - x.ndim
    if lead < 0 or any(s not in (1, r) for s, r in zip(x.shape, result[lead:], strict=True)):
        raise InvalidInputError("a value does not fit the part that is assigned to",
                                expected=f"a shape that broadcasts to {result}",
                                got=str(value.sig.out.shape))
    have = dict(zip(key.kept[lead:], x.shape, strict=True)) if lead >= 0 else {}
    return reshape(x, tuple([have.get(a, 1) for a in range(len(sizes))]))


def _set_positions(node: Node, key: Any, value: Node) -> Tensor:
    """Assignment at index tensors, at the flat positions that the key takes of ``arange``."""
    shape = node.sig.out.shape
    count = int(np.prod(shape))
    attrs = {"start": 0, "stop": count, "dtype": int64.ir}
    positions = reshape(wrap(record("arange", (), attrs)), shape)
    chosen = getitem(positions, key)
    values = expand(wrap(value), chosen.shape) if tuple(chosen.shape) != value.sig.out.shape \
        else wrap(value)
    flat = record("reshape", (node,), {"newshape": (-1,)})
    nodes = (flat, as_node(reshape(chosen, -1)), as_node(reshape(values, -1)))
    written = wrap(record("scatter_elements", nodes, {"axis": 0}))
    return reshape(written, shape)


def gather(input: Any, dim: int, index: Any) -> Tensor:
    """The element at each index, which replaces the index along one axis."""
    node = as_node(input)
    axis = axis_of(dim, len(node.sig.out.shape))
    check_range(index, node.sig.out.shape[axis] if node.sig.out.shape else 1, axis)
    found = wrap(record("gather", (node, as_node(index)), {"axis": axis}))
    return checked(found, index, node.sig.out.shape[axis] if node.sig.out.shape else 1, axis)


def take_along_dim(input: Any, indices: Any, dim: int) -> Tensor:
    """``gather`` with torch's other order of arguments."""
    return gather(input, dim, indices)


def take(input: Any, index: Any) -> Tensor:
    """The elements of the flattened tensor at these positions."""
    return getitem(reshape(input, -1), index)


def index_select(input: Any, dim: int, index: Any) -> Tensor:
    """The slices at these indices along an axis."""
    node = as_node(input)
    axis = axis_of(dim, len(node.sig.out.shape))
    check_range(index, node.sig.out.shape[axis], axis)
    found = wrap(record("take", (node, as_node(index)), {"axis": axis}))
    return checked(found, index, node.sig.out.shape[axis], axis)


def select(input: Any, dim: int, index: int) -> Tensor:
    """One slice along an axis, without the axis."""
    axis = axis_of(dim, input.ndim)
    return getitem(input, (*(slice(None),) * axis, index))


def narrow(input: Any, dim: int, start: int, length: int) -> Tensor:
    """The slices from ``start`` along an axis."""
    axis = axis_of(dim, input.ndim)
    return getitem(input, (*(slice(None),) * axis, slice(start, start + length)))


def masked_select(input: Any, mask: Any) -> Tensor:
    """The elements where ``mask`` holds, in one axis. The mask is looked at."""
    x, m = operands_of(input, mask)
    return getitem(x, m)


def operands_of(input: Any, mask: Any) -> tuple[Any, Any]:
    """Both broadcast to their common shape."""
    common = np.broadcast_shapes(tuple(input.shape), tuple(mask.shape))
    return expand(input, common), expand(mask, common)


def nonzero(input: Any, *, as_tuple: bool = False) -> Any:
    """The indices of elements that are not zero, one per row. The tensor is looked at."""
    found = [np.ascontiguousarray(i) for i in np.nonzero(wrap(as_node(input)).numpy())]
    if as_tuple:
        return tuple([wrap(as_node(i)) for i in found])
    return wrap(as_node(np.stack(found, axis=1) if found else np.zeros((0, 0), np.int64)))


def scatter(input: Any, dim: int, index: Any, src: Any) -> Tensor:
    """``input`` with elements of ``src`` written to the index along one axis."""
    return _scattered(input, dim, index, src, "update")


def scatter_add(input: Any, dim: int, index: Any, src: Any) -> Tensor:
    """``input`` with elements of ``src`` added at the index along one axis."""
    return _scattered(input, dim, index, src, "add")


def _scattered(input: Any, dim: int, index: Any, src: Any, reduction: str) -> Tensor:
    node, at = as_node(input), as_node(index)
    axis = axis_of(dim, len(node.sig.out.shape))
    check_range(index, node.sig.out.shape[axis], axis)
    updates = cast(as_node(src, node.sig.out.dtype), node.sig.out.dtype)
    if updates.sig.out.shape != at.sig.out.shape:
        whole = wrap(updates)
        updates = as_node(expand(whole, at.sig.out.shape) if not updates.sig.out.shape else
                          getitem(whole, tuple([slice(0, s) for s in at.sig.out.shape])))
    found = wrap(record("scatter_elements", (node, at, updates),
                        {"axis": axis, "reduction": reduction}))
    return checked(found, index, node.sig.out.shape[axis], axis)


def index_add(input: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Tensor:
    """``input`` with slices of ``source`` added at the indices along an axis."""
    axis = axis_of(dim, input.ndim)
    source = source if is_one(alpha) else mul(source, alpha)
    shape = [1] * input.ndim
    shape[axis] = -1
    return scatter_add(input, axis, expand(reshape(index, shape), source.shape), source)


def index_fill(input: Any, dim: int, index: Any, value: Any) -> Tensor:
    """``input`` with ``value`` at the indices along an axis."""
    axis = axis_of(dim, input.ndim)
    return setitem(input, (*(slice(None),) * axis, index), value)


def diagonal(input: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The diagonal of the matrices of two axes, as the last axis."""
    shape = tuple(input.shape)
    a, b = axis_of(dim1, len(shape)), axis_of(dim2, len(shape))
    rows, columns = shape[a], shape[b]
    count = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
    at = np.arange(count)
    rest = [i for i in range(len(shape)) if i not in (a, b)]
    x = permute(input, (*rest, a, b))
    return getitem(x, (Ellipsis, at - min(offset, 0), at + max(offset, 0)))


_diagonal = diagonal


def diag(input: Any, diagonal: int = 0) -> Tensor:
    """The diagonal of a matrix, or the matrix with a vector on its diagonal."""
    if input.ndim == 2:
        return _diagonal(input, diagonal)
    size = input.shape[0] + abs(diagonal)
    zeros = wrap(record("zeros", (), {"shape": (size, size), "dtype": input.dtype.ir}))
    at = np.arange(input.shape[0])
    return setitem(zeros, (at - min(diagonal, 0), at + max(diagonal, 0)), input)

