"""Functions of CPU kernels: the kernel itself, and the bodies of its parallel loops."""
