"""Conversion of a GraphDef, or of the part that computes some tensors, to a typed module."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from weft.compat.graphdef.annotate import Placements
from weft.compat.graphdef.definitions import FunctionRef, GraphDef, Library, NodeDef
from weft.compat.graphdef.files import parse_graph_def, read_graph_def
from weft.compat.graphdef.frames import check_no_frames, functionalize
from weft.compat.graphdef.gradients import inlined, with_gradients
from weft.compat.graphdef.lowering import Body, Environment, by_name
from weft.compat.graphdef.names import CONTROL, parse_tensor
from weft.compat.graphdef.node_order import execution_order, needed, nodes_by_name
from weft.compat.graphdef.ports import FedTensors, default_outputs, unknown_tensor
from weft.compat.graphdef.registry import CONVERTERS
from weft.compat.graphdef.resources import without_resources
from weft.compat.graphdef.saved_model import is_saved_model, read_saved_model
from weft.compat.graphdef.state import INITIAL_VALUE, VARIABLES, next_value_name
from weft.frontend.common.coverage import counted, misspelling, unsupported_operators
from weft.frontend.source import Examples, GraphSource, ImportOptions
from weft.ir import OPS, Expr, Function, IRModule, Span, Tuple, infer_type, post_order
from weft.support.allocation import allocation_budget
from weft.support.errors import InvalidInputError


def check_coverage(nodes: Sequence[NodeDef], library: Library, source: str) -> None:
    """Raise an ``UnsupportedModelError`` that lists all operators without a converter.

    The bodies of functions that the nodes call are part of it.
    """
    missing: dict[str, list[str]] = {}
    for node in (*nodes, *_bodies(nodes, library)):
        if CONVERTERS.find(node.op) is None and node.op not in OPS \
                and node.op not in library.functions:
            missing.setdefault(f"operator {node.op}", []).append(node.name)
    if missing:
        raise unsupported_operators(
            f"the graph uses {counted(len(missing), 'operator')} that weft does not support",
            missing, source, _suggestion(sorted(missing)))


def _bodies(nodes: Sequence[NodeDef], library: Library) -> Iterable[NodeDef]:
    """The nodes of the functions that are called, each function once."""
    pending = list(nodes)
    seen: set[str] = set()
    while pending:
        node = pending.pop()
        called = [v.name for v in node.attrs.values() if isinstance(v, FunctionRef)]
        for name in (node.op, *called):
            if name in library.functions and name not in seen:
                seen.add(name)
                pending.extend(library.functions[name].nodes)
                yield from library.functions[name].nodes


def _suggestion(missing: Sequence[str]) -> str:
    names = (gap.removeprefix("operator ") for gap in missing)
    found = (misspelling(op, CONVERTERS.names(), cutoff=0.8) for op in names)
    return next(filter(None, found),
                "docs/graphs.md lists the operators of TensorFlow that weft reads")


InputShapes = Mapping[str, Sequence[object] | None]


def from_graphdef(graph: GraphDef, *, outputs: Sequence[str] | None = None,
                  inputs: InputShapes | None = None) -> IRModule:
    """The typed module that computes the tensors ``outputs`` of a graph.

    ``outputs`` are ``node`` or ``node:index``; ``^node`` only runs a node. By default they are the
    results that no node reads. ``inputs`` gives shapes of placeholders, and names other tensors
    that become inputs, with a shape or, for ``None``, their own. What the outputs do not need is
    left out; placeholders are inputs in their order in the graph. ``IRModule.named`` has every
    tensor that was lowered.

    Raises ``InvalidModelError`` for a damaged graph, ``UnsupportedModelError`` with all operators
    that weft lacks, ``TypeInferenceError`` and ``InvalidInputError``.
    """
    with allocation_budget():
        return _imported(graph, outputs, inputs)


def _imported(graph: GraphDef, outputs: Sequence[str] | None, inputs: InputShapes | None
              ) -> IRModule:
    source = graph.source
    given = without_resources(nodes_by_name(graph.nodes, source), source)
    nodes, library = functionalize(given, graph.library, source)
    fed = FedTensors(nodes, inputs or {}, source)
    wanted = list(default_outputs(given.values()) if outputs is None else outputs)
    _check_targets(wanted, nodes, fed, source)
    targets = [parse_tensor(text).node for text in wanted]
    whole = needed(nodes, targets, fed.complete)
    lowered = [nodes[n] for n in nodes if n in whole and n not in fed.complete]
    check_no_frames(lowered, source)
    check_coverage(lowered, library, source)
    env = Environment(source, library)
    body = Body(env, Placements(nodes), {n: nodes[n] for n in nodes if n in whole})
    for name in execution_order(nodes, whole, fed.complete, source):
        fed.lower(body, nodes[name])
    return _module(env, body, fed, wanted)


class GraphDefModel:
    """A GraphDef as a model for ``weft.compile``; ``outputs`` are its results by default."""

    def __init__(self, graph: GraphDef, outputs: Sequence[str] | None = None) -> None:
        self.graph, self.outputs = graph, outputs

    @staticmethod
    def of(model: Any) -> GraphDefModel:
        """The model in a file, a folder or a message. Raises what reading them raises."""
        if isinstance(model, (str, os.PathLike)):
            if is_saved_model(model):
                return GraphDefModel.of_signature(model)
            return GraphDefModel(read_graph_def(model))
        return GraphDefModel(parse_graph_def(model.SerializeToString(), "<GraphDef>"))

    @staticmethod
    def of_signature(path: str | os.PathLike[str], signature: str | None = None,
                     tags: Sequence[str] = ("serve",)) -> GraphDefModel:
        """A signature of a SavedModel. Raises what ``read_saved_model`` raises."""
        found = read_saved_model(path, signature=signature, tags=tags)
        return GraphDefModel(found.graph, found.outputs)

    def to_module(self, outputs: Sequence[str] | None = None, inputs: InputShapes | None = None
                  ) -> IRModule:
        """See ``from_graphdef``."""
        chosen = self.outputs if outputs is None else outputs
        return from_graphdef(self.graph, outputs=chosen, inputs=inputs)

    def initial_values(self) -> dict[str, np.ndarray]:
        """The first values of variables, by name."""
        return initial_values(self.graph.nodes)


def open_graph_def(model: Any, _: Examples, options: ImportOptions) -> GraphSource:
    """The source of a GraphDef, in a file or as a message of TensorFlow, or of a SavedModel."""
    return GraphSource(GraphDefModel.of(model), options)


def initial_values(nodes: Iterable[NodeDef]) -> dict[str, np.ndarray]:
    """The first values of the variables among ``nodes``, by name."""
    return {node.name: node.attrs[INITIAL_VALUE] for node in nodes
            if node.op in VARIABLES and isinstance(node.attrs.get(INITIAL_VALUE), np.ndarray)}


def _check_targets(wanted: Sequence[str], nodes: Mapping[str, NodeDef], fed: FedTensors,
                   source: str) -> None:
    if not wanted:
        raise InvalidInputError("nothing to run", where=source,
                                expected="the name of a tensor to compute")
    repeated = sorted({text for text in wanted if list(wanted).count(text) > 1})
    if repeated:
        raise InvalidInputError("a tensor is fetched more than once", got=", ".join(repeated))
    for text in wanted:
        ref = parse_tensor(text, source)
        if ref.node not in nodes:
            raise unknown_tensor(text, nodes, source)
        if ref in fed.inner:
            raise InvalidInputError(f"{text!r} is both fed and fetched", where=source)


def _module(env: Environment, body: Body, fed: FedTensors, wanted: Sequence[str]) -> IRModule:
    span = Span(env.source)
    tensors = [text for text in wanted if parse_tensor(text).index != CONTROL]
    results: list[Expr] = [body.output(text, span) for text in tensors]
    updated = {next_value_name(n): value for n, value in body.variables.updated().items()}
    if not results and not updated:
        raise InvalidInputError("nothing to fetch", where=env.source, got=", ".join(wanted),
                                expected="a tensor, or an assignment to a variable")
    results.extend(updated.values())
    main_body = results[0] if len(results) == 1 else Tuple(tuple(results), span=span)
    used = set(post_order(main_body))
    params = fed.parameters(used)
    params |= {n: var for n, var in body.variables.inputs().items()
               if var in used or next_value_name(n) in updated}
    named = fed.without_unused(by_name(body.tensors), params.values())
    main = Function(tuple(params.values()), main_body, span=span)
    attrs: dict[str, Any] = {"input_names": tuple(params),
                             "output_names": (*tensors, *updated)}
    first = {node.name for node in body.nodes.values() if initial_values([node])}
    constant = [n for n in params if n in body.variables.inputs() and n in first
                and next_value_name(n) not in updated]
    if constant:
        attrs["read_only"] = tuple(constant)
    if updated:
        attrs["state"] = {output: output.removesuffix("/next") for output in updated}
    before = with_gradients(env.functions, env.differentiated)
    functions = {**before.functions, "main": main}
    made = infer_type(IRModule(functions, before.type_definitions, attrs=attrs, named=named))
    return inlined(made, env.differentiated) if env.differentiated else made
