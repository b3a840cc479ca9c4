"""Conversion of old opsets to the oldest supported one."""

from __future__ import annotations

from dataclasses import replace

from onnx import ModelProto

from weft.frontend.onnx.checks import MIN_OPSET
from weft.frontend.onnx.contained import convert_version
from weft.frontend.onnx.loader import LoadedModel


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
