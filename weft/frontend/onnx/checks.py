"""What a model must be before its graph is looked at: versions, features, sound nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TypeProto

from weft.frontend.onnx.loader import LoadedModel
from weft.frontend.onnx.nested import nested_nodes
from weft.frontend.onnx.registry import DEFAULT_DOMAIN
from weft.support.errors import InvalidModelError, UnsupportedModelError

MIN_OPSET = 7
MIN_IR_VERSION = 3
_CHECKER_LIMIT_BYTES = 64 * 2**20
_SHOWN = 12


def check_versions(loaded: LoadedModel) -> dict[str, int]:
    """The opset of every domain, ``""`` for the default one; raises for what cannot be read."""
    proto = loaded.proto
    if not MIN_IR_VERSION <= proto.ir_version <= onnx.IR_VERSION:
        raise UnsupportedModelError(
            f"the model has ONNX IR version {proto.ir_version}",
            where=loaded.source,
            expected=f"{MIN_IR_VERSION} to {onnx.IR_VERSION}",
            help="upgrade the onnx package" if proto.ir_version > onnx.IR_VERSION else None,
        )
    versions = [o.version for o in proto.opset_import if o.domain in DEFAULT_DOMAIN]
    newest = onnx.defs.onnx_opset_version()
    if not versions and all(n.domain not in DEFAULT_DOMAIN for n in nested_nodes(proto.graph.node)):
        versions = [newest]
    if len(versions) != 1:
        raise InvalidModelError(
            "the model does not say once which ai.onnx opset it uses",
            where=loaded.source,
            expected='one opset_import with domain ""',
            got=", ".join(f"{o.domain!r} {o.version}" for o in proto.opset_import) or "none",
        )
    if not MIN_OPSET <= versions[0] <= newest:
        raise UnsupportedModelError(
            f"the model uses ai.onnx opset {versions[0]}",
            where=loaded.source,
            expected=f"{MIN_OPSET} to {newest}",
            help="convert it: onnx.version_converter.convert_version(model, 17)"
            if versions[0] < MIN_OPSET
            else "upgrade the onnx package, or export for an older opset",
        )
    return {o.domain: o.version for o in proto.opset_import} | {"": versions[0]}


def check_features(proto: ModelProto, source: str) -> None:
    """Raises ``UnsupportedModelError`` for parts of the format that weft does not read."""
    for value in proto.graph.input:
        kind = _kind_of_elements(value.type)
        if kind != "tensor_type":
            raise UnsupportedModelError(
                f"graph input {value.name!r} is not a tensor",
                where=source,
                expected="a tensor of known element type, or a sequence of them",
                got=kind.removesuffix("_type"),
            )


def _kind_of_elements(type_: TypeProto) -> str:
    """What an input is, or the optional values and sequences that it is made of."""
    if type_.WhichOneof("value") == "optional_type":
        type_ = type_.optional_type.elem_type
    if type_.WhichOneof("value") == "sequence_type":
        type_ = type_.sequence_type.elem_type
    return type_.WhichOneof("value") or "no type"


def node_checker(
    proto: ModelProto, opsets: Mapping[str, int]
) -> Callable[[NodeProto, object], None]:
    """A function that holds one node against its ONNX schema: ``check(node, where)``.

    Raises ``InvalidModelError`` for missing inputs, missing or ill-typed attributes and so on. Of
    ``onnx.checker`` this is the part that ``check_graph`` and the importer do not cover; it also
    asks that nodes are sorted and that outputs state their shapes, which readers can do without.
    """
    context = onnx.checker.C.CheckerContext()
    context.ir_version = proto.ir_version
    context.opset_imports = dict(opsets)

    def check(node: NodeProto, where: object) -> None:
        if node.ByteSize() > _CHECKER_LIMIT_BYTES:  # a large Constant, which is read anyway
            return
        try:
            onnx.checker.check_node(_without_bodies(node), context)
        except onnx.checker.ValidationError as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            raise InvalidModelError(
                f"{node.op_type} breaks a rule of the ONNX format",
                where=where,
                notes=shortened(lines),
            ) from None

    return check


def _without_bodies(node: NodeProto) -> NodeProto:
    """Bodies capture values that the checker of single nodes does not know."""
    if not any(a.type == AttributeProto.GRAPH for a in node.attribute):
        return node
    bare = NodeProto()
    bare.CopyFrom(node)
    for attribute in bare.attribute:
        if attribute.type == AttributeProto.GRAPH:
            attribute.g.CopyFrom(GraphProto(name="body"))
    return bare


def listed(items: Iterable[str], separator: str = ", ") -> str:
    return separator.join(shortened(list(items)))


def shortened(items: list[str]) -> list[str]:
    if len(items) <= _SHOWN:
        return items
    return [*items[:_SHOWN], f"and {len(items) - _SHOWN} more"]
