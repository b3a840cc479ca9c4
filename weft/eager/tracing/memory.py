"""Tensors whose value is in memory that compiled steps update in place.

The memory belongs to the tensor, so that several programs (for other shapes, or of another step)
update the same. Outside a step, a tensor gives a copy of its value, which later steps do not
change; a copy is made once between two steps.
"""

from __future__ import annotations

import weakref
from typing import Any

from weft.eager.cell import Cell, alias, leaf_of, node_of
from weft.eager.device import copied, device
from weft.eager.evaluate import value_of
from weft.eager.node import ModuleMemory, Node, Signature, Spec, simple_signature, value_node


class StepMemory(ModuleMemory):
    """The memory of one tensor: ``array``, which ``changed`` says was written to.

    It is on ``device``, that of the steps, where the tensor may be a number of the CPU.
    """

    __slots__ = ("_owner", "_snapshot", "_spec", "array", "device", "grad")

    def __init__(self, cell: Cell, where: device, array: Any = None) -> None:
        node = node_of(cell)
        self._spec: Spec = node.sig.out
        self.grad = leaf_of(node)
        self.device = where
        self.array = array
        if array is None:
            pairs = self._spec.as_pair()
            self.array = where.memory.empty(pairs.shape, pairs.dtype.numpy)
        self._assign(node)
        self._snapshot: Node | None = None
        self._owner = weakref.ref(cell)

    @property
    def sig(self) -> Signature:
        """The signature of a value of this shape and dtype."""
        return simple_signature("value", self._spec)

    def _assign(self, node: Node) -> None:
        """Write the value of a node to the memory."""
        self.device.memory.assign(self.array, value_on(node, self.device))

    def snapshot(self) -> Node:
        """A node with a copy of the present value."""
        found = self._snapshot
        if found is None:
            where = self._spec.device
            copy = self.device.memory.clone(self.array) if where is self.device \
                else copied(self.array, self.device, where)
            found = value_node(copy, self._spec.dtype, where)
            found.grad = self.grad
            self._snapshot = found
        return found

    def moved_to(self, cell: Cell, node: Node) -> StepMemory:
        """The memory with the value of ``cell``: its own one, which was changed or frozen outside,
        or another that takes its place (a gradient is a new tensor at each call).
        """
        owner = self._owner()
        if owner is not None and owner is not cell and owner._node is self:  # noqa: SLF001
            owner._node = self.snapshot()  # noqa: SLF001
        leaf = leaf_of(node)
        if owner is cell and leaf is self.grad:
            value_of(node)  # before what it may be computed from changes
            self.changed()
            self._assign(node)
            place(cell, self)
            return self
        made = StepMemory(cell, self.device, self.array)
        place(cell, made)
        return made

    def follower(self) -> ModuleMemory:
        return Follower(self)

    def changed(self) -> None:
        """Forget the copy: a step is about to write."""
        self._snapshot = None


class Follower(ModuleMemory):
    """Stands in a tensor that is detached from one whose value is in a ``StepMemory``."""

    __slots__ = ("_memory", "_node", "_source")

    def __init__(self, memory: StepMemory) -> None:
        self._memory = memory
        self._source: Node | None = None
        self._node: Node | None = None

    @property
    def sig(self) -> Signature:
        """The signature of a value of this shape and dtype."""
        return self._memory.sig

    def snapshot(self) -> Node:
        """A node of the present value of the memory, outside the graph of gradients."""
        source = self._memory.snapshot()
        if self._node is None or source is not self._source:
            self._source, self._node = source, alias(source)
        return self._node

    def follower(self) -> ModuleMemory:
        return self


def place(cell: Cell, memory: StepMemory) -> None:
    """Let the value of a tensor, and of those that are detached from it, be in ``memory``."""
    cell._node = memory  # noqa: SLF001 - cells are of this package
    if cell._memory is not None:  # noqa: SLF001
        for other in cell._memory.others(cell):  # noqa: SLF001
            if getattr(other._node, "grad", None) is None:  # noqa: SLF001
                other._node = memory.follower()  # noqa: SLF001


def array_of(cell: Cell) -> Any:
    """The present value of a tensor, to be read before the next step runs."""
    node: Any = cell._node  # noqa: SLF001 - cells are of this package
    if isinstance(node, StepMemory) and node.device is node.sig.out.device:
        return node.array
    return value_of(node_of(cell))


def value_on(node: Node, where: device) -> Any:
    """The value of a node as an array of a device."""
    value = value_of(node)
    own = node.sig.out.device
    return value if own is where else copied(value, own, where)
