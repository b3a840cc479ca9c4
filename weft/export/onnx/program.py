"""The nodes of a program: its expressions in order, branches as graphs of their own."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, TypeAlias

from onnx import GraphProto

from weft.codegen.cost_model import tensor_types
from weft.export.gaps import Gaps
from weft.export.onnx.call import CallWriter
from weft.export.onnx.graph import GraphWriter
from weft.export.onnx.ports import value_info
from weft.export.onnx.registry import writer_of
from weft.export.onnx.sizes import Sizes
from weft.export.simpler import simpler_forms
from weft.export.writers import Value, flattened
from weft.ir import Op, TensorType, TupleType, Type, post_order
from weft.ir.expr import Call, Constant, Expr, If, Tuple, TupleGetItem, Var
from weft.ir.types import component_types
from weft.support.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Callable

# Expressions by identity; the graph normal form has no lets.
Written: TypeAlias = "MutableMapping[int, Value]"


class ProgramWriter:
    """Writes expressions as nodes, and collects all that ONNX has no form for."""

    def __init__(self, graph: GraphWriter) -> None:
        self.graph = graph
        self.sizes = Sizes(graph)
        self.gaps = Gaps("ONNX")
        self._kept: list[Expr] = []  # identities of simpler forms stay unique
        self._cases: dict[type, Callable[..., Value]] = {
            Constant: self._constant, Tuple: self._tuple, TupleGetItem: self._field,
            Call: self._call, If: self._if,
        }

    def write(self, root: Expr, written: Written) -> Value:
        """The names of the value of ``root``; ``written`` holds what the graph has computed."""
        for node in post_order(root, enter=lambda e: id(e) not in written and not _is_branch(e)):
            if id(node) not in written:
                case = self._cases.get(type(node))
                written[id(node)] = self._gap(node, _word(node), "") if case is None \
                    else case(node, written)
        return written[id(root)]

    def _constant(self, node: Constant, _: Written) -> Value:
        return self.graph.constant(node.data, node.tensor_type.dtype)

    def _tuple(self, node: Tuple, written: Written) -> Value:
        return [written[id(f)] for f in node.fields]

    def _field(self, node: TupleGetItem, written: Written) -> Value:
        value = written[id(node.tuple_value)]
        if isinstance(value, str):
            raise InternalError("field of a value that is not a tuple", where=node.span)
        return value[node.index]

    def _call(self, node: Call, written: Written) -> Value:
        if not isinstance(node.op, Op):
            return self._gap(node, "call of a function", "")
        args = [written[id(a)] for a in node.args]
        mark, reason = len(self.graph.nodes), "no ONNX operator computes it"
        writer = writer_of(node.op.name)
        if writer is not None:
            site = CallWriter(node, args, self.graph, self.sizes)
            found = writer(site)
            if found is not None:
                self._define(found, node.checked_type)
                return found
            reason = site.reason
        del self.graph.nodes[mark:]
        for simpler in simpler_forms(node):
            before = self.gaps.mark()
            self._kept.append(simpler)
            found = self.write(simpler, ChainMap({}, written))
            if self.gaps.mark() == before:
                return found
            self.gaps.reset(before)
            del self.graph.nodes[mark:]
        return self._gap(node, node.op.name, reason)

    def _define(self, value: Value, type_: Type | None) -> None:
        if isinstance(value, str) and isinstance(type_, TensorType) and not self.graph.is_inside:
            self.sizes.define(value, type_)

    def _if(self, node: If, written: Written) -> Value:
        condition = self.write(node.cond, written)
        branches = [self._branch(b, written) for b in (node.true_branch, node.false_branch)]
        count = len(list(tensor_types(node.checked_type)))
        names = self.graph.emit("If", flattened(condition), count, "if",
                                {"then_branch": branches[0], "else_branch": branches[1]})
        return _nested(node.checked_type, iter(names))

    def _branch(self, body: Expr, written: Written) -> GraphProto:
        with self.graph.inside() as nodes:
            found = flattened(self.write(body, ChainMap({}, written)))
            # A branch returns values of its own.
            results = [self.graph.emit("Identity", [name], 1, "branch", {})[0] for name in found]
            types = list(tensor_types(body.checked_type))
            outputs = [value_info(n, t) for n, t in zip(results, types, strict=True)]
            graph = self.graph.graph(self.graph.fresh("branch_graph"), [], outputs, [])
        del nodes
        return graph

    def _gap(self, node: Expr, what: str, reason: str) -> Value:
        self.gaps.add(node, what, reason)
        return self.gaps.stand_in(node.checked_type)


def _is_branch(node: Expr) -> bool:
    return isinstance(node, If)


def _word(node: Expr) -> str:
    return "a parameter of a function" if isinstance(node, Var) else type(node).__name__


def _nested(type_: Type | None, names: Iterator[str]) -> Value:
    if isinstance(type_, TupleType):
        return [_nested(f, names) for f in component_types(type_)]
    return next(names)
