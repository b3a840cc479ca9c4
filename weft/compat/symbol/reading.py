"""Programs as symbols."""

from __future__ import annotations

import numpy as np

from weft import ir
from weft.compat.symbol.attribute_text import text_of
from weft.compat.symbol.node import Node, NodeEntry
from weft.compat.symbol.operator import BARRIER, operator_of
from weft.compat.symbol.symbol import Symbol
from weft.support.errors import InvalidModelError
from weft.transform.normal_form.to_graph_normal_form import ToGraphNormalForm


def from_module(mod: ir.IRModule) -> tuple[Symbol, dict[str, np.ndarray]]:
    """A symbol for the graph of ``main``, and the constants as values of further variables.

    Raises ``InvalidModelError`` for programs that are not graphs of operators and tuples.
    """
    mod = ir.infer_type(ToGraphNormalForm()(ir.infer_type(mod)))
    main = mod["main"]
    reading = _Reading()
    for param in main.params:
        reading.variable(param.name, param)
    for node in ir.post_order(main.body):
        reading.visit(node)
    entries = reading.entries_of(main.body)
    symbol = Symbol(entries)
    for entry, name in zip(entries, ir.output_names(mod), strict=True):
        if not entry.node.is_variable and name.endswith("_output"):
            entry.node.name = name.removesuffix("_output")
    return symbol, reading.params


class _Reading:
    """The entries of each expression; a tuple has those of all fields."""

    def __init__(self) -> None:
        self.params: dict[str, np.ndarray] = {}
        self._found: dict[ir.Expr, tuple[NodeEntry, ...]] = {}
        self._counts: dict[str, int] = {}

    def entries_of(self, expr: ir.Expr) -> tuple[NodeEntry, ...]:
        return self._found[expr]

    def variable(self, name: str, expr: ir.Expr) -> None:
        type_ = expr.checked_type
        if not isinstance(type_, ir.TensorType):
            raise InvalidModelError("a symbol takes tensors", where=expr.span, got=str(type_))
        sizes = tuple(d if isinstance(d, int) else 0 for d in type_.shape)
        attrs = {"__shape__": text_of(sizes), "__dtype__": type_.dtype.name}
        self._found[expr] = (NodeEntry(Node(None, name, attrs, span=expr.span)),)

    def visit(self, expr: ir.Expr) -> None:
        if expr in self._found:
            return
        if isinstance(expr, ir.Constant):
            name = self._name("const")
            self.variable(name, expr)
            self.params[name] = expr.data
        elif isinstance(expr, ir.Tuple):
            self._found[expr] = tuple(e for f in expr.fields for e in self._found[f])
        elif isinstance(expr, ir.TupleGetItem):
            self._found[expr] = self._field(expr)
        elif isinstance(expr, ir.Call) and isinstance(expr.op, ir.Op):
            self._found[expr] = self._call(expr, expr.op)
        else:
            raise InvalidModelError("a symbol is a graph of operators", where=expr.span,
                                    got=type(expr).__name__,
                                    help="inline functions; symbols have no control flow")

    def _field(self, expr: ir.TupleGetItem) -> tuple[NodeEntry, ...]:
        whole = expr.tuple_value.checked_type
        assert isinstance(whole, ir.TupleType)
        if any(not isinstance(f, ir.TensorType) for f in whole.fields):
            raise InvalidModelError("a symbol has no nested tuples", where=expr.span)
        return (self._found[expr.tuple_value][expr.index],)

    def _call(self, call: ir.Call, op: ir.Op) -> tuple[NodeEntry, ...]:
        attrs = {name: text_of(value) for name, value in call.attrs.non_default_items()}
        args = call.args[:1] if op.name == BARRIER else call.args
        inputs = [entry for arg in args for entry in self._found[arg]]
        after = [e.node for a in call.args[1:] for e in self._found[a] if not e.node.is_variable] \
            if op.name == BARRIER else []
        node = Node(operator_of(op), self._name(op.name.rpartition(".")[2]), attrs, inputs,
                    after, call.span)
        type_ = call.checked_type
        count = len(type_.fields) if isinstance(type_, ir.TupleType) else 1
        return tuple(NodeEntry(node, index) for index in range(count))

    def _name(self, prefix: str) -> str:
        number = self._counts[prefix] = self._counts.get(prefix, -1) + 1
        return f"{prefix}{number}"
