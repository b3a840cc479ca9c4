"""Typed programs as ONNX models.

``onnx_model`` writes a program: each call of an operator becomes the ONNX nodes that the writer of
the operator emits (``weft.export.onnx.ops``), or those of a simpler form of the call.
"""
