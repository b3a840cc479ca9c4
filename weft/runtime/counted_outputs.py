"""Outputs whose sizes data determines: allocated for the bound of each size, cut after the call."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from weft.runtime.manifest import Manifest
from weft.runtime.sizes import compiled, names_in

# A result that fills less than this part of its memory is copied, so that the rest is freed.
_LEAST_FILLED = 0.5

ShapeOf = Callable[[Mapping[str, int]], int]


class CountedOutputs:
    """Cuts the results of calls to the sizes that the program counted.

    The program writes the counts, in the order of ``Manifest.counts``, to one more output, which is
    the last. Elements of a result are adjacent at the start of its memory.
    """

    def __init__(self, manifest: Manifest, symbols: Mapping[str, int]) -> None:
        names = [count.name for count in manifest.counts]
        self._names = names
        self._symbols = {name: size for name, size in symbols.items() if name not in names}
        counted = frozenset(names)
        self._shapes = [tuple(map(_as_function, spec.shape))
                        if any(names_in(size) & counted for size in spec.shape) else None
                        for spec in manifest.outputs]

    def cut(self, results: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The results in their shapes, without the counts."""
        *results, counts = results
        sizes = {**self._symbols, **dict(zip(self._names, counts.tolist(), strict=True))}
        return [whole if shape is None else _start(whole, tuple([size(sizes) for size in shape]))
                for whole, shape in zip(results, self._shapes, strict=True)]


def _as_function(size: int | str) -> ShapeOf:
    return compiled(size) if isinstance(size, str) else lambda _: size


def _start(whole: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The array of this shape at the start of the memory of ``whole``."""
    count = math.prod(shape)
    if not isinstance(whole, np.ndarray):
        return whole.start(shape)  # on a device
    part = whole.reshape(-1)[:count].reshape(shape)
    return part.copy() if count < _LEAST_FILLED * whole.size else part
