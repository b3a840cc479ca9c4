"""NumPy dtypes of weft's element types, for processes without the compiler."""

from __future__ import annotations

import functools

import numpy as np

from weft.support.errors import ArtifactError

_NUMPY = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
          "float16", "float32", "float64")
# Dtypes of the ml_dtypes package, which is imported only by programs that use them.
_ML_DTYPES = ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
           "float8_e8m0fnu", "float4_e2m1fn", "int2", "uint2", "int4", "uint4")


@functools.cache  # compiled code compares the address of the dtype
def numpy_dtype(name: str) -> np.dtype:
    """The NumPy dtype of an element type.

    ``ArtifactError`` for an unknown name, or if ml_dtypes is needed but not installed.
    """
    if name in _NUMPY:
        return np.dtype(name)
    if name not in _ML_DTYPES:
        raise ArtifactError(f"unknown dtype {name!r}", expected=", ".join((*_NUMPY, *_ML_DTYPES)))
    try:
        import ml_dtypes
    except ImportError:
        raise ArtifactError(f"dtype {name} needs the package ml_dtypes",
                            help="pip install ml_dtypes") from None
    return np.dtype(getattr(ml_dtypes, name))
