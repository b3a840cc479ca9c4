"""Converters of ONNX operators, grouped by kind of operator."""
