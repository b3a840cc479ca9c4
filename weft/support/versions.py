"""Versions of installed libraries, without importing them."""

from __future__ import annotations

# Libraries that affect the code that weft generates.
LIBRARIES = ("llvmlite", "numba", "numpy", "ml_dtypes", "onnx")


def library_version(name: str) -> str:
    """The version of a distribution; ``absent`` if it is not installed."""
    from importlib.metadata import PackageNotFoundError, version  # warm starts ask for none

    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"
