"""Offsets of the fields of NumPy arrays that compiled code reads.

The layout of ``PyArrayObject`` is part of NumPy's ABI. It starts with the object header of CPython,
which differs in free-threaded builds and in builds that trace references. ``known_layout`` checks
the layout on a real array; if it differs, calls take a slower path.
"""

from __future__ import annotations

import ctypes
import functools
import sys

import numpy as np

# Offsets in bytes from the start of the object.
TYPE = 8
DATA = 16
NDIM = 24  # int32
DIMENSIONS = 32
DTYPE = 56
FLAGS = 64  # int32

# NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED of ``ndarraytypes.h``, and with NPY_ARRAY_WRITEABLE.
CARRAY = 0x0001 | 0x0100
WRITABLE_CARRAY = CARRAY | 0x0400


@functools.lru_cache(maxsize=1)
def known_layout() -> bool:
    """Whether arrays of this interpreter have the layout above."""
    if sys.implementation.name != "cpython" or "t" in sys.abiflags:  # free-threaded
        return False
    if ctypes.sizeof(ctypes.c_void_p) != 8 or object.__basicsize__ != DATA:
        return False
    sample = np.zeros((3, 5), np.float32)
    locked = sample.copy()
    locked.flags.writeable = False
    dimensions = _word(_word(id(sample) + DIMENSIONS)), _word(_word(id(sample) + DIMENSIONS) + 8)
    flags = _half(id(sample) + FLAGS), _half(id(sample.T) + FLAGS)
    return (
        _word(id(sample) + TYPE) == id(np.ndarray)
        and _word(id(sample) + DATA) == sample.ctypes.data
        and _half(id(sample) + NDIM) == 2
        and dimensions == sample.shape
        and _word(id(sample) + DTYPE) == id(sample.dtype)
        and [flag & CARRAY == CARRAY for flag in flags] == [True, False]
        and flags[0] & WRITABLE_CARRAY == WRITABLE_CARRAY
        and _half(id(locked) + FLAGS) & WRITABLE_CARRAY == CARRAY
    )


def _word(address: int) -> int:
    return int(ctypes.c_uint64.from_address(address).value)


def _half(address: int) -> int:
    return int(ctypes.c_uint32.from_address(address).value)
