"""The operations of views: parts by slices, axes in another order, other shapes, repeated axes.

Each gives the part of a node, the node with another part, and where the elements of the part are.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.eager.cell import MODE
from weft.eager.checks import known
from weft.eager.complex_pairs import as_complex, as_pair
from weft.eager.dtypes import dtype
from weft.eager.node import Node, unpaired, value_node
from weft.eager.record import as_node, record
from weft.eager.storage import Layout, ViewOp, row_major
from weft.support.dataclass import dataclass
from weft.support.errors import InternalError, InvalidInputError

Slices = tuple[tuple[int, int, int], ...]  # begin, end and step of each axis


@dataclass(frozen=True, slots=True)
class Part(ViewOp):
    """The slices of a key: ``kept`` are the axes of the result, ``None`` for a new one of size 1;
    axes left out are indexed by an integer.
    """

    slices: Slices
    kept: tuple[int | None, ...]

    def apply(self, node: Node) -> Node:
        counts = counts_of(self.slices)
        shape = tuple([1 if axis is None else counts[axis] for axis in self.kept])
        if node.grad is None and MODE.trace is None and isinstance(node.value, np.ndarray):
            # By NumPy, so that programs take a batch of any position as an input.
            value = unpaired(node.value) if node.sig.out.dtype.is_complex else node.value
            part = value[(*map(slice_of, self.slices), ...)]
            whole = part.size == value.size and part.flags.c_contiguous
            part = part if whole else np.array(part, order="C")
            return value_node(part.reshape(shape), node.sig.out.dtype)
        return reshaped(sliced(node, self.slices), shape)

    def write(self, whole: Node, part: Node) -> Node:
        return written(whole, self.slices, reshaped(part, counts_of(self.slices)))

    def layout(self, layout: Layout) -> Layout:
        counts = counts_of(self.slices)
        offset = layout.offset + sum(begin * stride for (begin, _, _), stride, count in zip(
            self.slices, layout.strides, counts, strict=True) if count)
        sizes: list[int] = []
        strides: list[int] = []
        for axis in reversed(self.kept):
            if axis is None:  # as wide as the axis after it
                strides.append(sizes[-1] * strides[-1] if sizes else 1)
                sizes.append(1)
            else:
                strides.append(layout.strides[axis] * self.slices[axis][2])
                sizes.append(counts[axis])
        return Layout(tuple(sizes[::-1]), tuple(strides[::-1]), offset)


@dataclass(frozen=True, slots=True)
class Permute(ViewOp):
    """Axes in another order."""

    axes: tuple[int, ...]

    def apply(self, node: Node) -> Node:
        return permuted(node, self.axes)

    def write(self, whole: Node, part: Node) -> Node:  # noqa: ARG002 - all of it is written
        return permuted(part, _inverse(self.axes))

    def layout(self, layout: Layout) -> Layout:
        return Layout(tuple([layout.shape[a] for a in self.axes]),
                      tuple([layout.strides[a] for a in self.axes]), layout.offset)


@dataclass(frozen=True, slots=True)
class Reshape(ViewOp):
    """The elements in row-major order in another shape."""

    shape: tuple[int, ...]

    def apply(self, node: Node) -> Node:
        return reshaped(node, self.shape)

    def write(self, whole: Node, part: Node) -> Node:
        return reshaped(part, whole.sig.out.shape)

    def layout(self, layout: Layout) -> Layout:
        found = reshaped_layout(layout, self.shape)
        if found is None:
            raise InvalidInputError("a tensor of these strides has no view of the shape",
                                    got=f"shape {layout.shape}, strides {layout.strides}",
                                    expected=f"a layout that {self.shape} divides",
                                    help="use reshape, which copies where it must")
        return found


class _Scattering(ViewOp):
    """An operation whose result may have an element several times, or in no order of axes: views
    with it write to positions in the memory of the base.
    """

    __slots__ = ()

    def write(self, whole: Node, part: Node) -> Node:  # noqa: ARG002 - of the protocol
        raise InternalError("a view writes by one of its operations", got=self)

    def scatter(self, whole: Node, part: Node, layout: Layout) -> Node:
        places = layout.positions().reshape(-1)
        if not places.size:
            return whole
        if whole.sig.out.dtype.is_complex is not part.sig.out.dtype.is_complex:
            if whole.sig.out.dtype.is_complex:
                return as_complex(self.scatter(as_pair(whole), part, layout))
            pairs = as_complex(reshaped(whole, (math.prod(whole.sig.out.shape) // 2, 2)))
            return reshaped(as_pair(self.scatter(pairs, part, layout)), whole.sig.out.shape)
        shape = whole.sig.out.shape
        if part.sig.out.dtype is not whole.sig.out.dtype:
            part = record("reinterpret", (part,), {"dtype": whole.sig.out.dtype.ir})
        flat = reshaped(whole, (math.prod(shape),))
        return reshaped(_placed(flat, reshaped(part, (places.size,)), [(0, places)]), shape)


@dataclass(frozen=True, slots=True)
class Expand(_Scattering):
    """Axes of size 1 repeated, and new leading axes."""

    shape: tuple[int, ...]

    def apply(self, node: Node) -> Node:
        if node.sig.out.shape == self.shape:
            return node
        return record("broadcast_to", (node,), {"shape": self.shape})

    def layout(self, layout: Layout) -> Layout:
        lead = len(self.shape) - len(layout.shape)
        strides = [layout.strides[axis - lead] if axis >= lead and layout.shape[axis - lead] == size
                   else 0 for axis, size in enumerate(self.shape)]
        for axis in range(lead - 1, -1, -1):  # torch's strides of new axes of size 1
            if self.shape[axis] == 1:
                strides[axis] = self.shape[axis + 1] * strides[axis + 1] \
                    if axis + 1 < len(self.shape) else 1
        return Layout(self.shape, tuple(strides), layout.offset)


@dataclass(frozen=True, slots=True)
class Diagonal(_Scattering):
    """The diagonal of the matrices of two axes, as the last axis."""

    offset: int
    rows: int
    columns: int

    def apply(self, node: Node) -> Node:
        shape = node.sig.out.shape
        rest = [a for a in range(len(shape)) if a not in (self.rows, self.columns)]
        lead, columns = tuple([shape[a] for a in rest]), shape[self.columns]
        count = self._count(shape)
        begin = self.offset if self.offset >= 0 else -self.offset * columns
        last = (begin, begin + (count - 1) * (columns + 1) + 1, columns + 1) if count \
            else (0, 0, 1)
        matrices = permuted(node, (*rest, self.rows, self.columns))
        lines = reshaped(matrices, (*lead, shape[self.rows] * columns))
        return sliced(lines, (*[(0, size, 1) for size in lead], last))

    def layout(self, layout: Layout) -> Layout:
        rest = [a for a in range(len(layout.shape)) if a not in (self.rows, self.columns)]
        row, column = layout.strides[self.rows], layout.strides[self.columns]
        count, offset = self._count(layout.shape), layout.offset
        if count:
            offset += self.offset * column if self.offset >= 0 else -self.offset * row
        return Layout((*[layout.shape[a] for a in rest], count),
                      (*[layout.strides[a] for a in rest], row + column), offset)

    def _count(self, shape: tuple[int, ...]) -> int:
        rows, columns = shape[self.rows], shape[self.columns]
        return max(0, min(rows + min(self.offset, 0), columns - max(self.offset, 0)))


@dataclass(frozen=True, slots=True)
class Unfold(_Scattering):
    """Windows of an axis, ``step`` apart; the elements of a window are the last axis."""

    axis: int
    size: int
    step: int

    def apply(self, node: Node) -> Node:
        rank, inside = len(node.sig.out.shape), self.axis + 1
        count = (node.sig.out.shape[self.axis] - self.size) // self.step + 1
        at = np.arange(count)[:, None] * self.step + np.arange(self.size)
        windows = record("take", (node, as_node(at)), {"axis": self.axis})
        return permuted(windows, (*range(inside), *range(inside + 1, rank + 1), inside))

    def layout(self, layout: Layout) -> Layout:
        shape, strides = list(layout.shape), list(layout.strides)
        shape[self.axis] = (shape[self.axis] - self.size) // self.step + 1
        strides[self.axis] *= self.step
        return Layout((*shape, self.size), (*strides, layout.strides[self.axis]), layout.offset)

    @property
    def overlaps(self) -> bool:
        return self.size > self.step


@dataclass(frozen=True, slots=True)
class Strided(_Scattering):
    """Elements at these strides in the memory of a tensor without gaps."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    def apply(self, node: Node) -> Node:
        at = self.layout(row_major(())).positions()
        flat = reshaped(node, (math.prod(node.sig.out.shape),))
        found = record("take", (flat, as_node(at.reshape(-1))), {"axis": 0})
        return reshaped(found, self.shape)

    def layout(self, layout: Layout) -> Layout:
        return Layout(self.shape, self.strides, layout.offset + self.offset)

    @property
    def overlaps(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Parts(ViewOp):
    """The real and imaginary parts of complex numbers along a new last axis, in their memory."""

    def apply(self, node: Node) -> Node:
        return as_pair(node)

    def write(self, whole: Node, part: Node) -> Node:  # noqa: ARG002 - all of it is written
        return as_complex(part)

    def layout(self, layout: Layout) -> Layout:
        return Layout((*layout.shape, 2), (*[2 * s for s in layout.strides], 1), 2 * layout.offset)


@dataclass(frozen=True, slots=True)
class Joined(ViewOp):
    """The two floats along the last axis as complex numbers, in their memory."""

    def apply(self, node: Node) -> Node:
        return as_complex(node)

    def write(self, whole: Node, part: Node) -> Node:  # noqa: ARG002 - all of it is written
        return as_pair(part)

    def layout(self, layout: Layout) -> Layout:
        inner, offset = layout.strides[:-1], layout.offset
        if layout.strides[-1] != 1 or offset % 2 or any(stride % 2 for stride in inner):
            raise InvalidInputError("the two parts of complex numbers are not adjacent in memory",
                                    got=f"strides {layout.strides}, offset {offset}",
                                    expected="even strides, and 1 for the last axis",
                                    help="copy the tensor first: x.clone()")
        return Layout(layout.shape[:-1], tuple([s // 2 for s in inner]), offset // 2)


@dataclass(frozen=True, slots=True)
class Conjugated(ViewOp):
    """Complex numbers with the other sign of their imaginary parts."""

    def apply(self, node: Node) -> Node:
        return conjugate(node)

    def write(self, whole: Node, part: Node) -> Node:  # noqa: ARG002 - all of it is written
        return conjugate(part)

    def layout(self, layout: Layout) -> Layout:
        return layout


@dataclass(frozen=True, slots=True)
class Bits(ViewOp):
    """The bits of the elements as numbers of another dtype of the same size."""

    dtype: dtype

    def apply(self, node: Node) -> Node:
        return record("reinterpret", (node,), {"dtype": self.dtype.ir})

    def write(self, whole: Node, part: Node) -> Node:
        return record("reinterpret", (part,), {"dtype": whole.sig.out.dtype.ir})

    def layout(self, layout: Layout) -> Layout:
        return layout


# -- nodes -----------------------------------------------------------------------------------------


@functools.lru_cache(4096)
def counts_of(slices: Slices) -> tuple[int, ...]:
    """How many positions each slice takes."""
    return tuple([len(range(*one)) for one in slices])


def slice_of(one: tuple[int, int, int]) -> slice:
    """A slice of Python from begin, end and step; an end before the first element is ``None``."""
    return slice(one[0], one[1] if one[1] >= 0 else None, one[2])


def reshaped(node: Node, shape: tuple[int, ...]) -> Node:
    """A node in another shape; itself if it has it."""
    if node.sig.out.shape == shape:
        return node
    return record("reshape", (node,), {"newshape": shape, "allowzero": True})


def permuted(node: Node, axes: Sequence[int]) -> Node:
    """A node with its axes in another order; itself if they are."""
    if tuple(axes) == tuple(range(len(axes))):
        return node
    return record("transpose", (node,), {"axes": tuple(axes)})


def conjugate(node: Node) -> Node:
    """The conjugates of complex numbers: the second part times -1."""
    signs = as_node(np.array([1, -1], node.sig.out.dtype.to_real().numpy))
    return as_complex(record("multiply", (as_pair(node), signs), {}))


def _inverse(axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(range(len(axes)), key=axes.__getitem__))


def sliced(node: Node, slices: Slices) -> Node:
    """The slices of the axes of a node."""
    shape = node.sig.out.shape
    axes = [a for a, one in enumerate(slices) if one != (0, shape[a], 1)]
    if not axes:
        return node
    return record("strided_slice", (node,), {
        "begin": tuple([slices[a][0] for a in axes]),
        "end": tuple([_end(slices[a], shape[a]) for a in axes]),
        "strides": tuple([slices[a][2] for a in axes]), "axes": tuple(axes)})


def _end(one: tuple[int, int, int], size: int) -> int:
    """The end of a slice; before the first element for one that runs back to it."""
    return one[1] if one[1] >= 0 else -size - 1


def written(whole: Node, slices: Slices, part: Node) -> Node:
    """``whole`` with the part at these slices, which broadcasts along axes of size 1."""
    shape, counts = whole.sig.out.shape, counts_of(slices)
    if 0 in counts:
        return whole
    if MODE.trace is None and whole.grad is None and part.grad is None:
        value, new = known(whole), known(part)
        if value is not None and new is not None:
            value = np.array(value)
            value[tuple(map(slice_of, slices))] = new
            return value_node(value, whole.sig.out.dtype)
    axes = [(axis, np.arange(*one)) for axis, (one, size) in enumerate(zip(
        slices, shape, strict=True)) if one != (0, size, 1)]
    if not axes:
        return part if part.sig.out.shape == shape else record(
            "broadcast_to", (part,), {"shape": shape})
    return _placed(whole, part, axes)


def _placed(whole: Node, part: Node, axes: Sequence[tuple[int, np.ndarray]]) -> Node:
    """``whole`` with the part at positions of some axes.

    Which positions are written, and from where, are data, so that another position in the next
    iteration runs the same program.
    """
    shape = whole.sig.out.shape
    mask: Any = None
    for axis, positions in axes:
        at = np.zeros(shape[axis], np.int64)
        at[positions] = np.arange(len(positions))
        is_written = np.zeros([n if a == axis else 1 for a, n in enumerate(shape)], np.bool_)
        is_written.reshape(-1)[positions] = True
        if part.sig.out.shape[axis] != 1:
            part = record("take", (part, as_node(at)), {"axis": axis})
        here = as_node(is_written)
        mask = here if mask is None else record("logical_and", (mask, here), {})
    return record("where", (mask, part, whole), {})


# -- layouts ---------------------------------------------------------------------------------------


def reshaped_layout(layout: Layout, shape: tuple[int, ...]) -> Layout | None:
    """The layout of a view in another shape; ``None`` if its elements are not at even distances.

    Axes of the tensor that are adjacent in memory are taken together, and each such block is
    divided by sizes of the new shape, from the last axis on.
    """
    if layout.shape == shape:
        return layout
    if math.prod(shape) == 0:
        return Layout(shape, row_major(shape).strides, layout.offset)
    strides = [0] * len(shape)
    axis = len(shape) - 1
    for size, stride in _blocks(layout):
        taken = 1
        while axis >= 0 and (taken < size or shape[axis] == 1):
            strides[axis] = taken * stride
            taken *= shape[axis]
            axis -= 1
        if taken != size:
            return None
    return Layout(shape, tuple(strides), layout.offset) if axis < 0 else None


def _blocks(layout: Layout) -> list[tuple[int, int]]:
    """Sizes and strides of runs of adjacent axes, the last first."""
    if not layout.shape:
        return [(1, 1)]
    found = []
    size, stride = 1, layout.strides[-1]
    for axis in range(len(layout.shape) - 1, -1, -1):
        size *= layout.shape[axis]
        if axis == 0:
            found.append((size, stride))
        elif layout.shape[axis - 1] != 1 and layout.strides[axis - 1] != size * stride:
            found.append((size, stride))
            size, stride = 1, layout.strides[axis - 1]
    return found
