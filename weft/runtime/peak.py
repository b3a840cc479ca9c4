"""Measures the machine's peak rate of fused multiply-adds.

Clock rates change with load and temperature, so a percentage of peak needs a peak that is measured
at the same time.
"""

from __future__ import annotations

import ctypes
import math

from weft.runtime.library import Library, NativeLibrary, function
from weft.runtime.timing import best_rate

_SECONDS = 0.01
_ROUNDS = 8


def measure_fma_peak(library: Library, num_threads: int = 1) -> float:
    """GFLOP/s of float32 multiply-adds in vector registers, on ``num_threads`` threads together.

    Calls ``weft_fma_peak`` of the library's runtime support for about 0.1 s. ``nan`` for a
    library that is not machine code of this process.
    """
    if not isinstance(library, NativeLibrary):
        return math.nan
    run = function(library, "weft_fma_peak", None, ctypes.c_int64)
    flops = int(function(library, "weft_fma_peak_flops", ctypes.c_int64)())
    return best_rate([run] * num_threads, _SECONDS, _ROUNDS) * flops * 1e-9
