"""Writers of operators as ONNX nodes, by family."""
