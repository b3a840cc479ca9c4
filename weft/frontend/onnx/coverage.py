"""Check that all operators and attributes of a model are supported, before the conversion."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping

from weft.frontend.common.coverage import counted, unsupported_operators
from weft.frontend.onnx.graph_order import GraphOrder, OrderedNode
from weft.frontend.onnx.protos import AttributeProto, NodeProto
from weft.frontend.onnx.registry import (
    CONVERTERS,
    DEFAULT_DOMAIN,
    Converter,
    operator_name,
    opset_of,
)
from weft.support.suggestion import nearest


def check_coverage(order: GraphOrder, opsets: Mapping[str, int], source: str) -> None:
    """Raise an ``UnsupportedModelError`` that lists all unsupported operators and attributes."""
    gaps: dict[str, list[str]] = {}
    missing_ops: set[str] = set()
    for node, read in _all_nodes(order):
        proto = node.proto
        name = operator_name(proto)
        converter = _converter_of(proto, opsets)
        if converter is None:
            missing_ops.add(name)
            gaps.setdefault(f"operator {name}", []).append(_name(node))
        else:
            for gap in _gaps_of(proto, converter, read):
                gaps.setdefault(gap, []).append(_name(node))
    if not gaps:
        return
    count = len(missing_ops)
    what = counted(count, "operator") if count else "operator attributes"
    raise unsupported_operators(
        f"the model uses {what} that weft does not support at opset {opsets['']}", gaps, source,
        _suggestion(sorted(missing_ops)))


def _all_nodes(order: GraphOrder) -> Iterator[tuple[OrderedNode, Container[str]]]:
    """Yield every node, including those of subgraphs, with the names that its graph reads."""
    for node in order.nodes:
        yield node, order.read
        for body in node.bodies.values():
            yield from _all_nodes(body)


def _converter_of(node: NodeProto, opsets: Mapping[str, int]) -> Converter | None:
    """Find the converter of ``node``; ``None`` also if the model does not import its domain."""
    if node.domain not in (*DEFAULT_DOMAIN, *opsets):
        return None
    return CONVERTERS.find(operator_name(node), opset_of(node, opsets))


def _gaps_of(node: NodeProto, converter: Converter, read: Container[str]) -> Iterator[str]:
    for attribute in node.attribute:
        if attribute.name not in converter.attributes:
            yield f"attribute {attribute.name!r} of {node.op_type}"
        elif attribute.name in converter.only:
            value = _scalar(attribute)
            if value not in converter.only[attribute.name]:
                yield f"attribute '{attribute.name}' = {value!r} of {node.op_type}"
    for position, name in enumerate(node.output):
        if name in read and position >= converter.outputs:
            yield f"output {position} of {node.op_type}"


def _name(node: OrderedNode) -> str:
    return node.label.rsplit(" (", 1)[0]


def _scalar(attribute: AttributeProto) -> object:
    if attribute.type == AttributeProto.INT:
        return attribute.i
    if attribute.type == AttributeProto.FLOAT:
        return attribute.f
    return attribute.s.decode("utf-8", "replace")


def _suggestion(missing: list[str]) -> str | None:
    """Suggest a supported operator with a similar name: a misspelling suggests a damaged file."""
    known = CONVERTERS.names()
    for name in missing:
        domain, separator, own = name.rpartition("::")
        if name in known:
            return f"the model does not import a version of {domain!r} that has {own}"
        # Compare names without the domain, which would make all of them similar.
        close = nearest(own, (o.removeprefix(domain + separator) for o in known
                              if o.rpartition("::")[0] == domain), cutoff=0.7)
        if close:
            return f"is {name!r} meant to be {domain + separator + close[0]!r}?"
    if not missing:
        return None
    return f'register @weft.onnx_converter("{missing[0]}"), as in docs/tutorials/add_converter.md'
