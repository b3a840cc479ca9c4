"""Computes of neural networks: convolution, products, pooling, normalisation, softmax."""
