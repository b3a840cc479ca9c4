"""LLVM IR of CUDA kernels: entry functions, loops over threads, memory spaces, device functions."""
