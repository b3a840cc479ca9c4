"""Code generation for NVIDIA GPUs: loop programs to PTX."""
