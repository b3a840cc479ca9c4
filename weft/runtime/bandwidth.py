"""Measures how fast threads read data from each level of the memory hierarchy."""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Sequence

from weft.runtime.arena import AlignedBlock
from weft.runtime.cpu import cache_bytes
from weft.runtime.library import NativeLibrary, function
from weft.runtime.timing import best_rate

READ = "weft_read"
_UNIT = 4096  # bytes; a block that is read is a multiple
_MEMORY_BYTES = 96 << 20  # of all threads together; several times most third-level caches
_SECONDS = 0.004
_ROUNDS = 4
_DEFAULTS = ((1, 32 << 10), (2, 512 << 10), (3, 8 << 20))

# Bytes that all threads together hold in a level, and the GB/s at which they read from it.
Level = tuple[float, float]


def measure_bandwidths(library: NativeLibrary, num_threads: int) -> tuple[Level, ...]:
    """Each cache level and memory: capacity in bytes, and GB/s of ``num_threads`` together.

    A level is read through a buffer of half its size. Each core has caches of the first and second
    level; the third is shared. Takes about 0.2 s.
    """
    sizes = [(level, cache_bytes(level, default)) for level, default in _DEFAULTS]
    capacities = [size * (num_threads if level < 3 else 1) for level, size in sizes]
    buffers = [*(size // 2 for size in capacities), max(_MEMORY_BYTES, 2 * capacities[-1])]
    blocks = [AlignedBlock(max(buffers) // num_threads + _UNIT) for _ in range(num_threads)]
    for block in blocks:
        block.array[:] = 0  # so that every page exists
    rates = [_read_rate(library, blocks, size // num_threads) for size in buffers]
    return tuple(zip([*map(float, capacities), math.inf], rates, strict=True))


def _read_rate(library: NativeLibrary, blocks: Sequence[AlignedBlock], nbytes: int) -> float:
    """GB/s of threads that read the first ``nbytes`` of their blocks again and again."""
    units = max(1, nbytes // _UNIT)
    read = function(library, READ, None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    runs = [functools.partial(read, block.address, units) for block in blocks]
    return best_rate(runs, _SECONDS, _ROUNDS) * units * _UNIT * 1e-9
