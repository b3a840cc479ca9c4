"""What a tensor is below its operators: a cell that refers to a node of the recorded graph.

Values are immutable; changing a tensor makes its cell refer to another node.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol

from weft.eager.dtypes import dtype, get_default_dtype
from weft.eager.node import (
    ALIAS,
    ModuleMemory,
    Node,
    Spec,
    simple_signature,
)
from weft.support.errors import WeftError


class Cell:
    """Base of ``Tensor``: the node, and what ``backward`` leaves."""

    __slots__ = ("__weakref__", "_base", "_grad", "_hooks", "_node")

    made: ClassVar[Callable[[Node], Any]]  # ``Tensor`` from a node; ``tensor.py`` sets it

    _node: Node | ModuleMemory
    _grad: Any
    _hooks: Any  # of a leaf
    _base: Any  # weak reference of the tensor that this one is a view of, and how to write to it


class Tracing(Protocol):
    """Reads and changes of tensors while a function is traced (``tracing/trace.py``)."""

    def read(self, cell: Cell) -> Node:
        """The node of a tensor in the traced function."""
        ...

    def write(self, cell: Cell, node: Node) -> None:
        """A tensor gets another node."""
        ...

    def made(self, cell: Cell) -> None:
        """A tensor is made."""
        ...

    def look(self, node: Node) -> None:
        """The value of a node is looked at; raises if it does not exist yet."""
        ...

    def grad(self, cell: Cell, *, is_read: bool) -> None:
        """The gradient of a tensor is about to be read or replaced."""
        ...

    @property
    def watch(self) -> Watching | None:
        """What notes reads of Python values, if the trace has guards."""
        ...


class Watching(Protocol):
    """Notes of reads that a class tells itself (``tracing/watch.py`` sees the others)."""

    def item(self, owner: Any, table: Mapping[str, Any], name: str) -> None:
        """``table[name]`` was read as the attribute ``name`` of ``owner``."""
        ...

    def option(self, table: dict[str, Any], name: str) -> None:
        """``table[name]`` was read."""
        ...

    def is_zero(self, table: dict[str, Any], name: str, answer: bool) -> None:
        """Whether ``table[name]`` is zero was asked."""
        ...

    def state(self, optimizer: Any, parameter: Any, state: dict[str, Any]) -> None:
        """The state of a parameter was read from its optimiser."""
        ...


def watching() -> Watching | None:
    """What notes reads of Python values in this thread, while a function is traced."""
    trace = MODE.trace
    return None if trace is None else trace.watch


class _Mode(threading.local):
    """What recording depends on, per thread.

    ``pending`` has a weak reference of each tensor that got a node without value since the last
    evaluation.
    """

    def __init__(self) -> None:
        self.grad = True
        self.trace: Tracing | None = None
        self.pending: list[weakref.ref[Cell]] = []
        self.anomaly = False  # check all results for NaN and infinities
        self.autocast: dtype | None = None  # the narrow dtype of products

    @property
    def key(self) -> tuple[Any, ...]:
        """What recording depends on beside operands: traces are kept by it."""
        return self.grad, self.autocast, self.anomaly, get_default_dtype()


MODE = _Mode()


def node_of(cell: Cell) -> Node:
    """The node with the present value of a tensor, to be used in a call."""
    trace = MODE.trace
    if trace is not None:
        return trace.read(cell)
    node = cell._node  # noqa: SLF001 - of this module
    return node if node.__class__ is Node else node.snapshot()  # type: ignore[union-attr]


def spec_of_cell(cell: Cell) -> Spec:
    """Shape and dtype of a tensor."""
    return cell._node.sig.out  # noqa: SLF001


def bind(cell: Cell, node: Node) -> None:
    """Make ``cell`` refer to ``node``: how every change of a tensor happens.

    A leaf that requires a gradient stays one. A view passes the change on to its base.
    """
    old = cell._node  # noqa: SLF001
    leaf = leaf_of(old)
    if leaf is not None and leaf() is cell:
        node = alias(node)
        node.grad = leaf
    trace = MODE.trace
    if trace is not None:
        trace.write(cell, node)
    cell._node = node  # noqa: SLF001
    if node.value is None:
        MODE.pending.append(weakref.ref(cell))


def leaf_of(node: Node | ModuleMemory) -> weakref.ref[Cell] | None:
    """The weak reference of the leaf that ``node`` is the value of, if it requires a gradient."""
    grad = getattr(node, "grad", None)
    return grad if isinstance(grad, weakref.ref) else None


def alias(node: Node) -> Node:
    """A new node of the same value, outside the graph of gradients."""
    made = Node(simple_signature(ALIAS, node.sig.out), (node,), node.value, None)
    if node.value is not None:
        made.args = ()
    return made


def check_in_place(cell: Cell, what: str) -> None:
    """Raise ``WeftError`` where torch refuses an in-place change."""
    if MODE.grad and leaf_of(cell._node) is not None:  # noqa: SLF001
        raise WeftError(f"{what}: a leaf tensor that requires a gradient is changed in place",
                        help="change it inside `with weft.no_grad():`")
