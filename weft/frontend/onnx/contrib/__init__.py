"""Converters of ONNX Runtime's own operators (domain ``com.microsoft``), one module per family."""
