"""Kernels for the most frequent sizes of calls, built by a thread beside the program.

A kernel for all sizes computes bounds and masks that a kernel for one size has as constants. An
executable with ``WEFT_SPECIALIZE_AFTER`` counts its calls by their shapes. The compiler gets the
shapes that occurred that often; its code replaces the old one between two calls.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from weft.support.fork_locks import renew_in_child

if TYPE_CHECKING:
    from weft.runtime.executable import Executable
    from weft.runtime.improvement import Improvement
    from weft.runtime.launchers import Launch
    from weft.runtime.programs_by_size import Shapes

# Sizes with kernels of their own; each has code of its own for most kernels.
MOST_SIZES = 4
# Shapes that are counted at a time; calls may have any number of them.
MOST_COUNTED = 1024


class FrequentSizes:
    """The calls of an executable by their shapes, and the sizes that have kernels of their own."""

    def __init__(self, owner: Executable, after: int) -> None:
        self._owner = weakref.ref(owner)
        self._after = after
        self._calls: Counter[Shapes] = Counter()
        self._lock = threading.Lock()  # of what follows; calls are counted without one
        renew_in_child(self, "_lock")
        self._is_closed = False
        self.sizes: tuple[Mapping[str, int], ...] = ()
        self.improvement: Improvement | None = None

    def note(self, shapes: Shapes, launch: Launch) -> None:
        """Count a call; start kernels for its sizes after enough calls with them."""
        if len(self._calls) > MOST_COUNTED:
            self._calls.clear()
        count = self._calls[shapes] = self._calls[shapes] + 1  # other threads may clear them
        if count % self._after:
            return
        with self._lock:
            known = launch.sizes.symbols
            sizes = {symbol.name: known[symbol.name] for symbol in launch.manifest.symbols}
            if sizes not in self.sizes and len(self.sizes) < MOST_SIZES:
                self._start(sizes)

    def _start(self, found: Mapping[str, int]) -> None:
        owner = self._owner()
        if owner is None or self._is_closed or owner.recompiler is None \
                or not owner.wait_until_optimized(0):
            return  # the next calls ask again
        sizes = (*self.sizes, found)
        improvement = owner.recompiler.for_sizes(owner, sizes)
        if improvement is not None:
            self.sizes, self.improvement = sizes, improvement
            improvement.start(owner)

    def close(self) -> None:
        """Start no more kernels: they would belong to a program that is no longer used."""
        with self._lock:
            self._is_closed = True

    def renewed(self, owner: Executable) -> FrequentSizes:
        """New counts for the program that ``owner`` continues with."""
        return FrequentSizes(owner, self._after)

    @property
    def text(self) -> str:
        """The state for ``explain``; empty without such sizes."""
        if self.improvement is None:
            return ""
        found = "; ".join(", ".join(f"{name}={size}" for name, size in sorted(one.items()))
                          for one in self.sizes)
        if self.improvement.error is not None:
            state = f"could not be made ({self.improvement.error})"
        else:
            state = "are in place" if self.improvement.wait(0) else \
                "are being made" if self.improvement.is_running else \
                "were not made before the process ended or was forked"
        return f"sizes that calls have often: kernels for {found} {state}"
