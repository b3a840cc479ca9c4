"""Old opsets converted to the oldest that the converters read."""

from __future__ import annotations

import onnx.shape_inference
import onnx.version_converter
from onnx import ModelProto

from weft.frontend.onnx.checks import MIN_OPSET
from weft.frontend.onnx.loader import LoadedModel

_REFUSALS = (RuntimeError, ValueError, onnx.version_converter.ConvertError,
             onnx.shape_inference.InferenceError)


def upgrade_opset(loaded: LoadedModel) -> LoadedModel:
    """``loaded`` at ``MIN_OPSET`` where it is older and ``onnx`` can convert it, else itself.

    What cannot be converted is refused later by ``check_versions``, with the model's own opset.
    """
    proto: ModelProto = loaded.proto
    versions = [o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")]
    if len(versions) != 1 or not 1 <= versions[0] < MIN_OPSET:
        return loaded
    try:
        converted = onnx.version_converter.convert_version(proto, MIN_OPSET)
    except _REFUSALS:  # no adapter, or a graph that onnx finds fault with
        return loaded
    return LoadedModel(converted, loaded.source, loaded.folder)
