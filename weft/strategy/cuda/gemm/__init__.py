"""Matrix products on NVIDIA GPUs: products and convolutions as tiles of a GEMM."""
