"""Old opsets converted to the oldest that the converters read."""

from __future__ import annotations

from onnx import ModelProto

from weft.frontend.onnx.checks import MIN_OPSET
from weft.frontend.onnx.contained import convert_version
from weft.frontend.onnx.loader import LoadedModel


def upgrade_opset(loaded: LoadedModel) -> LoadedModel:
    """``loaded`` at ``MIN_OPSET`` where it is older and ``onnx`` can convert it, else itself.

    What cannot be converted is refused later by ``check_versions``, with the model's own opset.
    """
    proto: ModelProto = loaded.proto
    versions = [o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")]
    if len(versions) != 1 or not 1 <= versions[0] < MIN_OPSET:
        return loaded
    # None: an operator lacks an adapter, or onnx rejects the graph.
    converted = convert_version(proto, MIN_OPSET)
    return loaded if converted is None else LoadedModel(converted, loaded.source, loaded.folder)
