"""Imported models as modules: the weights are parameters, and the graph runs on tensors."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from weft.eager.node import Node, value_node
from weft.eager.record import as_array, as_node, field, pack, record, wrap
from weft.eager.tensor import Tensor
from weft.frontend.onnx import from_onnx as import_onnx
from weft.ir.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem
from weft.ir.module import IRModule, input_names
from weft.ir.op import Op
from weft.ir.visitor import post_order
from weft.nn.modules.module import Module
from weft.nn.parameter import Parameter
from weft.support.errors import InvalidInputError, UnsupportedModelError

_STATISTICS = ("nn.batch_norm", (3, 4))  # operands that are buffers: running averages


class ImportedModule(Module):
    """A model of operators as a module; ``forward`` takes its inputs in order or by name.

    The weights (floating-point constants with axes) are parameters under the names that the file
    gives them, the running averages of batch norms are buffers. Batch norms use these averages in
    training too, and dropout drops nothing: a file for inference says no more. The graph is
    imported again for each new combination of input shapes.
    """

    def __init__(self, model: Any, shapes: Mapping[str, Sequence[object]] | None = None) -> None:
        super().__init__()
        self.source = model
        self.shapes = dict(shapes or {})
        module = import_onnx(model, inputs=self.shapes)
        self.input_names = list(input_names(module))
        self._graphs: dict[Any, Function] = {}
        for name, constant, is_buffer in _weights(main_of(module)):
            owner, last = self._owner(name)
            if is_buffer:
                owner.register_buffer(last, Tensor(constant.data))
            else:
                owner.register_parameter(last, Parameter(constant.data))

    def _owner(self, name: str) -> tuple[Module, str]:
        """The module that a dotted name belongs to, made where it is missing."""
        *path, last = name.split(".")
        owner: Module = self
        for part in path:
            if part not in owner._modules:
                owner.add_module(part, Module())
            owner = owner.get_submodule(part)
        return owner, last

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        given = dict(zip(self.input_names, args, strict=False)) | kwargs
        if set(given) != set(self.input_names) or len(args) > len(self.input_names):
            raise InvalidInputError("wrong inputs of an imported model",
                                    expected=", ".join(self.input_names), got=", ".join(given))
        nodes = {name: as_node(value) for name, value in given.items()}
        main = self._graph({name: node.sig.out.shape for name, node in nodes.items()})
        values: dict[Expr, Node] = {
            var: nodes[name] for var, name in zip(main.params, self.input_names, strict=True)}
        for name, constant, is_buffer in _weights(main):
            tensor = self.get_buffer(name) if is_buffer else self.get_parameter(name)
            values[constant] = as_node(tensor)
        return wrap(run_graph(main.body, values))

    def _graph(self, shapes: dict[str, tuple[int, ...]]) -> Function:
        """The graph for inputs of these shapes, which are numbers in all its attributes."""
        key = tuple(shapes.items())
        if key not in self._graphs:
            self._graphs[key] = main_of(import_onnx(self.source, inputs=shapes))
        return self._graphs[key]

    def extra_repr(self) -> str:
        return f"inputs={self.input_names}"


def from_onnx(
    model: str | os.PathLike[str] | bytes | Any,
    inputs: Mapping[str, Sequence[object]] | None = None,
) -> ImportedModule:
    """An ONNX model as a module whose weights are parameters, to train on or to fine-tune.

    ``inputs`` overrides the declared shapes of inputs. Raises what ``weft.compile`` raises for a
    model that is damaged or unsupported, and ``UnsupportedModelError`` for control flow.
    """
    return ImportedModule(model, inputs)


def main_of(module: IRModule) -> Function:
    """The function ``main`` of a module."""
    main = module["main"]
    if not isinstance(main, Function):
        raise UnsupportedModelError("the model has no main function")
    return main


def _weights(main: Function) -> Iterator[tuple[str, Constant, bool]]:
    """The floating-point constants with axes: name, constant, whether it is a buffer."""
    order = list(post_order(main.body))
    statistics = {arg for node in order if isinstance(node, Call) and isinstance(node.op, Op)
                  and node.op.name == _STATISTICS[0]
                  for arg in (node.args[i] for i in _STATISTICS[1])}
    used: dict[str, int] = {}
    for node in order:
        if not isinstance(node, Constant) or not node.data.ndim \
                or not np.issubdtype(node.data.dtype, np.floating):
            continue
        label = getattr(node.span, "node", None) or "constant"
        count = used[label] = used.get(label, 0) + 1
        yield label if count == 1 else f"{label}_{count}", node, node in statistics


def run_graph(body: Expr, values: Mapping[Expr, Node]) -> Node:
    """Record the calls of a graph on the nodes of its variables and constants."""
    made = dict(values)
    for expr in post_order(body):
        if expr in made or isinstance(expr, Op):
            continue
        if isinstance(expr, Constant):
            made[expr] = value_node(*as_array(expr.data))
        elif isinstance(expr, TupleGetItem):
            made[expr] = field(made[expr.tuple_value], expr.index)
        elif isinstance(expr, Tuple):
            made[expr] = pack(tuple([made[f] for f in expr.fields]))
        elif isinstance(expr, Call) and isinstance(expr.op, Op):
            made[expr] = _recorded(expr, expr.op, made)
        else:
            raise UnsupportedModelError("control flow in a model to be trained",
                                        where=expr.span, got=type(expr).__name__)
    return made[body]


def _recorded(call: Call, op: Op, made: dict[Expr, Node]) -> Node:
    is_list = len(op.inputs) == 1 and op.inputs[0].startswith("*")
    args = call.args
    if is_list and isinstance(args[0], Tuple):
        args = args[0].fields
    return record(op.name, tuple([made[a] for a in args]), dict(call.attrs.items()))
