"""Tracing: a Python function of tensors as a graph with parameters.

The function runs once, on placeholders. Tensors that it reads from outside (parameters, running
averages, the key of a generator) become placeholders too, and a tensor that it changes gets its
next value from the graph. Afterwards each of them refers to what it referred to before.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

from weft.eager.cell import MODE, Cell, leaf_of
from weft.eager.node import (
    PLACEHOLDER,
    RECORDED,
    ModuleMemory,
    Node,
    Signature,
    Spec,
    next_serial,
)
from weft.eager.tracing.pytree import Structure, flatten, unflatten
from weft.support.dataclass import dataclass
from weft.support.errors import InvalidInputError

_HELP = ("a traced function runs once, without values: use weft.where(condition, a, b) or "
         "weft.cond(condition, f, g), loop a fixed number of times, or make the argument static")


@dataclass
class Captured:
    """A tensor from outside that the function reads: what it referred to, its placeholder, and what
    it refers to at the end.
    """

    cell: Cell
    before: Node | ModuleMemory
    placeholder: Node
    after: Node


@dataclass
class Traced:
    """The graph of a function: parameters, tensors from outside, results, tensors made and kept."""

    parameters: list[Node]
    captured: list[Captured]
    results: list[Any]  # nodes, and other values as they are
    structure: Structure
    kept: list[tuple[Cell, Node, Node]] = field(default_factory=list)  # first and last node


class Trace:
    """What ``MODE.trace`` is while a function is traced."""

    def __init__(self) -> None:
        self.captured: dict[int, Captured] = {}
        self.placeholders: set[Node] = set()
        self.created: list[tuple[weakref.ref[Cell], Node]] = []
        self.first = next_serial()

    def parameter(self, spec: Spec, *, differentiable: bool = False) -> Node:
        """A new placeholder; gradients flow to it if it is ``differentiable``."""
        node = Node(Signature(PLACEHOLDER, spec), (), None, None)
        if differentiable and spec.dtype.is_floating_point:
            node.grad = RECORDED
        self.placeholders.add(node)
        return node

    def read(self, cell: Cell) -> Node:
        """The node of a tensor inside the function."""
        node = cell._node  # noqa: SLF001 - cells are of this package
        if node.__class__ is Node and node.serial >= self.first:  # type: ignore[union-attr]
            return node  # type: ignore[return-value]
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
        if before.__class__ is not Node or before.serial < self.first:  # type: ignore[union-attr]
            self.capture(cell)

    def made(self, cell: Cell) -> None:
        """Note a tensor that the function makes."""
        self.created.append((weakref.ref(cell), cell._node))  # type: ignore[arg-type]  # noqa: SLF001

    def depends(self, node: Node) -> bool:
        """Whether a node depends on a placeholder."""
        stack, seen = [node], {node}
        while stack:
            one = stack.pop()
            if one in self.placeholders:
                return True
            new = [a for a in one.args if a not in seen]
            seen.update(new)
            stack += new
        return False

    def look(self, node: Node) -> None:
        """Raise ``InvalidInputError`` if a value is looked at that does not exist yet."""
        if self.depends(node):
            raise InvalidInputError(
                "the value of a tensor is looked at inside a traced function", where=node.span,
                got=f"a tensor of shape {node.sig.out.shape}", help=_HELP)

    def restore(self) -> None:
        """Let tensors from outside refer to what they referred to before."""
        for one in self.captured.values():
            one.after = one.cell._node  # type: ignore[assignment]  # noqa: SLF001
            one.cell._node = one.before  # noqa: SLF001


def trace(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any],
          make: Callable[[Node], Any], *, differentiable: bool = False) -> Traced:
    """Run ``function`` on placeholders for the tensors among the leaves of its arguments.

    ``args`` and ``kwargs`` are nested containers whose tensor leaves are ``Spec``s; ``make`` gives
    the tensor of a placeholder. Gradients that the function left in ``grad`` are taken away.
    """
    if MODE.trace is not None:
        raise InvalidInputError("a function is traced inside a traced function")
    run = Trace()
    parameters: list[Node] = []

    def placed(leaf: Any) -> Any:
        if not isinstance(leaf, Spec):
            return leaf
        parameters.append(run.parameter(leaf, differentiable=differentiable))
        return make(parameters[-1])

    given, named = _mapped(args, placed), _mapped(kwargs, placed)
    MODE.trace = run
    try:
        result = function(*given, **named)
        leaves, structure = flatten(result)
        results = [run.read(leaf) if isinstance(leaf, Cell) else leaf for leaf in leaves]
        del result, given, named
        kept_by_caller = {id(leaf) for leaf in leaves if isinstance(leaf, Cell)}
        gradients = _gradients(run)
        del leaves
    finally:
        MODE.trace = None
        run.restore()
    kept = [(cell, first, cell._node) for cell, first in (  # noqa: SLF001
        (ref(), first) for ref, first in run.created)
        if cell is not None and id(cell) not in kept_by_caller and id(cell) not in gradients]
    return Traced(parameters, list(run.captured.values()), results, structure, kept)  # type: ignore[arg-type]


def _gradients(run: Trace) -> set[int]:
    """Take away the gradients that the function made, whose values exist in the graph alone."""
    found = set()
    for one in run.captured.values():
        gradient = one.cell._grad  # noqa: SLF001
        if gradient is not None and id(gradient) not in run.captured \
                and gradient._node.serial >= run.first:  # noqa: SLF001
            found.add(id(gradient))
            one.cell._grad = None  # noqa: SLF001
    return found


def _mapped(value: Any, function: Callable[[Any], Any]) -> Any:
    leaves, structure = flatten(value)
    return unflatten(structure, [function(leaf) for leaf in leaves])

