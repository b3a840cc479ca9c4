"""The virtual machine: programs with control flow, closures and data types, over kernels."""
