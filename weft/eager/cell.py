"""What a tensor is below its operators: a cell that refers to a node of the recorded graph.

Values are immutable; changing a tensor makes its cell refer to another node. ``node_of`` and
``bind`` are how all operators read and change tensors, views among them (``storage.py``).
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol

from weft.eager.device import get_default_device
from weft.eager.dtypes import dtype, get_default_dtype
from weft.eager.node import PLACEHOLDER, ModuleMemory, Node, Spec
from weft.eager.storage import Memory, Reshaped, View, ViewOp, continued, same
from weft.support.errors import WeftError


class Cell:
    """Base of ``Tensor``: the node, and what ``backward`` leaves."""

    __slots__ = ("__weakref__", "_grad", "_hooks", "_memory", "_node", "_view")

    plain: ClassVar[type[Any]]  # ``Tensor``; ``tensor.py`` sets it
    made: ClassVar[Callable[[Node], Any]]  # a tensor from a node; ``tensor.py`` sets it
    lowered: ClassVar[Callable[..., Any]]  # a call of complex numbers; ``tensor.py`` sets it

    _node: Node | ModuleMemory
    _grad: Any
    _hooks: Any  # of a leaf
    _view: View | None  # of what tensor this one is a part
    _memory: Memory | None  # of a tensor that is no view: which others have its value


def new_cell(cls: type[Any], node: Node) -> Any:
    """A tensor of a class, whose ``__init__`` does not run."""
    found = object.__new__(cls)
    found._node = node
    found._grad = found._hooks = found._view = found._memory = None
    return found


class Tracing(Protocol):
    """Reads and changes of tensors while a function is traced (``tracing/trace.py``)."""

    def read(self, cell: Cell) -> Node:
        """The node of a tensor in the traced function."""
        ...

    def write(self, cell: Cell, node: Node) -> None:
        """A tensor gets another node."""
        ...

    def follow(self, cell: Cell, node: Node) -> None:
        """A tensor gets the node of one that it is detached from."""
        ...

    def made(self, cell: Cell) -> None:
        """A tensor is made."""
        ...

    def look(self, node: Node, what: str = ..., help: str = ...) -> None:
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
        self.sweep: Any = None  # the pass of ``backward`` that runs (``backward.py``)

    @property
    def key(self) -> tuple[Any, ...]:
        """What recording depends on beside operands: traces are kept by it."""
        return (self.grad, self.autocast, self.anomaly, get_default_dtype(),
                get_default_device())


MODE = _Mode()


def node_of(cell: Cell) -> Node:
    """The node with the present value of a tensor, to be used in a call."""
    if cell._view is not None:  # noqa: SLF001 - of this module
        return _part(cell, cell._view)  # noqa: SLF001
    trace = MODE.trace
    if trace is not None:
        return trace.read(cell)
    node = cell._node  # noqa: SLF001
    return node if node.__class__ is Node else node.snapshot()  # type: ignore[union-attr]


def _part(cell: Cell, view: View) -> Node:
    """The node of a view, computed anew if its base refers to another node than before."""
    before: Any = cell._node  # noqa: SLF001
    leaf = leaf_of(before)
    trace = MODE.trace
    if trace is not None and leaf is not None and view.base._node is view.source:  # noqa: SLF001
        return trace.read(cell)
    source = node_of(view.base)
    if source is view.source:
        return before
    if view.base is not view.root:
        return _part(cell, view)
    if source.sig.out is not view.source.sig.out:  # the base got data of another shape
        cell._view = None  # noqa: SLF001
        return node_of(cell)
    grad, mode = MODE.grad, MODE
    try:
        mode.grad = leaf is None and (before.grad is not None or leaf_of(source) is None)
        part = view.read(source)
        if part is source:
            part = same(source, flows=mode.grad)
    finally:
        mode.grad = grad
    if leaf is not None:
        part = alias(part)
        part.grad = leaf
    view.source = source
    _refer(cell, part)
    return part


def is_stale(cell: Cell) -> bool:
    """Whether a tensor is a view that does not have the present node of its base."""
    view = cell._view  # noqa: SLF001
    while view is not None:
        if view.base._node is not view.source:  # noqa: SLF001
            return True
        view = view.base._view  # noqa: SLF001
    return False


def view_of(cell: Cell, *ops: ViewOp, node: Node | None = None) -> Any:
    """A view of a tensor; ``node`` is its part if it is known."""
    whole = node_of(cell)
    if node is None:
        node = whole
        for op in ops:
            node = op.apply(node)
    if node is whole:
        node = same(whole, flows=MODE.grad)
    made = Cell.made(node)
    view = cell._view  # noqa: SLF001
    if view is None or leaf_of(whole) is not None:
        made._view = View(cell, ops, whole)  # noqa: SLF001
    else:
        made._view = View(view.base, (*view.ops, *ops), view.source)  # noqa: SLF001
    if node.value is None and MODE.trace is None:
        MODE.pending.append(weakref.ref(made))
    return made


def become_view(cell: Cell, made: Cell, what: str) -> None:
    """Make a tensor the view ``made`` of itself; other views of its memory stay as they are.

    Raises ``WeftError`` for leaves that require a gradient, and for tensors from outside of a
    traced function.
    """
    old, view, trace = node_of(cell), made._view, MODE.trace  # noqa: SLF001
    assert view is not None
    if leaf_of(old) is not None:
        raise WeftError(f"{what}: the shape of a leaf tensor that requires a gradient is changed",
                        help="assign to its data: x.data = ...")
    if trace is not None and old.sig.kind == PLACEHOLDER:
        raise WeftError(f"{what}: the shape of a tensor from outside of the traced function is "
                        "changed", help="make a view of it: the function without the underscore")
    base = view.base
    if base is cell:  # what it was
        base = Cell.made(old)
        base._node, base._memory = cell._node, memory_of(cell)  # noqa: SLF001
        base._memory.replace(cell, base)  # noqa: SLF001
        if trace is None and old.value is None:
            MODE.pending.append(weakref.ref(base))
    cell._memory = None  # noqa: SLF001
    cell._view = Reshaped(base, view.ops, view.source)  # noqa: SLF001
    _refer(cell, made._node)  # type: ignore[arg-type]  # noqa: SLF001


def detached(cell: Cell) -> Any:
    """A tensor of the same value outside the graph of gradients: a change of one is one of both."""
    view = cell._view  # noqa: SLF001
    if view is not None:  # of a tensor that is detached from the base
        return view_of(detached(view.base), *view.ops, node=alias(node_of(cell)))
    made = Cell.made(alias(node_of(cell)))
    made._memory = memory_of(cell)  # noqa: SLF001
    made._memory.add(made)  # noqa: SLF001
    if isinstance(cell._node, ModuleMemory):  # noqa: SLF001
        made._node = cell._node.follower()  # noqa: SLF001
    elif made._node.value is None and MODE.trace is None:  # noqa: SLF001
        MODE.pending.append(weakref.ref(made))
    elif MODE.trace is not None:
        MODE.trace.made(made)
    return made


def memory_of(cell: Cell) -> Memory:
    """Which tensors share the value of ``cell`` or of its base."""
    while cell._view is not None:  # noqa: SLF001
        cell = cell._view.base  # noqa: SLF001
    found = cell._memory  # noqa: SLF001
    if found is None:
        found = cell._memory = Memory()  # noqa: SLF001
        found.add(cell)
    return found


def spec_of_cell(cell: Cell) -> Spec:
    """Shape and dtype of a tensor."""
    return cell._node.sig.out  # noqa: SLF001


def bind(cell: Cell, node: Node, *, keeps_graph: bool = False) -> None:
    """Make ``cell`` refer to ``node``: how every change of a tensor happens.

    A leaf that requires a gradient stays one. A result stays a result: of the change, or with
    ``keeps_graph`` and under ``no_grad`` of what it was computed by. A view changes its base.
    """
    view = cell._view  # noqa: SLF001
    if view is not None:
        _write(cell, view, node, keeps_graph=keeps_graph)
        return
    old = cell._node  # noqa: SLF001
    keeps_graph |= not MODE.grad
    _receive(cell, old, node, flows=keeps_graph)
    memory = memory_of(cell)
    memory.version += 1
    if len(memory.members) > 1:
        for other in memory.others(cell):
            before: Any = other._node  # noqa: SLF001
            if MODE.trace is not None and getattr(before, "grad", None) is None:
                MODE.trace.follow(other, alias(node))
            else:
                _receive(other, before, alias(node), flows=True)


def _receive(cell: Cell, old: Any, node: Node, *, flows: bool) -> None:
    """Let a tensor refer to ``node``, with the place in the graph of gradients that it has."""
    grad = getattr(old, "grad", None)
    if isinstance(grad, weakref.ref):
        if grad() is cell:
            node = alias(node)
            node.grad = grad
    elif grad is not None and node.grad is None:
        node = continued(old, node, flows=flows)
    trace = MODE.trace
    if trace is not None:
        trace.write(cell, node)
    _refer(cell, node)


def _refer(cell: Cell, node: Node) -> None:
    cell._node = node  # noqa: SLF001
    if node.value is None:
        MODE.pending.append(weakref.ref(cell))


def _write(cell: Cell, view: View, part: Node, *, keeps_graph: bool) -> None:
    """Write a part to the base. Where no gradient depends on it, it is the part of the result."""
    base, writer = view.root, view
    while base._view is not None:  # noqa: SLF001 - a leaf that is a view
        outer = base._view  # noqa: SLF001
        writer = View(outer.base, (*outer.ops, *writer.ops), outer.source)
        base = outer.base
    bind(base, writer.write(node_of(base), part), keeps_graph=keeps_graph)
    whole: Any = base._node  # noqa: SLF001
    if base is view.base and whole.grad is None and leaf_of(cell._node) is None:  # noqa: SLF001
        view.source = whole
        _refer(cell, same(part, flows=False))


def leaf_of(node: Node | ModuleMemory) -> weakref.ref[Cell] | None:
    """The weak reference of the leaf that ``node`` is the value of, if it requires a gradient."""
    grad = getattr(node, "grad", None)
    return grad if isinstance(grad, weakref.ref) else None


def alias(node: Node) -> Node:
    """A new node of the same value, outside the graph of gradients."""
    return same(node, flows=False)


def check_in_place(cell: Cell, what: str, *, fills: bool = False) -> None:
    """Raise ``WeftError`` where torch refuses an in-place change. ``fills`` says that all elements
    get one number.
    """
    view = cell._view  # noqa: SLF001
    node = cell._node if view is None else node_of(cell)  # noqa: SLF001
    if MODE.grad and getattr(node, "grad", None) is not None:
        if leaf_of(node) is not None:
            raise WeftError(f"{what}: a leaf tensor that requires a gradient is changed in place",
                            help="change it inside `with weft.no_grad():`")
        if view is not None and leaf_of(view.source) is not None:
            raise WeftError(f"{what}: a view of a leaf tensor that requires a gradient is changed "
                            "in place", help="change it inside `with weft.no_grad():`")
    if view is not None and not fills and view.overlaps:
        raise WeftError(f"{what}: several elements of the tensor are one element in memory",
                        got=f"shape {view.layout.shape}, strides {view.layout.strides}",
                        help="change a copy: x.clone()")
