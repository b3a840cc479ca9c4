"""Converters of ONNX operators, grouped by what they compute."""
