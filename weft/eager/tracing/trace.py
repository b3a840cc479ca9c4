"""Tracing: a Python function of tensors as a graph with parameters.

The function runs once, on placeholders. Tensors that it reads from outside (parameters, running
averages, the key of a generator) become placeholders too, and a tensor that it changes gets its
next value from the graph. Afterwards each of them refers to what it referred to before.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Container, Sequence
from dataclasses import field
from typing import Any

from weft.eager.cell import MODE, Cell, leaf_of, node_of
from weft.eager.node import (
    PLACEHOLDER,
    RECORDED,
    ModuleMemory,
    Node,
    Signature,
    Spec,
    depends_on,
    next_serial,
)
from weft.eager.tracing.guards import Guard, IsSet
from weft.eager.tracing.pytree import Structure, flatten, unflatten
from weft.eager.tracing.watch import Watch
from weft.support.dataclass import dataclass
from weft.support.errors import InvalidInputError

_LOOKED = "the value of a tensor is looked at inside a traced function"
_HELP = ("a traced function runs once, without values: use weft.where(condition, a, b) or "
         "weft.cond(condition, f, g), loop a fixed number of times, or make the argument static")


@dataclass
class Captured:
    """A tensor from outside that the function reads: what it referred to, its placeholder, and what
    it refers to at the end. A tensor that is the gradient of ``owner`` is another at each call.
    """

    cell: Cell
    before: Node | ModuleMemory
    placeholder: Node
    after: Node
    owner: Cell | None = None


@dataclass
class GradientUse:
    """The gradient of a tensor in a traced function: what it was before, and whether the function
    reads it before it sets it. ``after`` is what it is at the end: a node of the graph, a tensor
    from outside, or ``None``.
    """

    cell: Cell
    before: Cell | None
    is_read: bool
    after: Node | Cell | None = None


@dataclass
class Traced:
    """The graph of a function: parameters, tensors from outside, results, tensors made and kept."""

    parameters: list[Node]
    captured: list[Captured]
    results: list[Any]  # nodes, and other values as they are
    structure: Structure
    kept: list[tuple[Cell, Node, Node]] = field(default_factory=list)  # first and last node
    gradients: list[GradientUse] = field(default_factory=list)
    arguments: list[Cell] = field(default_factory=list)  # the tensors of the parameters
    guards: list[Guard] = field(default_factory=list)
    changed: list[Guard] = field(default_factory=list)  # places that the function reads and changes
    effects: list[tuple[Any, str, Any]] = field(default_factory=list)  # attributes that it sets
    paths: dict[int, str] = field(default_factory=dict)  # how the user calls an object, by its id
    objects: list[Any] = field(default_factory=list)  # what the function reached


class Trace:
    """What ``MODE.trace`` is while a function is traced."""

    def __init__(self, watch: Watch | None = None) -> None:
        self.watch = watch
        self.gradients: dict[int, GradientUse] = {}
        self.captured: dict[int, Captured] = {}
        self.placeholders: set[Node] = set()
        self.following: list[tuple[Cell, Node | ModuleMemory]] = []
        self.created: list[tuple[weakref.ref[Cell], Node]] = []
        self.first = next_serial()

    def parameter(self, spec: Spec, *, differentiable: bool = False) -> Node:
        """A new placeholder; gradients flow to it if it is ``differentiable``."""
        node = Node(Signature(PLACEHOLDER, spec), (), None, None)
        if differentiable and spec.dtype.rank > 1:
            node.grad = RECORDED
        self.placeholders.add(node)
        return node

    def read(self, cell: Cell) -> Node:
        """The node of a tensor inside the function."""
        node = cell._node  # noqa: SLF001 - cells are of this package
        if node.__class__ is Node and node.serial >= self.first:
            return node
        return self.capture(cell)

    def capture(self, cell: Cell) -> Node:
        """The placeholder of a tensor from outside."""
        before = cell._node  # noqa: SLF001
        leaf = leaf_of(before)
        if leaf is None and getattr(before, "grad", None) is not None:
            raise InvalidInputError(
                "a traced function reads a tensor that was computed outside with gradients",
                help="pass it as an argument, or use detach()")
        node = self.parameter(before.sig.out)
        node.grad = leaf
        self.captured[id(cell)] = Captured(cell, before, node, node)
        cell._node = node  # noqa: SLF001
        return node

    def write(self, cell: Cell, node: Node) -> None:  # noqa: ARG002 - of the protocol
        """Note a tensor from outside before it is changed."""
        before = cell._node  # noqa: SLF001
        if before.__class__ is not Node or before.serial < self.first:
            self.capture(cell)

    def follow(self, cell: Cell, node: Node) -> None:
        """Let a tensor have the value of one that it is detached from, till the end of the trace:
        afterwards it follows that one's memory.
        """
        before = cell._node  # noqa: SLF001
        is_old = before.__class__ is not Node or before.serial < self.first
        if is_old and id(cell) not in self.captured:
            self.following.append((cell, before))
        cell._node = node  # noqa: SLF001

    def made(self, cell: Cell) -> None:
        """Note a tensor that the function makes."""
        self.created.append((weakref.ref(cell), cell._node))  # type: ignore[arg-type]  # noqa: SLF001

    def look(self, node: Node, what: str = _LOOKED, help: str = _HELP) -> None:
        """Raise ``InvalidInputError`` if a value is looked at that does not exist yet."""
        if depends_on(node, self.placeholders):
            raise InvalidInputError(what, where=node.span, help=help,
                                    got=f"a tensor of shape {node.sig.out.shape}")

    def grad(self, cell: Cell, *, is_read: bool) -> None:
        """Note the gradient of a tensor before it is read or replaced for the first time."""
        if id(cell) not in self.gradients:
            self.gradients[id(cell)] = GradientUse(cell, cell._grad, is_read)  # noqa: SLF001

    def restore(self) -> None:
        """Let tensors from outside refer to what they referred to before."""
        for one in self.captured.values():
            one.after = one.cell._node  # type: ignore[assignment]  # noqa: SLF001
            one.cell._node = one.before  # noqa: SLF001
        for cell, before in self.following:
            cell._node = before  # noqa: SLF001


def trace_graph(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any],
                make: Callable[[Node], Any], *, differentiable: Sequence[bool] | bool = (),
                watch: Watch | None = None) -> Traced:
    """Run ``function`` on placeholders for the tensors among the leaves of its arguments.

    ``args`` and ``kwargs`` are nested containers whose tensor leaves are ``Spec``s; ``make`` gives
    the tensor of a placeholder, through which gradients flow where ``differentiable`` says so.
    ``watch`` notes what Python values the function reads.
    """
    if MODE.trace is not None:
        raise InvalidInputError("a function is traced inside a traced function")
    run = Trace(watch)
    traced = Traced([], [], [], ())
    placed = _placeholders(run, traced, make, differentiable, watch)
    given, named = _mapped(args, placed), _mapped(kwargs, placed)
    MODE.trace = run
    try:
        if watch is not None:
            watch.note(function, getattr(function, "__name__", "function"))
        result = function(*given, **named)
        leaves, traced.structure = flatten(result)
        traced.results = [node_of(leaf) if isinstance(leaf, Cell) else leaf for leaf in leaves]
        del result, given, named
        _gradients(run, traced)
    finally:
        MODE.trace = None
        run.restore()
        for use in run.gradients.values():
            use.cell._grad = use.before  # noqa: SLF001
    known = {id(leaf) for leaf in leaves if isinstance(leaf, Cell)}
    known |= {id(cell) for cell in traced.arguments}
    del leaves
    traced.kept = _kept(run, known)
    traced.captured = list(run.captured.values())
    if watch is not None:
        _watched(run, watch, traced)
    return traced


def _placeholders(run: Trace, traced: Traced, make: Callable[[Node], Any],
                  differentiable: Sequence[bool] | bool, watch: Watch | None
                  ) -> Callable[[Any], Any]:
    """What replaces a leaf of the arguments: a ``Spec`` by the tensor of a new parameter."""
    flows = itertools.repeat(differentiable) if isinstance(differentiable, bool) \
        else iter(differentiable)

    def placed(leaf: Any) -> Any:
        if not isinstance(leaf, Spec):
            if watch is not None:
                watch.note(leaf, "an argument")
            return leaf
        traced.parameters.append(run.parameter(leaf, differentiable=next(flows, False)))
        cell = make(traced.parameters[-1])
        if watch is not None and traced.parameters[-1].grad is not None:  # a leaf, as outside
            traced.parameters[-1].grad = weakref.ref(cell)
        traced.arguments.append(cell)
        return cell

    return placed


def _kept(run: Trace, known: Container[int]) -> list[tuple[Cell, Node, Node]]:
    """The tensors that were made and still exist, besides those with these ids."""
    return [(cell, first, cell._node) for cell, first in (  # type: ignore[misc]  # noqa: SLF001
        (ref(), first) for ref, first in run.created)
        if cell is not None and id(cell) not in known and cell._view is None]  # noqa: SLF001


def _gradients(run: Trace, traced: Traced) -> None:
    """Note what gradients the function leaves, and let the tensors have those of before.

    A gradient that the function makes is in the graph alone if the function changes the tensor by
    it and does not read it in the next call.
    """
    arguments = {id(cell) for cell in traced.arguments}
    for number, use in run.gradients.items():
        cell, after = use.cell, use.cell._grad  # noqa: SLF001
        cell._grad = use.before  # noqa: SLF001
        one = run.captured.get(number)
        if (one is None and number not in arguments) or (after is use.before and not use.is_read):
            continue
        if use.before is not None and id(use.before) in run.captured:
            run.captured[id(use.before)].owner = cell
        if after is None or after is use.before or _is_outside(run, after):
            use.after = after
        elif one is None or use.is_read or cell._node is one.placeholder:  # noqa: SLF001
            use.after = node_of(after)
        traced.gradients.append(use)


def _is_outside(run: Trace, cell: Cell) -> bool:
    """Whether a tensor is from outside of the function."""
    return cell._node.serial < run.first or id(cell) in run.captured  # type: ignore[union-attr]  # noqa: SLF001


def _watched(run: Trace, watch: Watch, traced: Traced) -> None:
    """What Python values the function read, set and changed."""
    watch.check_streams()
    traced.changed = watch.changed()
    traced.guards = list(watch.guards.values())
    traced.guards += [IsSet(use.cell, "_grad", use.before is not None,
                            f"{watch.path(use.cell)}.grad is not None")
                      for use in traced.gradients if use.is_read and id(use.cell) in run.captured]
    traced.effects = watch.effects()
    traced.paths, traced.objects = watch.paths, watch.objects


def _mapped(value: Any, function: Callable[[Any], Any]) -> Any:
    leaves, structure = flatten(value)
    return unflatten(structure, [function(leaf) for leaf in leaves])
