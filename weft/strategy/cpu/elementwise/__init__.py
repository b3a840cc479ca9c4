"""Elementwise and injective kernels, transposes among them."""
