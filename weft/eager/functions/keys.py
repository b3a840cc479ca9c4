"""Keys of ``x[key]``: what slices, integers, ``None``, ``...`` and tensors of indices mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft.eager.cell import Cell, spec_of_cell
from weft.eager.checks import IndexRangeError
from weft.eager.dtypes import bool_
from weft.eager.record import as_node, wrap
from weft.eager.views import Part, Slices
from weft.support.dataclass import dataclass
from weft.support.errors import InvalidInputError

if TYPE_CHECKING:
    from weft.eager.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Key:
    """A key of ``x[key]`` for a tensor of some shape.

    ``slices`` are begin, end and step per axis; ``tensors`` are the axes (after the slices) that
    tensors index; ``kept`` are the axes of the slices that the result has, with ``None`` for a new
    one: those at integers are left out.
    """

    slices: Slices
    tensors: tuple[tuple[int, Any], ...]
    kept: tuple[int | None, ...]
    first: int  # where the axes of index tensors go in the result


def parse_key(key: Any, shape: tuple[int, ...]) -> Key:
    """A key of Python as ``Key``. Raises ``IndexRangeError`` for integers out of range, else
    ``InvalidInputError``.
    """
    parts = _expanded(key if isinstance(key, tuple) else (key,), len(shape))
    slices: list[tuple[int, int, int]] = []
    tensors: list[tuple[int, Any]] = []
    kept: list[int | None] = []
    places: list[int] = []  # of tensors, among them and the axes that are kept
    first = 0
    for part in parts:
        axis = len(slices)
        if part is None:
            kept.append(None)
        elif isinstance(part, slice):
            slices.append(_slice(part, shape[axis]))
            kept.append(axis)
        elif _is_integer(part):
            slices.append(_integer(int(part), axis, shape[axis]))
        else:
            for index in _indices(part, axis, shape):
                if not tensors:
                    first = len(kept)
                places.append(len(kept) + len(tensors))
                tensors.append((len(slices), index))
                slices.append((0, shape[len(slices)], 1))
    if places and places[-1] - places[0] + 1 != len(places):
        first = 0  # the axes of separated index tensors come first
    return Key(tuple(slices), tuple(tensors), tuple(kept), first)


_PARTS: dict[Any, Part] = {}  # by keys and shapes that were seen lately


def part_of(key: Any, shape: tuple[int, ...]) -> Part | None:
    """The view of a key of integers, slices of integers, ``None`` and ``...``; else ``None``."""
    parts = key if key.__class__ is tuple else (key,)
    known = (shape, *[(p.start, p.stop, p.step) if p.__class__ is slice else p for p in parts])
    for part in parts:
        for one in (part.start, part.stop, part.step) if part.__class__ is slice else (part,):
            if one.__class__ is not int and one is not None and one is not Ellipsis:
                return None
    found = _PARTS.get(known)
    if found is None:
        parsed = parse_key(key, shape)
        if len(_PARTS) >= 4096:
            _PARTS.clear()
        found = _PARTS[known] = Part(parsed.slices, parsed.kept)
    return found


def _is_integer(part: Any) -> bool:
    return isinstance(part, (int, np.integer)) and not isinstance(part, (bool, np.bool_))


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
        raise IndexRangeError(f"too many indices: {used} for a tensor of {rank} axes")
    fill = [slice(None)] * (rank - used)
    if dots is None:
        return [*parts, *fill]
    return [*parts[:dots], *fill, *parts[dots + 1:]]


def _axes_taken(part: Any) -> int:
    if isinstance(part, slice) or _is_integer(part):
        return 1
    array: Any = part if hasattr(part, "ndim") else np.asarray(part)
    return array.ndim if array.dtype == bool_ else 1


def without_booleans(key: Any, shape: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
    """A key and a shape where each boolean without axes has become the index of a new axis of size
    1: all of it for true, nothing of it for false.
    """
    parts = key if isinstance(key, tuple) else (key,)
    if not any(map(_is_boolean, parts)):
        return key, shape
    found, sizes = [], list(shape)
    axis = 0
    for part in _expanded(parts, len(shape)):
        if _is_boolean(part):
            found.append(np.zeros(int(bool(part)), np.int64))
            sizes.insert(axis, 1)
            axis += 1
        else:
            found.append(part)
            axis += 0 if part is None else _axes_taken(part)
    return tuple(found), tuple(sizes)


def _is_boolean(part: Any) -> bool:
    if isinstance(part, Cell):
        spec = spec_of_cell(part)
        return spec.dtype is bool_ and not spec.shape
    return isinstance(part, (bool, np.bool_)) or (
        isinstance(part, np.ndarray) and not part.ndim and part.dtype == np.bool_)


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
        raise IndexRangeError(f"index {index} is out of range for axis {axis} of size {size}")
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
        check_mask(tensor, axis, shape)
        return [wrap(as_node(np.ascontiguousarray(i))) for i in np.nonzero(tensor.cpu().numpy())]
    if d.rank > 1:
        raise InvalidInputError("an index is a tensor of floats", got=repr(d),
                                expected="integers or booleans")
    check_range(tensor, shape[axis], axis)
    return [tensor]


def check_mask(mask: Any, axis: int, shape: tuple[int, ...]) -> None:
    wanted = shape[axis:axis + mask.ndim]
    if mask.shape != wanted:
        raise IndexRangeError(f"a mask of shape {tuple(mask.shape)} does not fit axes of {wanted}")


def check_range(index: Tensor, size: int, axis: int) -> None:
    """Raise ``IndexRangeError`` for known indices out of range; operators clamp or drop those."""
    value = as_node(index).value
    if isinstance(value, np.ndarray) and value.size:
        low, high = int(value.min()), int(value.max())
        if low < -size or high >= size:
            wrong = low if low < -size else high
            raise IndexRangeError(f"index {wrong} is out of range for axis {axis} of size {size}")
