"""What onnxruntime computes for an ONNX model, on one thread.

Without onnxruntime the tests of a file that imports this one are skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from onnx import ModelProto

onnxruntime = pytest.importorskip("onnxruntime")
_SILENT = 4  # errors are exceptions anyway


def session_of(model: ModelProto | bytes, *, optimized: bool = True) -> Any:
    """A session; without ``optimized`` every node runs as it is written, as fused ones round
    in other places.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _SILENT
    options.intra_op_num_threads = 1
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    data = model if isinstance(model, bytes) else model.SerializeToString()
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def run_onnxruntime(model: ModelProto | bytes, feeds: Mapping[str, np.ndarray], *,
                    optimized: bool = True) -> list[np.ndarray]:
    """All outputs for ``feeds``, by the name of the input."""
    return session_of(model, optimized=optimized).run(None, dict(feeds))
