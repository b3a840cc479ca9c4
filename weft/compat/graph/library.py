"""Functions of a graph: definitions from graphs, and libraries with more functions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.compat.graph.node import Node, Tensor
from weft.compat.graph.structure import GraphStructure
from weft.compat.graph.walks import reverse_dfs
from weft.compat.graphdef.definitions import ArgDef, FunctionDef, Library
from weft.support.errors import InvalidModelError


def with_functions(library: Library, added: Library, where: object) -> Library:
    """``library`` with the functions and gradients of ``added``.

    Raises ``InvalidModelError`` for a name that has another definition already.
    """
    for name, function in added.functions.items():
        known = library.functions.get(name)
        if known is not None and not same_function(known, function):
            raise InvalidModelError(f"the library has another function {name!r} already",
                                    where=where)
    for name, gradient in added.gradients.items():
        if library.gradients.get(name, gradient) != gradient:
            raise InvalidModelError(f"function {name!r} has another gradient already", where=where,
                                    expected=library.gradients[name], got=gradient)
    return Library({**library.functions, **added.functions},
                   {**library.gradients, **added.gradients})


def function_of(graph: GraphStructure, name: str, inputs: Sequence[Tensor],
                outputs: Sequence[Tensor], *, noinline: bool = False) -> FunctionDef:
    """The function that computes ``outputs`` of a graph from ``inputs``, which are placeholders.

    Raises ``InvalidModelError`` for an input that is no placeholder, and for a placeholder that
    the outputs need and that is not an input.
    """
    args: dict[Node, str] = {}
    for tensor in inputs:
        if tensor.node.op != "Placeholder" or tensor.graph is not graph:
            raise InvalidModelError(f"an argument of function {name!r} must be a placeholder",
                                    got=str(tensor))
        args[tensor.node] = tensor.node.name.replace("/", "_")
    needed: set[Node] = set()
    reverse_dfs(graph, enter=needed.add, start=[t.node for t in outputs])
    free = [n.name for n in graph.op_nodes
            if n in needed and n.op == "Placeholder" and n not in args]
    if free:
        raise InvalidModelError(f"function {name!r} reads placeholders that are not its arguments",
                                got=", ".join(free))
    nodes = [n.definition() for n in graph.op_nodes if n in needed and n not in args]
    renamed = {node.name: arg for node, arg in args.items()}
    body = tuple(dataclasses.replace(n, inputs=tuple(
        renamed.get(text, text) for text in n.inputs)) for n in nodes)
    results = {f"result{i}": args.get(t.node, t.name) for i, t in enumerate(outputs)}
    return FunctionDef(
        name, tuple(ArgDef(arg, node.output_types[0].dtype) for node, arg in args.items()),
        tuple(ArgDef(f"result{i}", t.dtype) for i, t in enumerate(outputs)), body, results,
        attrs={"_noinline": True} if noinline else {})


def same_function(a: FunctionDef, b: FunctionDef) -> bool:
    """Whether two definitions are equal, constants compared by value."""
    return a is b or _text(a) == _text(b)


def _text(function: FunctionDef) -> str:
    """A text that equal definitions share; nodes in the order of names."""
    nodes = sorted(function.nodes, key=lambda node: node.name)
    bodies = [(n.name, n.op, n.inputs, n.device, _attrs_text(n.attrs)) for n in nodes]
    return repr((function.name, function.inputs, function.outputs, bodies,
                 sorted(function.returns.items()), sorted(function.control_returns.items()),
                 function.attr_defs, _attrs_text(function.attrs)))


def _attrs_text(attrs: Mapping[str, Any]) -> str:
    values = {n: (v.dtype.name, v.shape, v.tobytes()) if isinstance(v, (np.ndarray, np.generic))
              else v for n, v in attrs.items()}
    return repr(sorted(values.items(), key=lambda item: item[0]))
