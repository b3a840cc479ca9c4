"""Fusion of operator calls into kernels."""
