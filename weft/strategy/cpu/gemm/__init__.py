"""GEMM: packing, cache blocking, register blocking."""
