"""The backend API of the ``onnx`` package: ``weft.onnx_backend.prepare(model).run(inputs)``."""

from weft.compiler.integrations.onnx_backend import (
    WeftBackend,
    WeftRep,
    is_compatible,
    prepare,
    run_model,
    run_node,
    supports_device,
)

__all__ = [
    "WeftBackend",
    "WeftRep",
    "is_compatible",
    "prepare",
    "run_model",
    "run_node",
    "supports_device",
]
