"""Fusion of operator calls into kernels, and of parallel calls into one."""
