"""Modules of ``weft.nn`` and functions of tensors as models, traced for example inputs."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np

from weft.eager.cell import Cell, node_of
from weft.eager.evaluate import value_of
from weft.eager.grad_mode import no_grad
from weft.eager.placement import host_value
from weft.eager.tracing.traced_module import trace
from weft.eager.tracing.train_step import TrainStep
from weft.frontend.source import Examples, ImportOptions, ProgramSource, Source
from weft.ir import Constant, Expr, Function, IRModule, Span
from weft.ir.visitor import rewrite_post_order
from weft.support.errors import InvalidModelError, OptionError, TypeInferenceError


def open_traced(model: Any, examples: Examples, _: ImportOptions) -> Source:
    """The source of a module in evaluation mode, or of a function of tensors.

    The program has the sizes of the examples, which are positional or by name. Its weights have
    the names of the module.
    """
    where = type(model).__name__
    _check_model(model, where)
    if examples is None:
        raise OptionError("a module or function of tensors needs example_inputs", where=where,
                          got="no example_inputs",
                          help="weft.compile(model, example_inputs=(x,)) has the sizes of x")
    named = examples if isinstance(examples, Mapping) else {}
    given = () if named else (examples,) if isinstance(examples, (Cell, np.ndarray)) \
        else tuple(examples)
    function = getattr(model, "forward", model)
    taken = inspect.signature(function)
    try:
        taken.bind(*given, **named)
    except TypeError as error:
        raise OptionError("example_inputs do not fit the parameters", where=where,
                          expected=str(taken), got=str(error)) from None

    @functools.wraps(function)  # for the names of inputs
    def call(*args: Any, **kwargs: Any) -> Any:
        return model(*args, **kwargs)

    with no_grad():
        return TracedSource(_with_names(trace(call, *given, **named), model))


def _check_model(model: Any, where: str) -> None:
    if isinstance(model, TrainStep):
        raise InvalidModelError("a training step is compiled by its first call",
                                where=model.__name__,  # type: ignore[attr-defined]
                                help="call it; step.export(path) then writes it with its state")
    if getattr(model, "training", False):
        raise InvalidModelError("the module is in training mode", where=where,
                                help="call model.eval() first; weft.train_step compiles a step "
                                     "of training")


class TracedSource(ProgramSource):
    """A program with the sizes that a trace has met."""

    def import_whole(self, options: ImportOptions) -> IRModule:
        """See ``Source``."""
        try:
            return super().import_whole(options)
        except TypeInferenceError as error:
            if not options.input_shapes:
                raise
            raise InvalidModelError(
                "a traced program does not accept these sizes", where=error.where,
                expected="those of example_inputs: code that reads a size makes a number of it",
                got=error.what, help="compile the module for each size") from error


def _with_names(program: IRModule, model: Any) -> IRModule:
    """The program with the names of parameters and buffers at their constants."""
    names = {}
    for kind in ("named_parameters", "named_buffers"):
        for name, tensor in getattr(model, kind, tuple)():
            node = node_of(tensor)
            value_of(node)
            names[_memory(host_value(node))] = name

    def change(node: Expr) -> Expr:
        if not isinstance(node, Constant) or (at := _memory(node.data)) not in names:
            return node
        return Constant(node.data, span=Span("weft.nn", node=names[at]))

    main = rewrite_post_order(program["main"], change)
    assert isinstance(main, Function)
    return program.with_function("main", main)


def _memory(array: Any) -> tuple[Any, ...]:
    return array.ctypes.data, array.shape, array.dtype
