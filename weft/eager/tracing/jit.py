"""``weft.jit``: a function of tensors as one compiled program per set of shapes and dtypes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.compiler.api import compile as compile_module
from weft.eager.cell import MODE, Cell, bind, node_of
from weft.eager.evaluate import value_of
from weft.eager.node import NUMBER, Node, value_node
from weft.eager.record import made, wrap
from weft.eager.tracing.calls import Arguments, Signature
from weft.eager.tracing.graph import graph_module, order_of
from weft.eager.tracing.memory import array_of
from weft.eager.tracing.pytree import unflatten
from weft.eager.tracing.trace import Traced, trace
from weft.eager.tracing.traced_module import module_for
from weft.ir.module import IRModule
from weft.support.errors import InvalidInputError


def jit(function: Callable[..., Any] | None = None, *, static_argnums: int | Sequence[int] = (),
        static_argnames: str | Sequence[str] = ()) -> Any:
    """Compile a function of tensors.

    The first call with arguments of some shapes and dtypes runs the function once, on tensors
    without values; the recorded operators are compiled, and calls of this kind run the program
    alone. Arguments are tensors, arrays and numbers, in nested tuples, lists, dicts and
    dataclasses; others (strings, ``None``) and those named static are part of the key. Side
    effects such as ``print`` happen while tracing only. Tensors that the function reads from
    outside are read at every call, and those that it changes are changed by every call.

    Gradients flow through a call: its operators are then recorded with those around it.
    """
    if function is None:
        return functools.partial(jit, static_argnums=static_argnums,
                                 static_argnames=static_argnames)
    return Jitted(function, static_argnums, static_argnames)


class Jitted:
    """A function whose traces are kept by the shapes, dtypes and static values of arguments."""

    def __init__(self, function: Callable[..., Any], static_argnums: int | Sequence[int],
                 static_argnames: str | Sequence[str]) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._signature = Signature(function, static_argnums, static_argnames)
        self._programs: dict[Any, _Program] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if MODE.trace is not None:
            return self._function(*args, **kwargs)
        bound = self._signature.bind(args, kwargs)
        flows = MODE.grad and any(node.grad is not None for node in bound.dynamic)
        key = (bound.key, MODE.grad, flows)
        program = self._programs.get(key)
        if program is None or not program.fits():
            traced = traced_call(self._function, bound, differentiable=flows)
            program = self._programs[key] = _Program(traced)
        if program.needs_function(bound.dynamic):
            return self._function(*args, **kwargs)
        return program(bound.dynamic)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self.__call__, instance)

    def module(self, *args: Any, **kwargs: Any) -> IRModule:
        """The program of the IR for these arguments."""
        return module_for(self._function, self._signature, args, kwargs)

    def cache_clear(self) -> None:
        """Forget all programs."""
        self._programs.clear()


def traced_call(function: Callable[..., Any], bound: Arguments, *, differentiable: bool = False
                ) -> Traced:
    """The graph of a function for arguments of these specs."""
    args, kwargs = unflatten(bound.structure, bound.leaves)
    return trace(function, args, kwargs, Cell.made, differentiable=differentiable)


class _Program:
    """A trace and its compiled program."""

    def __init__(self, traced: Traced) -> None:
        self.traced = traced
        if traced.kept:
            raise InvalidInputError(
                "a jitted function keeps a tensor that it makes", where=traced.kept[0][1].span,
                help="return it; weft.train_step keeps tensors as state")
        self.changed = [one for one in traced.captured if one.after is not one.placeholder]
        self.results = [r for r in traced.results if isinstance(r, Node)]
        self.specs = [one.placeholder.sig.out for one in traced.captured]
        self.parameters = [*traced.parameters, *[one.placeholder for one in traced.captured]]
        self.has_links = any(node.link is not None for node in order_of(
            [*self.results, *[one.after for one in self.changed]], set(self.parameters)))
        self._module: Any = None

    def fits(self) -> bool:
        """Whether tensors from outside have the shapes and dtypes that were traced."""
        return all(one.cell._node.sig.out is spec  # noqa: SLF001
                   for one, spec in zip(self.traced.captured, self.specs, strict=True))

    def __call__(self, given: list[Node]) -> Any:
        cells = [one.cell for one in self.traced.captured]
        if self._flows(given):
            return self._recorded([*given, *map(node_of, cells)])
        return self._run([*[argument_array(n) for n in given],
                          *[array_of(cell) for cell in cells]])

    def _flows(self, given: list[Node]) -> bool:
        """Whether gradients flow through a call."""
        nodes = [one.cell._node for one in self.traced.captured]  # noqa: SLF001
        return MODE.grad and any(getattr(n, "grad", None) is not None for n in (*given, *nodes))

    def needs_function(self, given: list[Node]) -> bool:
        """Whether gradients flow through a user's ``backward``, which a trace does not hold."""
        return self.has_links and self._flows(given)

    def _run(self, arrays: list[np.ndarray]) -> Any:
        if self._module is None:
            self._module = self._compiled()
        results = self._module(*arrays)
        after = [value_node(np.asarray(a), one.placeholder.sig.out.dtype) for a, one in zip(
            results[len(self.results):], self.changed, strict=True)]
        for one, node in zip(self.changed, after, strict=True):
            bind(one.cell, node)
        found = iter([value_node(a, r.sig.out.dtype)
                      for a, r in zip(results, self.results, strict=False)])
        return self._returned([wrap(n) for n in found])

    def _returned(self, tensors: list[Any]) -> Any:
        found = iter(tensors)
        return unflatten(self.traced.structure, [
            next(found) if isinstance(r, Node) else r for r in self.traced.results])

    def _compiled(self) -> Any:
        results = [*self.results, *[one.after for one in self.changed]]
        if not results:
            return lambda *_: ()
        names = [f"x{i}" for i in range(len(self.parameters))]
        outputs = [f"y{i}" for i in range(len(results))]
        return compile_module(graph_module(self.parameters, names, results, outputs))

    def _recorded(self, given: list[Node]) -> Any:
        """The call as a part of what is recorded, so that gradients flow through it."""
        results = [*self.results, *[one.after for one in self.changed]]
        copy: dict[Node, Node] = dict(zip(self.parameters, given, strict=True))
        for node in order_of(results, set(self.parameters)):
            copy[node] = again = made(node.sig, tuple([copy.get(a, a) for a in node.args]))
            again.site = node.site
            again.extra = node.extra
            if node.grad is None:
                again.grad = None
        for one in self.changed:
            bind(one.cell, copy.get(one.after, one.after))
        return self._returned([wrap(copy.get(r, r)) for r in self.results])


def argument_array(node: Node) -> np.ndarray:
    """The array of an argument of a call."""
    if node.sig.kind == NUMBER:
        return np.asarray(node.value, node.sig.out.dtype.numpy)
    return value_of(node)
