"""Element types by name, for a process without the compiler."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from weft.support.errors import ArtifactError

_PLAIN = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
          "float16", "float32", "float64")
_NARROW = ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
           "float8_e8m0fnu", "float4_e2m1fn", "int2", "uint2", "int4", "uint4")

NUMPY_DTYPES: dict[str, np.dtype] = {
    **{name: np.dtype(name) for name in _PLAIN},
    **{name: np.dtype(getattr(ml_dtypes, name)) for name in _NARROW},
}


def numpy_dtype(name: str) -> np.dtype:
    """The NumPy dtype of an element type; ``ArtifactError`` for a name that is none."""
    found = NUMPY_DTYPES.get(name)
    if found is None:
        raise ArtifactError(f"unknown dtype {name!r}", expected=", ".join(NUMPY_DTYPES))
    return found
