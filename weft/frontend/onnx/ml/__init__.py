"""Converters of ONNX's operators of classic machine learning (domain ai.onnx.ml)."""
