"""Programs of a traced function: a table by arguments, and in it one for each state of the guards.

``model.eval()`` fails a guard, which traces the function again; ``model.train()`` finds the first
program again. A trace that gives the graph of a program that is there serves it: only its guards
are new.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any, ClassVar

import numpy as np

from weft.eager.cell import MODE, Cell, bind, leaf_of, node_of
from weft.eager.device import CPU, copied, device, resolved
from weft.eager.node import Node, value_node
from weft.eager.record import apply, wrap
from weft.eager.tracing.calls import Signature, on_device
from weft.eager.tracing.graph import key_of
from weft.eager.tracing.guards import check_of, first_failure_of, same
from weft.eager.tracing.pytree import unflatten
from weft.eager.tracing.trace import Captured, GradientUse, Traced
from weft.support.errors import InvalidInputError

# So many programs are kept for one kind of arguments, the least recently used dropped first.
LIMIT = 64


class Program(abc.ABC):
    """A trace with its guards. ``settled`` says that a call need not trace again: the first trace
    may have made tensors, such as the state of an optimiser, that later ones find.
    """

    def __init__(self, traced: Traced, cells: Sequence[Captured],
                 published: Sequence[tuple[Cell, Node]], *, settled: bool) -> None:
        self.traced = traced
        self.cells = cells
        self.settled = settled and not traced.changed
        self.reason = "the first call"
        self.outputs = [r for r in traced.results if isinstance(r, Node)]
        self.published = published  # tensors made by the function, new at each call
        self.gradients = [use for use in traced.gradients if isinstance(use.after, Node)]
        self._check = check_of(traced.guards)
        self.made = [*self.outputs, *[node for _, node in published],
                     *[use.after for use in self.gradients if isinstance(use.after, Node)]]
        self.known: list[Any] = [one.placeholder for one in cells]
        self.is_known = False  # whether all tensors refer to what they did in the last call
        self._hooks = [_hooks_of(one.cell) for one in cells]
        self._has_hooks = any(self._hooks)
        self._tensors = [one.cell for one in cells]
        self._owned = [(i, one) for i, one in enumerate(cells) if one.owner is not None]
        self._cleared = [use for use in traced.gradients if not isinstance(use.after, Node)]

    # -- guards --------------------------------------------------------------------------------

    def holds(self) -> bool:
        """Whether the program is that of the function now."""
        if not self._check():
            return False
        for number, one in self._owned:
            one.cell = self._tensors[number] = one.owner._grad  # type: ignore[union-attr]  # noqa: SLF001
        if self._has_hooks:
            self.is_known = False
            return self._difference() is None
        for cell, node in zip(self._tensors, self.known, strict=True):
            if cell._node is not node or cell._hooks:  # noqa: SLF001 - cells are of this package
                self.is_known = False
                return self._difference() is None
        return True

    def _difference(self) -> str | None:
        """What is another in the tensors from outside; their values may be."""
        for i, one in enumerate(self.cells):
            node: Any = one.cell._node  # noqa: SLF001
            spec, path = one.placeholder.sig.out, self._path(one)
            if node.sig.out is not spec:
                return (f"{path} was {spec.shape} {spec.dtype}, "
                        f"is {node.sig.out.shape} {node.sig.out.dtype}")
            flag = one.placeholder.grad is not None
            if (leaf_of(node) is not None) != flag:
                return f"{path}.requires_grad was {flag}, is {not flag}"
            if not same(_hooks_of(one.cell), self._hooks[i]):
                return f"the hooks of {path} are others"
            self.known[i] = node
        return None

    def _path(self, one: Captured) -> str:
        return self.traced.paths.get(id(one.cell), "a tensor from outside")

    def difference(self) -> str:
        """Why the program is not that of the function now."""
        failed = first_failure_of(self.traced.guards)
        if failed is not None:
            return failed.failure()
        return self._difference() or "what it computes from Python values"

    def same_as(self, other: Program) -> bool:
        """Whether another trace computes the same from the same tensors."""
        mine, others = self.traced, other.traced
        return len(self.cells) == len(other.cells) \
            and all(a.cell is b.cell and _is_leaf(a) == _is_leaf(b)
                    for a, b in zip(self.cells, other.cells, strict=True)) \
            and mine.structure == others.structure and len(mine.results) == len(others.results) \
            and all((isinstance(a, Node) and isinstance(b, Node)) or same(a, b)
                    for a, b in zip(mine.results, others.results, strict=True)) \
            and [id(u.cell) for u in self.gradients] == [id(u.cell) for u in other.gradients] \
            and key_of(self.computed(), self.parameters) \
            == key_of(other.computed(), other.parameters)

    @abc.abstractmethod
    def computed(self) -> list[Node]:
        """All results of the program, those that are checked among them."""

    @property
    def parameters(self) -> list[Node]:
        """The nodes that stand for arguments and for tensors from outside."""
        return [*self.traced.parameters, *[one.placeholder for one in self.cells]]

    @abc.abstractmethod
    def take_over(self, other: Program) -> None:
        """Use what was compiled for the same graph."""

    # -- results -------------------------------------------------------------------------------

    def finish(self, nodes: Sequence[Node], given: Sequence[Node]) -> Any:
        """Set what the function sets beside its state, from ``made``; return what it returned."""
        count = len(self.outputs)
        for (cell, _), node in zip(self.published, nodes[count:], strict=False):
            cell._node = node  # noqa: SLF001
        if self.traced.gradients:
            self._set_gradients(nodes[count + len(self.published):], given)
        for owner, name, value in self.traced.effects:
            if owner.__dict__.get(name) is not value:
                owner.__dict__[name] = value
        found = iter(nodes)
        return unflatten(self.traced.structure, [
            wrap(next(found)) if isinstance(r, Node) else r for r in self.traced.results])

    def _set_gradients(self, nodes: Sequence[Node], given: Sequence[Node]) -> None:
        for use in self._cleared:
            if use.after is not use.before or use.after is None:
                use.cell._grad = use.after  # noqa: SLF001
        for use, node in zip(self.gradients, nodes, strict=True):
            cell = self._tensor_of(use, given)
            if cell is not None:
                _leave(cell, node, adds=cell is not use.cell and use.is_read)

    def _tensor_of(self, use: GradientUse, given: Sequence[Node]) -> Cell | None:
        """The tensor whose gradient it is: from outside, or the argument of this call."""
        for number, cell in enumerate(self.traced.arguments):
            if cell is use.cell:
                leaf = leaf_of(given[number])
                return None if leaf is None else leaf()
        return use.cell


def _leave(cell: Cell, node: Node, *, adds: bool) -> None:
    before = cell._grad  # noqa: SLF001
    if adds and before is not None:
        bind(before, node_of(apply("add", before, wrap(node))))
    else:
        cell._grad = wrap(node)  # noqa: SLF001


def _is_leaf(one: Captured) -> bool:
    return one.placeholder.grad is not None


def _hooks_of(cell: Cell) -> tuple[Any, ...]:
    hooks = cell._hooks  # noqa: SLF001
    return tuple(hooks.values()) if hooks else ()


class Programs:
    """The programs of one function."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._table: dict[Hashable, list[Program]] = {}
        self._texts: dict[Hashable, str] = {}

    def find(self, key: Hashable) -> Any:
        """The program whose guards hold, if there is one."""
        kept = self._table.get(key)
        if kept is None:
            return None
        for number, program in enumerate(kept):
            if program.settled and program.holds():
                if number:
                    kept.insert(0, kept.pop(number))
                return program
        return None

    def reason(self, key: Hashable) -> str:
        """Why a call of this kind needs another program."""
        kept = self._table.get(key)
        if not kept:
            return "other shapes, dtypes, modes or static arguments" if self._table \
                else "the first call"
        if not kept[0].settled:
            return "state that the first call made"
        return kept[0].difference()

    def add(self, key: Hashable, made: Program, reason: str, arguments: str) -> Any:
        """The program to use for a new trace: this one, with what was compiled for its graph.

        Raises ``InvalidInputError`` if the function changes at each call what it reads.
        """
        kept = self._table.setdefault(key, [])
        self._texts[key] = arguments
        made.reason = reason
        before = next((p for p in kept if not p.settled), None)
        if before is not None:
            self._refuse_changes(before, made)
        for number, program in enumerate(kept):
            if program.same_as(made):
                made.take_over(program)
                made.reason = program.reason
                del kept[number]
                break
        kept[:] = [made, *[p for p in kept if p.settled]][:LIMIT]
        return made

    def _refuse_changes(self, before: Program, made: Program) -> None:
        earlier = {guard.path for guard in before.traced.changed}
        again = [guard for guard in made.traced.changed if guard.path in earlier]
        if again:
            raise InvalidInputError(
                f"{self._name} changes at each call a value of Python that it reads",
                got=again[0].failure(),
                help="change it outside, or keep it in a tensor that is changed in place")

    def all(self) -> list[Any]:
        """All programs."""
        return [program for kept in self._table.values() for program in kept]

    def explain(self) -> str:
        """The programs with their arguments and why each was made."""
        lines = [f"{self._name}: {len(self.all())} program(s)"]
        for key, kept in self._table.items():
            lines.append(f"  arguments: {self._texts[key] or 'none'}")
            for program in kept:
                text = "" if program.settled else " (traced again by the next call)"
                lines.append(f"    {len(program.made)} results, {len(program.cells)} tensors from "
                             f"outside, {len(program.traced.guards)} guards{text}; "
                             f"made for: {program.reason}")
        return "\n".join(lines)

    def clear(self) -> None:
        """Forget all programs."""
        self._table.clear()


class TracedFunction(abc.ABC):
    """A function that runs programs of its traces; in another trace, it is part of that."""

    _kind: ClassVar[str]

    def __init__(self, function: Callable[..., Any], static_argnums: int | Sequence[int],
                 static_argnames: str | Sequence[str], device: Any = None) -> None:
        functools.update_wrapper(self, function)
        self._device = None if device is None else resolved(device)
        self._function = function
        self._signature = Signature(function, static_argnums, static_argnames)
        self._programs = Programs(f"{self._kind} {getattr(function, '__name__', '')}".strip())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if MODE.trace is not None:
            return self._function(*args, **kwargs)
        return self._placed(self._called, args, kwargs)

    def _placed(self, work: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
                ) -> Any:
        """Do the work of a call, with its arguments, on the device of this function."""
        if self._device is None:
            return work(args, kwargs)
        with self._device:
            return work(*on_device((args, kwargs), self._device))

    @abc.abstractmethod
    def _called(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the program for these arguments, which are on the device; trace one if needed."""


def values_of(arrays: Sequence[Any], nodes: Sequence[Node], where: device) -> list[Node]:
    """The results of a program of a device as nodes of the devices of ``nodes``."""
    if where is CPU:
        return [value_node(np.asarray(array), node.sig.out.dtype)
                for array, node in zip(arrays, nodes, strict=False)]
    found = []
    for array, node in zip(arrays, nodes, strict=False):
        spec = node.sig.out
        value = array if spec.device is where else copied(array, where, spec.device)
        found.append(value_node(value, spec.dtype, spec.device))
    return found
