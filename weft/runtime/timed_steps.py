"""Kernel calls made one by one by machine code, with the clock read between them.

The machine code is ``weft_run_steps`` (``weft.codegen.llvm.runtime_support.step_runner``).
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence

from weft.runtime.library import NativeLibrary, function

RUN_STEPS = "weft_run_steps"
# Numbers of arguments of the calls in machine code.
FORMS = (4, 8, 16, 32, 64)


class TimedSteps:
    """Calls of functions at ``addresses`` with these ``arguments``, made in order by ``run``.

    The table has a record per call: address, number of arguments, arguments.
    """

    def __init__(self, library: NativeLibrary, addresses: Sequence[int],
                 arguments: Sequence[Sequence[int]]) -> None:
        self._library = library  # its code stays mapped
        words = [word for address, values in zip(addresses, arguments, strict=True)
                 for word in (address, len(values), *values)]
        # A form that is larger than the last call reads behind its arguments.
        self._table = (ctypes.c_int64 * (len(words) + FORMS[-1]))(*map(_signed, words))
        self._number = len(addresses)
        self._times = (ctypes.c_int64 * (self._number + 1))()
        self._run = function(library, RUN_STEPS, None, ctypes.c_void_p, ctypes.c_int64,
                             ctypes.c_void_p, ctypes.c_void_p)

    @staticmethod
    def takes(arguments: Sequence[Sequence[int]]) -> bool:
        """Whether calls with these arguments can be made so: none has too many."""
        return all(len(values) <= FORMS[-1] for values in arguments)

    def run(self) -> list[float]:
        """Make the calls; the clock before each of them and after the last, in seconds.

        Ticks of the machine code become seconds by the clock around all calls.
        """
        start = time.perf_counter()
        self._run(ctypes.addressof(self._table), self._number, _CLOCK, self._times)
        taken = time.perf_counter() - start
        first, last = self._times[0], self._times[self._number]
        scale = taken / max(last - first, 1)
        return [start + (tick - first) * scale for tick in self._times]


def _signed(word: int) -> int:
    return word - (1 << 64) if word >= 1 << 63 else word


_CLOCK = ctypes.cast(ctypes.CDLL(None).clock_gettime, ctypes.c_void_p)
