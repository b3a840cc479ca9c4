"""``weft.train_step``: a whole training step as one compiled program whose state is in place."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.compiler.api import compile as compile_module
from weft.compiler.initial_state import export_with_state
from weft.eager.cell import MODE, Cell
from weft.eager.checks import Check, finite_checks, first_failure
from weft.eager.evaluate import flush, value_of
from weft.eager.node import Node, Spec, value_node
from weft.eager.record import wrap
from weft.eager.tracing.calls import Arguments, Signature
from weft.eager.tracing.graph import graph_module, key_of, order_of
from weft.eager.tracing.jit import argument_array, traced_call
from weft.eager.tracing.memory import StepMemory, array_of
from weft.eager.tracing.pytree import unflatten
from weft.eager.tracing.trace import Captured, Traced
from weft.support.errors import InvalidInputError
from weft.support.interrupts import interrupts_held


def train_step(function: Callable[..., Any] | None = None, *,
               static_argnums: int | Sequence[int] = (),
               static_argnames: str | Sequence[str] = (), debug_nans: bool = False) -> Any:
    """Compile a training step whole: loss, gradients, clipping, optimiser, running averages.

    The first call with arguments of some shapes and dtypes traces the function, as ``weft.jit``
    does. Every tensor that it reads and changes (parameters, buffers, the state of the optimiser,
    the key of a generator) becomes state of the program, which updates it in place: a step copies
    and allocates nothing but its results. The tensors show the present values at any time. Calls
    with other shapes compile a second program over the same state.

    A step is never left half done: Python handles an interrupt before or after it. Gradients that
    the function leaves in ``grad`` of a parameter are values inside the step, and ``grad`` is
    ``None`` afterwards, unless it was a tensor before (``zero_grad(set_to_none=False)``), which
    then accumulates from step to step.

    ``debug_nans`` checks every result, and ``AnomalyError`` names the first operator that made a
    NaN or an infinity, after the step. An index out of range is an error after the step, too.

    Numbers of Python that the function reads from outside, such as a learning rate, are constants
    of the program: keep one that changes in a tensor.
    """
    if function is None:
        return functools.partial(train_step, static_argnums=static_argnums,
                                 static_argnames=static_argnames, debug_nans=debug_nans)
    return TrainStep(function, static_argnums, static_argnames, debug_nans=debug_nans)


class TrainStep:
    """A compiled training step; call it like the function."""

    def __init__(self, function: Callable[..., Any], static_argnums: int | Sequence[int],
                 static_argnames: str | Sequence[str], *, debug_nans: bool = False) -> None:
        functools.update_wrapper(self, function)
        self._debug_nans = debug_nans
        self._function = function
        self._signature = Signature(function, static_argnums, static_argnames)
        self._programs: dict[Any, _Program] = {}
        self._last: _Program | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if MODE.trace is not None:
            return self._function(*args, **kwargs)
        bound = self._signature.bind(args, kwargs)
        program = self._programs.get(bound.key)
        if program is None or not program.settled or not program.fits():
            program = self._traced(bound, args, kwargs, program)
        self._last = program
        return program.run(bound.dynamic)

    def _traced(self, bound: Arguments, args: tuple[Any, ...], kwargs: dict[str, Any],
                before: _Program | None) -> _Program:
        """The program for a call; ``before`` again if tracing gives the same graph."""
        flush()
        names = [n for n, leaf in zip(self._signature.names_of(args, kwargs), bound.leaves,
                                      strict=True) if isinstance(leaf, Spec)]
        made = _Program(traced_call(self._function, bound), names, finite=self._debug_nans)
        if before is not None and before.same_as(made):
            before.settled = True
            return before
        self._programs[bound.key] = made
        return made

    def states(self) -> list[Any]:
        """The tensors that are state of the last program, in the order of its states."""
        return [] if self._last is None else [one.cell for one in self._last.states]

    def export(self, path: str | os.PathLike[str], *, kind: str = "weft") -> None:
        """Write the program of the last call with the present state as an artifact.

        ``weft.load(path)`` trains on, in a process without a compiler: it takes the arguments that
        are tensors or numbers, and its ``state`` are the tensors. ``kind="c"`` makes a C program.
        Raises what ``CompiledModel.export`` raises, and ``InvalidInputError`` before the first
        call.
        """
        if self._last is None:
            raise InvalidInputError("a step is exported before its first call",
                                    help="call it once: the arguments give the shapes")
        self._last.export(path, kind)

    def cache_clear(self) -> None:
        """Forget all programs; the state stays in the tensors."""
        self._programs.clear()


class _Program:
    """A traced step, compiled at its first run.

    ``settled`` says that a call need not trace again: the first trace may have made tensors, such
    as the state of an optimiser, that later ones find.
    """

    def __init__(self, traced: Traced, names: Sequence[str], *, finite: bool) -> None:
        self.traced = traced
        self.names = names
        self.outputs = [r for r in traced.results if isinstance(r, Node)]
        captured = list(traced.captured)
        self.published: list[tuple[Cell, Node]] = []  # made by the step, new at each call
        fixed = {one.placeholder for one in captured} | set(traced.parameters)
        for cell, first, last in traced.kept:
            if _depends(first, fixed):
                self.published.append((cell, last))
                continue
            cell._node = first  # noqa: SLF001 - cells are of this package
            captured.append(Captured(cell, first, first, last))
        self.settled = len(captured) == len(traced.captured)
        self.states = [one for one in captured if one.after is not one.placeholder]
        self.read = [one for one in captured if one.after is one.placeholder]
        self.specs = [one.placeholder.sig.out for one in (*self.read, *self.states)]
        self.checks = self._made_checks(finite=finite)
        self._module: Any = None
        self._memory: list[StepMemory] = []

    def _made_checks(self, *, finite: bool) -> list[tuple[Node, Check]]:
        """What must hold at each run: that indices are in range, and with ``finite`` all values."""
        order = order_of([*self.outputs, *[node for _, node in self.published],
                          *[one.after for one in self.states]], set(self.parameters))
        checks = [(node, node.check) for node in order if node.check is not None]
        return [*checks, *finite_checks(order)] if finite else checks

    @property
    def parameters(self) -> list[Node]:
        """The nodes that stand for arguments, for tensors that are read, and for the state."""
        return [*self.traced.parameters,
                *[one.placeholder for one in (*self.read, *self.states)]]

    @property
    def results(self) -> list[Node]:
        return [*self.outputs, *[node for _, node in self.published],
                *[check.holds for _, check in self.checks], *[one.after for one in self.states]]

    @property
    def count(self) -> int:
        """How many results the program returns beside the state."""
        return len(self.outputs) + len(self.published) + len(self.checks)

    def same_as(self, other: _Program) -> bool:
        """Whether another trace computes the same from the same tensors."""
        cells, others = [[one.cell for one in (*p.read, *p.states)] for p in (self, other)]
        return len(cells) == len(others) and other.settled \
            and all(a is b for a, b in zip(cells, others, strict=True)) \
            and not self.published and not other.published \
            and key_of(self.results, self.parameters) == key_of(other.results, other.parameters)

    def fits(self) -> bool:
        """Whether tensors from outside have the shapes and dtypes that were traced."""
        return all(one.cell._node.sig.out is spec for one, spec in zip(  # noqa: SLF001
            (*self.read, *self.states), self.specs, strict=True))

    def run(self, given: Sequence[Node]) -> Any:
        """Run the step on the arguments, and return what the function returned."""
        module = self._prepared()
        arrays = [argument_array(node) for node in given]
        arrays += [array_of(one.cell) for one in self.read]
        with interrupts_held():
            for memory in self._memory:
                memory.changed()
            results = module(*arrays)
        count = len(self.outputs)
        if self.count == 1:
            results = (results,)
        error = first_failure(self.checks, results[count + len(self.published):self.count]) \
            if self.checks else None
        if error is not None:
            raise error
        for (cell, node), array in zip(self.published, results[count:], strict=False):
            cell._node = value_node(array, node.sig.out.dtype)  # noqa: SLF001
        found = iter([wrap(value_node(array, node.sig.out.dtype))
                      for node, array in zip(self.outputs, results, strict=False)])
        return unflatten(self.traced.structure, [
            next(found) if isinstance(r, Node) else r for r in self.traced.results])

    def _prepared(self) -> Any:
        """The module, with the present values of the tensors in its state."""
        if self._module is None:
            self._module = self._compiled()
        for number, one in enumerate(self.states):
            node = one.cell._node  # noqa: SLF001
            if node is not self._memory[number]:
                self._place(number, one.cell)
        return self._module

    def _place(self, number: int, cell: Cell) -> None:
        """Copy the value of a tensor that was changed outside the step to the memory."""
        memory = self._memory[number]
        node: Any = cell._node  # noqa: SLF001
        if isinstance(node, StepMemory):  # another program of this tensor made other memory
            self._memory[number] = node
            self._share()
            return
        memory.changed()
        np.copyto(memory.array, value_of(node))
        cell._node = memory  # noqa: SLF001

    def _share(self) -> None:
        self._module.share_state({f"s{i}": m.array for i, m in enumerate(self._memory)})

    def _compiled(self) -> Any:
        names = [*self.names, *[f"r{i}" for i in range(len(self.read))]]
        compiled = self._compiled_with([*self.traced.parameters,
                                        *[one.placeholder for one in self.read]], names)
        # At once: state that the first step makes would otherwise be a program for each tensor.
        flush(*[one.cell._node for one in self.states  # noqa: SLF001
                if isinstance(one.cell._node, Node)])  # noqa: SLF001
        for one in self.states:
            if not isinstance(one.cell._node, StepMemory):  # noqa: SLF001
                one.cell._node = StepMemory(one.cell)  # noqa: SLF001
        nodes: list[Any] = [one.cell._node for one in self.states]  # noqa: SLF001
        self._memory = nodes
        self._module = compiled
        self._share()
        return compiled

    def _compiled_with(self, parameters: Sequence[Node], names: Sequence[str]) -> Any:
        """The step as a module with these parameters beside the state."""
        states = [f"s{i}" for i in range(len(self.states))]
        outputs = [f"output{i}" for i in range(self.count)]
        after = [f"next_{name}" for name in states]
        module = graph_module([*parameters, *[one.placeholder for one in self.states]],
                              [*names, *states], self.results, [*outputs, *after])
        return compile_module(module, state=dict(zip(after, states, strict=True)))

    def export(self, path: str | os.PathLike[str], kind: str) -> None:
        """Write the program with the present state; tensors that it only reads are constants."""
        module = self._prepared()
        if self.read:
            for one in self.read:
                one.placeholder.value = np.array(array_of(one.cell))
            try:
                module = self._compiled_with(self.traced.parameters, self.names)
            finally:
                for one in self.read:
                    one.placeholder.value = None
        states = {f"s{i}": memory.array for i, memory in enumerate(self._memory)}
        export_with_state(module, states, path, kind)


def _depends(node: Node, parameters: set[Node]) -> bool:
    """Whether a node is computed from a parameter."""
    stack, seen = [node], {node}
    while stack:
        one = stack.pop()
        if one in parameters:
            return True
        new = [a for a in one.args if a not in seen]
        seen.update(new)
        stack += new
    return False
