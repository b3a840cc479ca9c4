"""Winograd convolution, F(2, 3), F(4, 3) and F(6, 3)."""
