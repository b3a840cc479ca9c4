"""The backend test suite of the ``onnx`` package, run against ``weft.onnx_backend``."""
