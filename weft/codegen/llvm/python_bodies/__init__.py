"""Python functions, compiled by numba, as part of a kernel's module."""
