"""Computes of neural networks: convolution, matmul, pooling, normalisation, softmax."""
