"""Tensors whose value is in memory that compiled steps update in place.

The memory belongs to the tensor, so that several programs (for other shapes, or of another step)
update the same. Outside a step, a tensor gives a copy of its value, which later steps do not
change; a copy is made once between two steps.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from weft.eager.cell import Cell, alias, leaf_of, node_of
from weft.eager.evaluate import value_of
from weft.eager.node import ModuleMemory, Node, Signature, Spec, simple_signature, value_node
from weft.runtime.arena import AlignedBlock


class StepMemory(ModuleMemory):
    """The memory of one tensor: ``array``, which ``changed`` says was written to."""

    __slots__ = ("_owner", "_snapshot", "_spec", "array", "grad")

    def __init__(self, cell: Cell, array: np.ndarray | None = None) -> None:
        node = node_of(cell)
        self._spec: Spec = node.sig.out
        self.grad = leaf_of(node)
        self.array = _block(self._spec) if array is None else array
        np.copyto(self.array, value_of(node))
        self._snapshot: Node | None = None
        self._owner = weakref.ref(cell)

    @property
    def sig(self) -> Signature:
        """The signature of a value of this shape and dtype."""
        return simple_signature("value", self._spec)

    def snapshot(self) -> Node:
        """A node with a copy of the present value."""
        found = self._snapshot
        if found is None:
            found = value_node(self.array.copy(), self._spec.dtype)
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
            value = value_of(node)
            self.changed()
            np.copyto(self.array, value)
            place(cell, self)
            return self
        made = StepMemory(cell, self.array)
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


def array_of(cell: Cell) -> np.ndarray:
    """The present value of a tensor, to be read before the next step runs."""
    node: Any = cell._node  # noqa: SLF001 - cells are of this package
    return node.array if isinstance(node, StepMemory) else value_of(node_of(cell))


def _block(spec: Spec) -> np.ndarray:
    d = spec.dtype.numpy
    count = int(np.prod(spec.shape, dtype=np.int64))
    if not count:
        return np.zeros(spec.shape, d)
    purpose = f"a tensor of the step's state, {d} {spec.shape}"
    return AlignedBlock(count * d.itemsize, purpose=purpose).array.view(d).reshape(spec.shape)
