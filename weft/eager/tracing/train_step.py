"""``weft.train_step``: a whole training step as one compiled program whose state is in place."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

from weft.compiler.compilation import export_with_state
from weft.eager.cell import MODE, Cell, leaf_of
from weft.eager.checks import Check, finite_checks, first_failure
from weft.eager.device import CPU, Placed, compiled, on_host
from weft.eager.evaluate import flush
from weft.eager.node import Node, Spec, depends_on
from weft.eager.tracing.calls import Arguments
from weft.eager.tracing.graph import device_of, graph_module, order_of
from weft.eager.tracing.jit import argument_array, traced_call
from weft.eager.tracing.memory import StepMemory, array_of, place
from weft.eager.tracing.names import state_names
from weft.eager.tracing.programs import Program, TracedFunction, values_of
from weft.eager.tracing.trace import Captured, Traced
from weft.ir.module import IRModule
from weft.support.deprecation import renamed_arguments
from weft.support.errors import InvalidInputError
from weft.support.interpreter import interrupts_held


def train_step(function: Callable[..., Any] | None = None, *,
               static_argnums: int | Sequence[int] = (),
               static_argnames: str | Sequence[str] = (), debug_nans: bool = False,
               device: Any = None) -> Any:
    """Compile a training step whole: loss, gradients, clipping, optimiser, running averages.

    The first call with arguments of some shapes and dtypes traces the function, as ``weft.jit``
    does. Every tensor that it reads and changes (parameters, buffers, the state of the optimiser,
    the key of a generator) becomes state of the program, which updates it in place: a step copies
    and allocates nothing but its results. The tensors show the present values at any time. Calls
    with other shapes compile a second program over the same state.

    A step is never left half done: Python handles an interrupt before or after it. The gradients of
    tensors that the step itself updates are values inside it, and their ``grad`` is ``None``
    afterwards; other gradients are left in ``grad``, and accumulate, as without the compiler.

    A step runs where its tensors are: after ``model.to("cuda")``, arguments must be there too. With
    ``device``, arguments are copied there, and tensors that the step makes are there.

    ``debug_nans`` checks every result, and ``AnomalyError`` names the first operator that made a
    NaN or an infinity, after the step. An index out of range is an error after the step, too.

    Options of optimisers are inputs of the program. Other Python values that the function reads
    from outside (attributes of modules and of other objects, closures, globals, containers, modes
    such as ``no_grad``) are guarded: with another value the function is traced again, and both
    programs are kept; ``explain()`` lists them. A function that changes at each call what it reads
    is refused (``InvalidInputError``).
    """
    if function is None:
        return functools.partial(train_step, static_argnums=static_argnums,
                                 static_argnames=static_argnames, debug_nans=debug_nans,
                                 device=device)
    return TrainStep(function, static_argnums, static_argnames, debug_nans=debug_nans,
                     device=device)


class TrainStep(TracedFunction):
    """A compiled training step; call it like the function."""

    _kind = "train_step"

    def __init__(self, function: Callable[..., Any], static_argnums: int | Sequence[int],
                 static_argnames: str | Sequence[str], *, debug_nans: bool = False,
                 device: Any = None) -> None:
        super().__init__(function, static_argnums, static_argnames, device)
        self._debug_nans = debug_nans
        self._last: _Program | None = None

    def _called(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._last, given = self._found(args, kwargs)
        return self._last.run(given)

    def _found(self, args: tuple[Any, ...], kwargs: dict[str, Any]
               ) -> tuple[_Program, Sequence[Node]]:
        """The program for a call, and the arguments that it takes; traces one if needed."""
        bound = self._signature.bind(args, kwargs)
        flows = bound.flows()
        if flows is not None:
            _check_leaves(bound)
        key = (bound.key, MODE.key, flows)
        program = self._programs.find(key)
        if program is None:
            program = self._traced(key, bound, args, kwargs)
        return program, bound.dynamic

    def _traced(self, key: Any, bound: Arguments, args: tuple[Any, ...], kwargs: dict[str, Any]
                ) -> _Program:
        """The program for a call; one that was there if tracing gives the same graph."""
        reason = self._programs.reason(key)
        flush()
        names = [n for n, leaf in zip(self._signature.names_of(args, kwargs), bound.leaves,
                                      strict=True) if isinstance(leaf, Spec)]
        finite = self._debug_nans or MODE.anomaly
        made = _Program(traced_call(self._function, bound), names, finite=finite)
        return self._programs.add(key, made, reason, bound.text(names))

    def states(self) -> list[Any]:
        """The tensors that are state of the last program, in the order of its states."""
        return [] if self._last is None else [one.cell for one in self._last.states]

    def explain(self) -> str:
        """The programs of this step: for which arguments, and which value made each necessary."""
        return self._programs.explain()

    @renamed_arguments(kind="format")
    def export(self, path: str | os.PathLike[str], *, format: str = "weft", **options: Any) -> None:
        """Write the program of the last call with the present state as an artifact.

        ``weft.load(path)`` trains on, in a process without a compiler: it takes the arguments that
        are tensors or numbers, and its ``state`` are the tensors, named as the model and the
        optimiser name them (``body.0.weight``, ``optimizer.exp_avg.body.0.weight``).
        ``format="c"`` makes a C program; ``options`` are those of ``Executable.export``, which says
        what is raised, beside ``InvalidInputError`` before the first call.
        """
        export_with_state(*self.exported(), path, format, **options)

    def exported(self) -> tuple[Any, dict[str, Any]]:
        """The program of the last call, and the present values of its states by name."""
        if self._last is None:
            raise InvalidInputError("a step is exported before its first call",
                                    help="call it once: the arguments give the shapes")
        return self._last.exported()

    def program_for(self, *args: Any, **kwargs: Any) -> tuple[Any, list[Node]]:
        """The traced program for a call, which does not run, and the arguments that it takes."""
        found, given = self._placed(self._found, args, kwargs)
        return found, list(given)

    def cache_clear(self) -> None:
        """Forget all programs; the state stays in the tensors."""
        self._programs.clear()


class _Program(Program):
    """A traced step, compiled at its first run."""

    def __init__(self, traced: Traced, names: Sequence[str], *, finite: bool) -> None:
        captured = list(traced.captured)
        published: list[tuple[Cell, Node]] = []
        fixed = {one.placeholder for one in captured} | set(traced.parameters)
        for cell, first, last in traced.kept:
            if depends_on(first, fixed):
                published.append((cell, last))
                continue
            cell._node = first  # noqa: SLF001 - cells are of this package
            captured.append(Captured(cell, first, first, last))
        self.states = [one for one in captured if one.after is not one.placeholder]
        self.read = [one for one in captured if one.after is one.placeholder]
        super().__init__(traced, [*self.read, *self.states], published,
                         settled=len(captured) == len(traced.captured))
        self.names = list(names)
        self.state_names = state_names(traced, [one.cell for one in self.states], names)
        self.checks = self._made_checks(finite=finite)
        self.device = device_of(self.computed(), self.parameters)
        self._module: Any = None
        self._memory: list[StepMemory] = []

    def _made_checks(self, *, finite: bool) -> list[tuple[Node, Check]]:
        """What must hold at each run: that indices are in range, and with ``finite`` all values."""
        order = order_of([*self.made, *[one.after for one in self.states]], set(self.parameters))
        checks = [(node, node.check) for node in order if node.check is not None]
        return [*checks, *finite_checks(order)] if finite else checks

    def computed(self) -> list[Node]:
        return [*self.made, *[check.holds for _, check in self.checks],
                *[one.after for one in self.states]]

    @property
    def count(self) -> int:
        """How many results the program returns beside the state."""
        return len(self.made) + len(self.checks)

    def take_over(self, other: Program) -> None:
        assert isinstance(other, _Program)
        self._module, self._memory = other._module, other._memory  # noqa: SLF001
        self.state_names = other.state_names

    def run(self, given: Sequence[Node]) -> Any:
        """Run the step on the arguments, and return what the function returned."""
        module = self._module if self.is_known else self._prepared()
        arrays = [argument_array(node) for node in given]
        arrays += [array_of(one.cell) for one in self.read]
        with interrupts_held():
            for memory in self._memory:
                memory.changed()
            results = module(*arrays)
        if self.count == 1 and not isinstance(module, Placed):
            results = (results,)
        return self.finished(results, given)

    def finished(self, results: Sequence[Any], given: Sequence[Node]) -> Any:
        """What the function returned; raises the error of the first check that found one."""
        made = self.made
        error = first_failure(self.checks, results[len(made):self.count], self.device) \
            if self.checks else None
        if error is not None:
            raise error
        return self.finish(values_of(results, made, self.device), given)

    def _prepared(self) -> Any:
        """The module, with the present values of the tensors in its state."""
        if self._module is None:
            self._module = self._compiled()
        is_other = False
        for number, one in enumerate(self.states):
            if one.cell._node is not self._memory[number]:  # noqa: SLF001
                is_other |= self._place(number, one.cell)
        if is_other:
            self._share()
        self.known[len(self.read):] = self._memory
        self.is_known = True
        return self._module

    def _place(self, number: int, cell: Cell) -> bool:
        """Let the memory have the value of a tensor that was changed outside the step.

        Returns whether the memory is another: that of another program of this tensor.
        """
        memory = self._memory[number]
        node: Any = cell._node  # noqa: SLF001
        if isinstance(node, StepMemory):
            if node.device is not memory.device:  # that of a step on another device
                node = StepMemory(cell, memory.device)
                place(cell, node)
            self._memory[number] = node
            return node.array is not memory.array
        self._memory[number] = memory.moved_to(cell, node)
        return False

    def _share(self) -> None:
        if self.states:
            self._module.share_state({name: memory.array for name, memory in zip(
                self.state_names, self._memory, strict=True)})

    def _compiled(self) -> Any:
        names = [*self.names, *[f"r{i}" for i in range(len(self.read))]]
        made = self._compiled_with([*self.traced.parameters,
                                        *[one.placeholder for one in self.read]], names)
        # At once: state that the first step makes would otherwise be a program for each tensor.
        flush(*[one.cell._node for one in self.states  # noqa: SLF001
                if isinstance(one.cell._node, Node)])  # noqa: SLF001
        for one, name in zip(self.states, self.state_names, strict=True):
            where = self.device
            if isinstance(made, Placed) and not made.keeps(name):
                where = CPU
            node: Any = one.cell._node  # noqa: SLF001
            if not isinstance(node, StepMemory) or node.device is not where:
                place(one.cell, StepMemory(one.cell, where))
        nodes: list[Any] = [one.cell._node for one in self.states]  # noqa: SLF001
        self._memory = nodes
        self._module = made
        self._share()
        return made

    def _compiled_with(self, parameters: Sequence[Node], names: Sequence[str], *,
                       is_checked: bool = True) -> Any:
        """The step as a module with these parameters beside the state."""
        if not self.count and not self.states:
            return lambda *_: ()
        count = self.count if is_checked else len(self.made)
        results = self.computed()
        del results[count:self.count]
        outputs = [f"output{i}" for i in range(count)]
        after = [f"next.{name}" for name in self.state_names]
        module = graph_module([*parameters, *[one.placeholder for one in self.states]],
                              [*names, *self.state_names], results, [*outputs, *after],
                              one=count == 1 and not self.states)
        return compiled(self.device, module,
                        state=dict(zip(after, self.state_names, strict=True)))

    def without_state(self) -> IRModule:
        """The step as a function: tensors that it reads, and the state, are its last parameters.

        The results are those of the function, what checks found, and the state afterwards.
        """
        cells = [*self.read, *self.states]
        names = [*self.names, *[f"r{i}" for i in range(len(self.read))], *self.state_names]
        outputs = [f"output{i}" for i in range(self.count)]
        return graph_module(
            [*self.traced.parameters, *[one.placeholder for one in cells]], names, self.computed(),
            [*outputs, *[f"next.{name}" for name in self.state_names]])

    def exported(self) -> tuple[Any, dict[str, Any]]:
        """The program and the present state; tensors that it only reads are constants.

        Checks stay out: a program of its own gives NaN for a label out of range.
        """
        module = self._prepared()
        if self.read or self.checks:
            for one in self.read:
                where = one.placeholder.sig.out.device
                one.placeholder.value = where.memory.clone(array_of(one.cell))
            try:
                module = self._compiled_with(self.traced.parameters, self.names, is_checked=False)
            finally:
                for one in self.read:
                    one.placeholder.value = None
        states = {name: on_host(memory.array, memory.device)
                  for name, memory in zip(self.state_names, self._memory, strict=True)}
        return getattr(module, "module", module), states


def _check_leaves(bound: Arguments) -> None:
    """Raise ``InvalidInputError`` for arguments through which gradients would leave the step."""
    for node in bound.dynamic:
        if node.grad is not None and leaf_of(node) is None:
            raise InvalidInputError(
                "an argument of a train_step was computed with gradients", where=node.span,
                help="pass x.detach(), or compute it inside the step")
