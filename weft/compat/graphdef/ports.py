"""The inputs and outputs of a graph: placeholders, fed tensors, results without readers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from weft import ir
from weft.compat.graphdef.definitions import ForeignType, NodeDef, ShapeAttr
from weft.compat.graphdef.lowering import Body, parameter
from weft.compat.graphdef.names import TensorRef, parse_tensor
from weft.compat.graphdef.resources import TABLES
from weft.support.errors import (
    InvalidInputError,
    InvalidModelError,
    UnsupportedModelError,
)
from weft.support.suggestion import did_you_mean

PLACEHOLDERS = ("Placeholder", "PlaceholderV2")
# Nodes that are no results although they have no readers.
_NO_RESULT = frozenset({*PLACEHOLDERS, "PlaceholderWithDefault", "Const", "NoOp", "Assert",
                        "VariableV2", "Variable", "VarHandleOp", "_Arg", "ControlTrigger",
                        *TABLES})


def default_outputs(nodes: Iterable[NodeDef]) -> list[str]:
    """The nodes whose results no node reads, in their order."""
    all_nodes = list(nodes)
    read = {parse_tensor(text).node for node in all_nodes for text in node.data_inputs}
    return [node.name for node in all_nodes
            if node.name not in read and node.op not in _NO_RESULT]


def unknown_tensor(text: str, nodes: Mapping[str, NodeDef], where: object) -> InvalidInputError:
    return InvalidInputError(
        f"the graph has no tensor {text!r}", where=where,
        help=did_you_mean(text, nodes, "tensors are named 'node' or 'node:1'"))


class FedTensors:
    """The inputs of the module: placeholders and the inner tensors that ``inputs`` names.

    ``inner`` are the inner tensors, ``complete`` the nodes that have no operands: placeholders, and
    nodes all of whose results are fed.
    """

    def __init__(self, nodes: Mapping[str, NodeDef],
                 inputs: Mapping[str, Sequence[object] | None], source: str) -> None:
        self._source = source
        self._shapes: dict[TensorRef, tuple[str, Sequence[object] | None]] = {}
        for text, shape in inputs.items():
            ref = parse_tensor(text, source)
            if ref.node not in nodes:
                raise unknown_tensor(text, nodes, source)
            if ref in self._shapes:
                raise InvalidInputError("a tensor is fed more than once", where=source,
                                        got=f"{self._shapes[ref][0]!r} and {text!r}")
            self._shapes[ref] = text, shape
        self._position = {name: i for i, name in enumerate(nodes)}
        placeholders = {name for name, node in nodes.items() if node.op in PLACEHOLDERS}
        self.inner = {ref for ref in self._shapes if ref.node not in placeholders}
        given = {ref.node for ref in self.inner if self._is_typed(nodes[ref.node], ref)}
        self.complete = placeholders | given
        self._params: dict[TensorRef, tuple[str, ir.Var]] = {}

    def _is_typed(self, node: NodeDef, ref: TensorRef) -> bool:
        """Whether the type of a fed tensor needs no operands of its node."""
        shape = self._shapes[ref][1]
        return shape is not None and isinstance(node.attrs.get("dtype", node.attrs.get("T")),
                                                ir.DType)

    def lower(self, body: Body, node: NodeDef) -> None:
        """Lower ``node``, or make it a parameter."""
        span = body.env.span_of(node)
        if node.op in PLACEHOLDERS or node.name in self.complete:
            ref = TensorRef(node.name, 0)
            type_ = declared_type(node, self._given(ref), span)
            body.give(node.name, (self._parameter(ref, type_, span),))
            return
        body.lower(node)
        fed = [ref for ref in self.inner if ref.node == node.name]
        if fed:
            results = list(body.tensors[node.name])
            for ref in fed:
                body.tensor(str(ref), span)
                type_ = results[ref.index].checked_type
                if not isinstance(type_, ir.TensorType):
                    raise InvalidInputError(f"{ref} is not a tensor and cannot be fed",
                                            where=span, got=str(type_))
                shape = self._shapes[ref][1]
                if shape is not None:
                    type_ = ir.TensorType(ir.as_shape(shape), type_.dtype)
                results[ref.index] = self._parameter(ref, type_, span)
                if node.name in body.variables.first and ref.index == 0:
                    body.variables.feed(node.name, results[0])
            body.give(node.name, results)

    def _given(self, ref: TensorRef) -> Sequence[object] | None:
        return self._shapes.get(ref, ("", None))[1]

    def _parameter(self, ref: TensorRef, type_: ir.TensorType, span: ir.Span) -> ir.Var:
        name = self._shapes[ref][0] if ref in self._shapes else ref.node
        var = parameter(name, type_, span)
        self._params[ref] = name, var
        return var

    def parameters(self, used: Collection[ir.Expr]) -> dict[str, ir.Var]:
        """The parameters by name, in the order of the graph: those that are used, and feeds.

        The type of a fed tensor may have needed placeholders without other readers.
        """
        order = sorted(self._params, key=lambda ref: (self._position[ref.node], ref.index))
        return dict(self._params[ref] for ref in order
                    if ref in self.inner or self._params[ref][1] in used)

    def without_unused(self, named: Mapping[str, ir.Expr], params: Collection[ir.Var]
                       ) -> dict[str, ir.Expr]:
        """The tensors of ``named`` that depend on ``params`` alone."""
        left_out = {var for _, var in self._params.values()} - set(params)
        if not left_out:
            return dict(named)
        is_computed: dict[ir.Expr, bool] = {}
        for node in ir.post_order(ir.Tuple(tuple(named.values()))):
            is_computed[node] = node not in left_out and all(is_computed[c]
                                                             for c in ir.children(node))
        return {name: value for name, value in named.items() if is_computed[value]}


def _unknown(name: str, axis: int) -> ir.SymDim:
    """The symbol of an unknown size: ``x_0`` for axis 0 of input ``x``."""
    stem = "".join(c if c.isalnum() or c == "_" else "_" for c in name)
    return ir.SymDim.symbol(f"{stem if not stem[0].isdigit() else 'x_' + stem}_{axis}")


def declared_type(node: NodeDef, given: Sequence[object] | None, span: ir.Span) -> ir.TensorType:
    """The type of a placeholder, with the shape that the caller gives.

    Raises ``UnsupportedModelError`` for an unknown rank and for element types that weft lacks.
    """
    dtype = node.attrs.get("dtype", node.attrs.get("T"))
    if isinstance(dtype, ForeignType):
        raise UnsupportedModelError(f"weft has no element type {dtype}", where=span)
    if not isinstance(dtype, ir.DType):
        raise InvalidModelError("attribute 'dtype' is missing", where=span)
    if given is not None:
        return ir.TensorType(ir.as_shape(given), dtype)
    shape = node.attrs.get("shape", ShapeAttr(None))
    if not isinstance(shape, ShapeAttr):
        raise InvalidModelError("attribute 'shape' is not a shape", where=span, got=repr(shape))
    if shape.dims is None:
        raise UnsupportedModelError(
            f"the shape of input {node.name!r} is unknown", where=span,
            help=f'give it: inputs={{"{node.name}": (1, 224, 224, 3)}}')
    return ir.TensorType(tuple(_unknown(node.name, axis) if size is None else size
                               for axis, size in enumerate(shape.dims)), dtype)
