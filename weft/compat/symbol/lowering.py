"""Symbols as programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft import ir
from weft import op as ops
from weft.compat.symbol.compose import mutated_inputs, next_name
from weft.compat.symbol.describe import output_name
from weft.compat.symbol.inference import Inference
from weft.compat.symbol.node import Node, NodeEntry, walk
from weft.compat.symbol.operator import BARRIER
from weft.compat.symbol.ordering import version_edges
from weft.compat.symbol.overrides import lower_of
from weft.compat.symbol.slots import get_attr
from weft.support.errors import InvalidModelError, OptionError


def to_module(heads: Sequence[NodeEntry], *,
              shapes: Mapping[str, Sequence[object] | None] | None = None,
              dtypes: Mapping[str, str] | None = None,
              params: Mapping[str, Any] | None = None) -> ir.IRModule:
    """The typed program of a graph: its variables are inputs, its entries results.

    ``shapes`` and ``dtypes`` (float32 where nothing says otherwise) are those of variables, by
    name; ``params`` are values of variables, which become constants. A mutated variable has its
    next value as a further result, ``<name>_next`` (``Symbol.states``). Control dependencies
    become ``annotation.barrier``. Raises ``InvalidModelError`` for variables of unknown shape and
    for two of one name, ``OptionError`` for unknown names, ``TypeInferenceError`` for shapes that
    do not fit.
    """
    variables = [n for n in walk(heads) if n.is_variable]
    given = {name: np.asarray(value) for name, value in (params or {}).items()}
    _check_names(variables, {*(shapes or {})})
    known = _inference(heads, shapes, dtypes, given)
    lowering = _Lowering(heads, known, given)
    results = [lowering.value(entry) for entry in heads]
    names = [output_name(entry) for entry in heads]
    for node in variables:
        if node in lowering.states:
            results.append(lowering.states[node])
            names.append(next_name(node.name))
    params_ = tuple(lowering.parameters.values())
    body = results[0] if len(results) == 1 else ir.Tuple(tuple(results))
    attrs = {"input_names": tuple(v.name for v in params_), "output_names": tuple(names)}
    return ir.infer_type(ir.IRModule({"main": ir.Function(params_, body)}, attrs=attrs))


def _inference(heads: Sequence[NodeEntry], shapes: Mapping[str, Sequence[object] | None] | None,
               dtypes: Mapping[str, str] | None, params: Mapping[str, np.ndarray]) -> Inference:
    """The facts of the graph; only variables have sizes that are symbols."""
    sizes = {name: tuple(d if isinstance(d, int) else 0 for d in shape)
             for name, shape in (shapes or {}).items() if shape is not None}
    sizes |= {name: value.shape for name, value in params.items()}
    kinds = {**(dtypes or {}), **{n: ir.DType.of(v.dtype).name for n, v in params.items()}}
    known = Inference(heads, sizes, kinds).run()
    symbolic = {name: tuple(shape) for name, shape in (shapes or {}).items()
                if shape is not None and not all(isinstance(d, int) for d in shape)}
    known.symbolic.update(symbolic)
    missing = [name for name in known.unknown_variables() if name not in symbolic]
    if missing:
        raise InvalidModelError("variables of unknown shape", got=", ".join(missing),
                                help=f'give shapes: inputs={{"{missing[0]}": (1, 3, 224, 224)}}')
    return known


def _check_names(variables: Sequence[Node], given: set[str]) -> None:
    names = [v.name for v in variables]
    twice = sorted({name for name in names if names.count(name) > 1}) \
        if len(set(names)) < len(names) else []
    if twice:
        raise InvalidModelError("several variables of one name", got=", ".join(twice),
                                help="rename them: symbol.set_attr(name=...)")
    unknown = sorted(given - set(names))
    if unknown:
        raise OptionError("no variable has this name", got=", ".join(unknown),
                          expected=", ".join(names))


class _Lowering:
    """The expression of each node; ``states`` are the last values of mutated variables."""

    def __init__(self, heads: Sequence[NodeEntry], known: Inference,
                 params: Mapping[str, np.ndarray]) -> None:
        self.known = known
        self.params = params
        self.parameters: dict[Node, ir.Var] = {}
        self.states: dict[Node, ir.Expr] = {}
        self._versions: dict[tuple[Node, int], ir.Expr] = {}
        self._nodes: dict[Node, ir.Expr] = {}
        for node in walk(heads, version_edges(known.nodes)):
            self._visit(node)

    def value(self, entry: NodeEntry) -> ir.Expr:
        """The expression of an entry."""
        node = entry.node
        if node.is_variable:
            return self._versions[node, entry.version]
        whole = self._nodes[node]
        return ir.TupleGetItem(whole, entry.index) if node.num_outputs > 1 else whole

    def _visit(self, node: Node) -> None:
        if node.op is None:
            self._versions[node, 0] = self._variable(node)
            return
        mutated = set(mutated_inputs(node))
        args = [self.value(NodeEntry(e.node, 0, e.version - 1) if i in mutated else e)
                for i, e in enumerate(node.inputs)]
        after = [self.value(NodeEntry(n, i, n.version)) for n in node.control_deps
                 if n.op is not None for i in range(n.num_outputs)]
        params = node.params
        if after and args:
            args[0] = ops.annotation.barrier(args[0], _together(after))
        made = args[0] if after and node.op.name == BARRIER else lower_of(node.op)(params, args)
        if after and not args:
            made = ops.annotation.barrier(made, _together(after))
        typed = ir.infer_expr(made if made.span is not None else made.replace(span=node.span),
                              trust=True)
        self._nodes[node] = typed
        keeps = get_attr(node.op, "TKeepsMutatedInputs")
        for index in mutated:
            entry = node.inputs[index]
            self._versions[entry.node, entry.version] = args[index] if keeps else typed
            if not keeps:
                self.states[entry.node] = typed

    def _variable(self, node: Node) -> ir.Expr:
        if node.name in self.params:
            return ir.Constant(self.params[node.name])
        shape = self.known.symbolic.get(node.name, self.known.shape(node))
        assert shape is not None
        dtype = self.known.dtype(node) or ir.DType.of("float32")
        made = ir.Var(node.name, ir.TensorType.of(shape, dtype), span=node.span)
        self.parameters[node] = made
        return made


def _together(values: Sequence[ir.Expr]) -> ir.Expr:
    return values[0] if len(values) == 1 else ir.Tuple(tuple(values))
