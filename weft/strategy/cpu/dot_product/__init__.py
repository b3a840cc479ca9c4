"""GEMM and convolution by dot-product instructions (VNNI, BF16)."""
