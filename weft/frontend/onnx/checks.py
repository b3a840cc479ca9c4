"""Checks of a model before its graph is converted: versions and input types.

Models of an older opset are first converted to the oldest supported one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from weft.frontend.onnx.contained import convert_version
from weft.frontend.onnx.functions import nested_nodes
from weft.frontend.onnx.loader import LoadedModel
from weft.frontend.onnx.protos import IR_VERSION, ModelProto, TypeProto
from weft.frontend.onnx.registry import DEFAULT_DOMAIN
from weft.support.errors import InvalidModelError, UnsupportedModelError

MIN_OPSET = 7
MIN_IR_VERSION = 3
_SHOWN = 12


def check_versions(loaded: LoadedModel, newest_opset: Callable[[int], int]) -> dict[str, int]:
    """Return the opset version of each domain; ``""`` is the default domain.

    ``newest_opset`` gives the newest version of it that is known, for the version that is used.

    Raises ``UnsupportedModelError`` for an unsupported IR version or opset, and
    ``InvalidModelError`` unless the model imports exactly one ai.onnx opset.
    """
    proto = loaded.proto
    if not MIN_IR_VERSION <= proto.ir_version <= IR_VERSION:
        raise UnsupportedModelError(
            f"the model has ONNX IR version {proto.ir_version}",
            where=loaded.source,
            expected=f"{MIN_IR_VERSION} to {IR_VERSION}",
            help="upgrade the onnx package" if proto.ir_version > IR_VERSION else None,
        )
    # Some exporters import an opset twice.
    versions = list({o.version for o in proto.opset_import if o.domain in DEFAULT_DOMAIN})
    if not versions and all(n.domain not in DEFAULT_DOMAIN for n in nested_nodes(proto.graph.node)):
        versions = [newest_opset(0)]
    if len(versions) != 1:
        raise InvalidModelError(
            "the model must import exactly one ai.onnx opset",
            where=loaded.source,
            expected='one opset_import with domain ""',
            got=", ".join(f"{o.domain!r} {o.version}" for o in proto.opset_import) or "none",
        )
    newest = newest_opset(versions[0])
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
    """Raise ``UnsupportedModelError`` for graph inputs that are not tensors or sequences."""
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
    """Return the type of ``type_`` with optional and sequence wrappers removed."""
    if type_.WhichOneof("value") == "optional_type":
        type_ = type_.optional_type.elem_type
    if type_.WhichOneof("value") == "sequence_type":
        type_ = type_.sequence_type.elem_type
    return type_.WhichOneof("value") or "no type"


def listed(items: Iterable[str], separator: str = ", ") -> str:
    return separator.join(shortened(list(items)))


def shortened(items: list[str]) -> list[str]:
    if len(items) <= _SHOWN:
        return items
    return [*items[:_SHOWN], f"and {len(items) - _SHOWN} more"]


def upgrade_opset(loaded: LoadedModel) -> LoadedModel:
    """Convert a model of an older opset to ``MIN_OPSET``.

    If ``onnx`` cannot convert the model, it is returned unchanged; ``check_versions`` rejects it.
    """
    proto: ModelProto = loaded.proto
    versions = [o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")]
    if len(versions) != 1 or not 1 <= versions[0] < MIN_OPSET:
        return loaded
    # None: onnx cannot convert an operator, or rejects the graph.
    converted = convert_version(proto, MIN_OPSET)
    return loaded if converted is None else replace(loaded, proto=converted)
