"""What tensors share: views of a base, and tensors detached from one another.

Values of nodes never change. A view is a tensor with a chain of operations on its ``base``: a
write through it gives the base another node, and every view computes its part anew when it is read
next and finds that the base refers to another node. Detached tensors have the same value and
gradients of their own; a change of one is written to the others at once.
"""

from __future__ import annotations

import abc
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.eager.node import (
    ALIAS,
    CONSTANT,
    CUSTOM,
    RECORDED,
    Node,
    Signature,
    simple_signature,
    spec_of_fields,
)
from weft.support.dataclass import dataclass

if TYPE_CHECKING:
    from weft.eager.cell import Cell


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the elements of a tensor are in the row-major memory of its base, in elements."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements are in row-major order without gaps."""
        expected = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if size != 1 and stride != expected:
                return 0 in self.shape
            expected *= size
        return True

    def positions(self) -> np.ndarray:
        """The position in memory of each element."""
        places = np.full(self.shape, self.offset, np.int64)
        for axis, (size, stride) in enumerate(zip(self.shape, self.strides, strict=True)):
            line = np.arange(size) * stride
            places += line.reshape((size, *(1,) * (len(self.shape) - axis - 1)))
        return places


def row_major(shape: tuple[int, ...]) -> Layout:
    """The layout of a tensor that is no view."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(shape[axis + 1], 1)
    return Layout(shape, tuple(strides), 0)


class ViewOp(abc.ABC):
    """One operation of a view: the part of a node, and the node with another part."""

    __slots__ = ()

    @abc.abstractmethod
    def apply(self, node: Node) -> Node:
        """The part of ``node``."""

    @abc.abstractmethod
    def write(self, whole: Node, part: Node) -> Node:
        """``whole`` with ``part`` in the place of its part."""

    @abc.abstractmethod
    def layout(self, layout: Layout) -> Layout:
        """The layout of the part of a tensor of this layout."""

    def scatter(self, whole: Node, part: Node, layout: Layout) -> Node | None:  # noqa: ARG002
        """``whole`` with a part of this layout, for a view with an operation that cannot write;
        ``None`` for one that can.
        """
        return None

    @property
    def overlaps(self) -> bool:
        """Whether elements of the part may be one element of the whole, at unequal strides."""
        return False


class View:
    """How a tensor is a part of ``base``; ``source`` is the node of the base it was computed of."""

    __slots__ = ("_layout", "base", "ops", "source")

    def __init__(self, base: Cell, ops: tuple[ViewOp, ...], source: Node) -> None:
        self.base = base
        self.ops = ops
        self.source = source
        self._layout: Layout | None = None

    def read(self, node: Node) -> Node:
        """The part of a node of the base."""
        for op in self.ops:
            node = op.apply(node)
        return node

    def write(self, whole: Node, part: Node) -> Node:
        """A node of the base with another part."""
        for op in self.ops:
            found = op.scatter(whole, part, self._laid_out(row_major(whole.sig.out.shape)))
            if found is not None:
                return found
        nodes = [whole]
        for op in self.ops[:-1]:
            nodes.append(op.apply(nodes[-1]))
        for op, node in zip(reversed(self.ops), reversed(nodes), strict=False):
            part = op.write(node, part)
        return part

    @property
    def root(self) -> Cell:
        """The base: where its shape was changed in place since, what it was."""
        outer = self.base._view  # noqa: SLF001 - cells are of this package
        if isinstance(outer, Reshaped):
            self.base = outer.base
        return self.base

    @property
    def layout(self) -> Layout:
        """Sizes, strides and offset."""
        if self._layout is None:
            outer = self.root._view  # noqa: SLF001 - cells are of this package
            self._layout = self._laid_out(
                row_major(self.source.sig.out.shape) if outer is None else outer.layout)
        return self._layout

    def _laid_out(self, layout: Layout) -> Layout:
        """The layout in a base of this one."""
        for op in self.ops:
            layout = op.layout(layout)
        return layout

    @property
    def overlaps(self) -> bool:
        """Whether several elements are the same one of the base."""
        layout = self.layout
        if 0 in layout.shape:
            return False
        if any(stride == 0 and size > 1
               for size, stride in zip(layout.shape, layout.strides, strict=True)):
            return True
        if not any(op.overlaps for op in self.ops):
            return False
        places = layout.positions()
        return np.unique(places).size < places.size


class Reshaped(View):
    """The view that a tensor became whose shape or axes were changed in place.

    Its ``base`` is what the tensor was: views made before are parts of that, not of this view.
    """

    __slots__ = ()


class Memory:
    """The tensors, views left out, that have one value; ``version`` counts its changes."""

    __slots__ = ("members", "version")

    def __init__(self) -> None:
        self.members: list[weakref.ref[Cell]] = []
        self.version = 0

    def add(self, cell: Cell) -> None:
        """Another tensor of the same value."""
        self.members = [ref for ref in self.members if ref() is not None]
        self.members.append(weakref.ref(cell))

    def replace(self, old: Cell, new: Cell) -> None:
        """``new`` is a member where ``old`` was one."""
        self.members = [ref for ref in self.members if ref() is not old]
        self.add(new)

    def others(self, cell: Cell) -> list[Cell]:
        """The members but ``cell``."""
        found = [ref() for ref in self.members]
        return [one for one in found if one is not None and one is not cell]

    def __reduce__(self) -> Any:
        return Memory, ()


def same(node: Node, *, flows: bool) -> Node:
    """A new node of the same value, through which gradients flow if they do to ``node``."""
    if node.sig.kind == CONSTANT and node.grad is None:
        return Node(node.sig, (), node.value, None)
    made = Node(simple_signature(ALIAS, node.sig.out), (node,), node.value, None)
    if flows and node.grad is not None:
        made.grad = RECORDED
    elif node.value is not None:
        made.args = ()
    return made


def continued(before: Node, value: Node, *, flows: bool) -> Node:
    """``value`` with the gradients of ``before``, which has them; none reach it unless ``flows``.

    A tensor that is changed under ``no_grad`` stays the result of what it was computed by.
    """
    if before.link is not None:  # changed several times: what it was before all of that
        earlier: Node = before.link[0]
        if isinstance(earlier.extra, _Continued) and earlier.args:
            before = earlier.args[0]
    given = (before,) if flows else ()
    spec = spec_of_fields([value.sig.out])
    sig = Signature(CUSTOM, spec, tuple([node.sig.out for node in given]))
    sig.name = before.sig.name
    hub = Node(sig, given, None, None)
    hub.grad = RECORDED
    hub.extra = _Continued([value])
    made = same(value, flows=False)
    made.link = (hub, 0)
    made.grad = RECORDED
    return made


class _Continued:
    """The gradient of ``continued``: that of its result, if it goes on."""

    def __init__(self, results: Sequence[Node]) -> None:
        self.results = results

    def __call__(self, given: Sequence[Any], *, create_graph: bool) -> list[Any]:  # noqa: ARG002
        return list(given)
