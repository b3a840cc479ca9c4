"""``weft.jit``: a function of tensors as one compiled program per set of shapes and dtypes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.eager.cell import MODE, Cell, bind, node_of
from weft.eager.checks import Check, first_failure
from weft.eager.device import compiled
from weft.eager.evaluate import value_of
from weft.eager.loop import is_endless
from weft.eager.node import NUMBER, Node, Spec
from weft.eager.record import made
from weft.eager.tracing.calls import Arguments
from weft.eager.tracing.graph import device_of, graph_module, order_of
from weft.eager.tracing.memory import array_of
from weft.eager.tracing.programs import Program, TracedFunction, values_of
from weft.eager.tracing.pytree import unflatten
from weft.eager.tracing.trace import Traced, trace_graph
from weft.eager.tracing.traced_module import module_for
from weft.eager.tracing.watch import Watch
from weft.ir.module import IRModule
from weft.support.errors import InvalidInputError


def jit(function: Callable[..., Any] | None = None, *, static_argnums: int | Sequence[int] = (),
        static_argnames: str | Sequence[str] = (), device: Any = None) -> Any:
    """Compile a function of tensors.

    The first call with arguments of some shapes and dtypes runs the function once, on tensors
    without values; the recorded operators are compiled, and calls of this kind run the program
    alone. Arguments are tensors, arrays and numbers, in nested tuples, lists, dicts and
    dataclasses; others (strings, ``None``) and those named static are part of the key. Side
    effects such as ``print`` happen while tracing only. Tensors that the function reads from
    outside are read at every call, and those that it changes are changed by every call.

    The program runs where the tensors are. With ``device``, arguments are copied there, and tensors
    that the function makes are there.

    Gradients flow through a call: its operators are then recorded with those around it.
    """
    if function is None:
        return functools.partial(jit, static_argnums=static_argnums,
                                 static_argnames=static_argnames, device=device)
    return Jitted(function, static_argnums, static_argnames, device)


class Jitted(TracedFunction):
    """A function whose traces are kept by the shapes, dtypes and static values of arguments."""

    _kind = "jit"

    def _called(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        bound = self._signature.bind(args, kwargs)
        flows = bound.flows()
        key = (bound.key, MODE.key, flows)
        program = self._programs.find(key)
        if program is None:
            reason = self._programs.reason(key)
            made = _Program(traced_call(self._function, bound))
            names = [n for n, leaf in zip(self._signature.names_of(args, kwargs), bound.leaves,
                                          strict=True) if isinstance(leaf, Spec)]
            program = self._programs.add(key, made, reason, bound.text(names))
        if program.needs_function(bound.dynamic):
            return self._function(*args, **kwargs)
        return program(bound.dynamic)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self.__call__, instance)

    def module(self, *args: Any, **kwargs: Any) -> IRModule:
        """The program of the IR for these arguments."""
        return module_for(self._function, self._signature, args, kwargs)

    def explain(self) -> str:
        """The programs of this function, and why each was made."""
        return self._programs.explain()

    def cache_clear(self) -> None:
        """Forget all programs."""
        self._programs.clear()


def traced_call(function: Callable[..., Any], bound: Arguments) -> Traced:
    """The graph of a function for arguments of these specs, with its guards."""
    args, kwargs = unflatten(bound.structure, bound.leaves)
    with Watch() as watch:
        return trace_graph(function, args, kwargs, Cell.made, differentiable=bound.flows() or (),
                           watch=watch)


class _Program(Program):
    """A trace and its compiled program."""

    def __init__(self, traced: Traced) -> None:
        if traced.kept:
            raise InvalidInputError(
                "a jitted function keeps a tensor that it makes", where=traced.kept[0][1].span,
                help="return it; weft.train_step keeps tensors as state")
        super().__init__(traced, traced.captured, (), settled=True)
        self.changed = [one for one in traced.captured if one.after is not one.placeholder]
        order = order_of(self.graph(), set(self.parameters))
        self.has_links = any(node.link is not None or is_endless(node) for node in order)
        self.checks: list[tuple[Node, Check]] = [
            (node, node.check) for node in order if node.check is not None]
        self._where = device_of(self.computed(), self.parameters)
        self._module: Any = None

    def graph(self) -> list[Node]:
        return [*self.made, *[one.after for one in self.changed]]

    def take_over(self, other: Program) -> None:
        assert isinstance(other, _Program)
        self._module = other._module  # noqa: SLF001

    def __call__(self, given: list[Node]) -> Any:
        cells = [one.cell for one in self.cells]
        if self._flows(given):
            nodes = self._recorded([*given, *map(node_of, cells)])
        else:
            nodes = self._run([*[argument_array(n) for n in given],
                               *[array_of(cell) for cell in cells]])
        for one, node in zip(self.changed, nodes[len(self.made):], strict=True):
            bind(one.cell, node)
        return self.finish(nodes[:len(self.made)], given)

    def _flows(self, given: list[Node]) -> bool:
        """Whether gradients flow through a call."""
        nodes = [one.cell._node for one in self.cells]  # noqa: SLF001
        return MODE.grad and any(getattr(n, "grad", None) is not None for n in (*given, *nodes))

    def needs_function(self, given: list[Node]) -> bool:
        """Whether gradients flow through what has none in a trace: a user's ``backward``, and a
        loop whose number of steps is unknown.
        """
        return self.has_links and self._flows(given)

    def _run(self, arrays: list[Any]) -> list[Node]:
        if self._module is None:
            self._module = self._compiled()
        graph = self.graph()
        results = self._module(*arrays)
        error = first_failure(self.checks, results[len(graph):], self._where)
        if error is not None:
            raise error
        return values_of(results[:len(graph)], graph, self._where)

    def computed(self) -> list[Node]:
        """The results, what tensors from outside become, and what must hold."""
        return [*self.graph(), *[check.holds for _, check in self.checks]]

    def _compiled(self) -> Any:
        results = self.computed()
        if not results:
            return lambda *_: ()
        names = [f"x{i}" for i in range(len(self.parameters))]
        outputs = [f"y{i}" for i in range(len(results))]
        return compiled(self._where, graph_module(self.parameters, names, results, outputs))

    def _recorded(self, given: list[Node]) -> list[Node]:
        """The call as a part of what is recorded, so that gradients flow through it."""
        copy: dict[Node, Node] = dict(zip(self.parameters, given, strict=True))
        for node in order_of(self.computed(), set(self.parameters)):
            copy[node] = again = made(node.sig, tuple([copy.get(a, a) for a in node.args]))
            again.site = node.site
            again.extra = node.extra
            if node.grad is None:
                again.grad = None
        for node, check in self.checks:
            copy[node].check = dataclasses.replace(check, holds=copy[check.holds])
        return [copy.get(node, node) for node in self.graph()]


def argument_array(node: Node) -> Any:
    """The array of an argument of a call, in the memory where it is."""
    if node.sig.kind == NUMBER:
        return np.asarray(node.value, node.sig.out.dtype.numpy)
    return value_of(node)
