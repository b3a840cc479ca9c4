"""The taps of a resampled axis: input positions and weights of each output position.

The formulas are those of ONNX's Resize (opsets 10 to 19), which include those of Relay's
``image.resize2d`` and torch's ``interpolate``. Functions that take an ``Arithmetic`` work on
numbers and on tensor expressions, so that compute and NumPy reference share every formula.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

from weft.ir.dtype import float64
from weft.support.dataclass import dataclass
from weft.support.errors import LoweringError
from weft.tir.expr import PrimExpr, const, maximum, select

METHODS = ("nearest_neighbor", "linear", "cubic")
TRANSFORMS = ("half_pixel", "half_pixel_symmetric", "align_corners", "asymmetric",
              "pytorch_half_pixel", "tf_half_pixel_for_nn", "tf_crop_and_resize")
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


class Arithmetic(Protocol):
    """The functions that differ between numbers and expressions."""

    def floor(self, x: Any) -> Any: ...

    def ceil(self, x: Any) -> Any: ...

    def choose(self, condition: Any, yes: Any, no: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class Resampling:
    """The resampling of one axis, apart from its size.

    ``scale`` is the given factor, or ``None`` for the ratio of the sizes. ``start`` and ``end``
    bound the region that ``tf_crop_and_resize`` reads, relative to the axis.
    """

    new_size: PrimExpr | int
    method: str = "linear"
    transform: str = "half_pixel"
    rounding: str = "round_prefer_floor"
    cubic_alpha: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False
    scale: float | None = None
    start: float = 0.0
    end: float = 1.0

    def source(self, position: Any, size: Any) -> Any:
        """The input coordinate of output position ``position``, for an axis of ``size``."""
        new = self._new_size()
        scaled = new if self.scale is None else size * self.scale
        scale = scaled / size if self.scale is None else self.scale
        if self.transform == "align_corners":
            return position * (size - 1.0) / _at_least_one(new - 1.0)
        if self.transform == "asymmetric":
            return position / scale
        if self.transform == "tf_half_pixel_for_nn":
            return (position + 0.5) / scale
        if self.transform == "tf_crop_and_resize":
            width = (self.end - self.start) * (size - 1.0)
            middle = position * 0.0 + (size - 1.0) * (0.5 * (self.start + self.end))
            if isinstance(self.new_size, int) and self.new_size == 1:
                return middle
            steps = new - 1.0 if isinstance(new, float) else _at_least_one(new - 1.0)
            return self._if_single(middle, (size - 1.0) * self.start + position * width / steps)
        half = (position + 0.5) / scale - 0.5
        if self.transform == "pytorch_half_pixel":
            return self._if_single(position * 0.0 - 0.5, half)
        if self.transform != "half_pixel_symmetric":
            return half
        return half + size / 2.0 * (1.0 - new / scaled)

    def _new_size(self) -> Any:
        """The new size in floating point."""
        if isinstance(self.new_size, int):
            return float(self.new_size)
        return self.new_size.astype(float64)

    def _if_single(self, single: Any, several: Any) -> Any:
        """``single`` for one output element, ``several`` for more."""
        if isinstance(self.new_size, int):
            return single if self.new_size == 1 else several
        return select(self.new_size.equal(1), single, several)

    def nearest(self, x: Any, math_: Arithmetic) -> Any:
        """The input position nearest to ``x`` under the rounding mode."""
        if self.rounding == "round_prefer_floor":
            return math_.ceil(x - 0.5)
        if self.rounding == "round_prefer_ceil":
            return math_.floor(x + 0.5)
        return math_.floor(x) if self.rounding == "floor" else math_.ceil(x)

    def shrink(self, size: int) -> float:
        """The factor by which antialiasing stretches the kernel of a shrinking axis."""
        if not self.antialias:
            return 1.0
        if not isinstance(self.new_size, int):
            raise LoweringError("antialias needs fixed sizes", got=self.new_size)
        scale = self.new_size / size if self.scale is None else self.scale
        return min(scale, 1.0)

    @property
    def reach(self) -> float:
        """The radius of the kernel, in input elements."""
        return 1.0 if self.method == "linear" else 2.0

    def count(self, shrink: float) -> int:
        """The number of input positions that the stretched kernel can cover."""
        if self.method == "nearest_neighbor":
            return 1
        # A stretched kernel need not span a whole number of elements: it may touch one more.
        return math.ceil(2 * self.reach / shrink) + (shrink < 1.0)

    def first(self, x: Any, shrink: float, math_: Arithmetic) -> Any:
        """The first input position that the kernel covers."""
        return math_.floor(x - self.reach / shrink) + 1

    def weigh(self, distance: Any, math_: Arithmetic) -> Any:
        """The kernel at a distance >= 0; Keys' for cubic."""
        if self.method == "linear":
            return math_.choose(distance < 1.0, 1.0 - distance, distance * 0.0)
        d, a = distance, self.cubic_alpha
        # R. Keys, "Cubic convolution interpolation for digital image processing", 1981.
        near = ((a + 2) * d - (a + 3)) * d * d + 1.0
        far = (((d - 5.0) * d + 8.0) * d - 4.0) * a
        return math_.choose(d <= 1.0, near, math_.choose(d < 2.0, far, d * 0.0))

    @property
    def is_normalised(self) -> bool:
        """Whether the weights must be divided by their sum."""
        return self.exclude_outside or self.antialias

    def keeps(self, size: int) -> bool:
        """Whether resampling leaves the axis unchanged."""
        whole = (self.start, self.end) == (0.0, 1.0) or self.transform != "tf_crop_and_resize"
        shifts = self.transform == "tf_half_pixel_for_nn"
        same = isinstance(self.new_size, int) and size == self.new_size
        return same and self.scale in (None, 1.0) and whole and not shifts


def _at_least_one(steps: Any) -> Any:
    return max(steps, 1.0) if isinstance(steps, float) else maximum(steps, const(1.0, float64))


class _Numbers:
    @staticmethod
    def floor(x: float) -> int:
        return math.floor(x)

    @staticmethod
    def ceil(x: float) -> int:
        return math.ceil(x)

    @staticmethod
    def choose(condition: bool, yes: float, no: float) -> float:
        return yes if condition else no


NUMBERS: Arithmetic = _Numbers()


def fixed_new_size(axis: Resampling) -> int:
    """The new size as a number; ``LoweringError`` if it is symbolic."""
    if not isinstance(axis.new_size, int):
        raise LoweringError("expected a fixed size", got=axis.new_size)
    return axis.new_size


def taps_of(axis: Resampling, size: int) -> list[list[tuple[int, float]]]:
    """(input position, weight) of the taps of each output position, for an axis of ``size``."""
    result = []
    shrink = axis.shrink(size)
    for position in range(fixed_new_size(axis)):
        x = axis.source(float(position), float(size))
        if axis.method == "nearest_neighbor":
            result.append([(min(max(axis.nearest(x, NUMBERS), 0), size - 1), 1.0)])
            continue
        first = axis.first(x, shrink, NUMBERS)
        taps = [(p, axis.weigh(abs(x - p) * shrink, NUMBERS))
                for p in range(first, first + axis.count(shrink))]
        if axis.exclude_outside:
            taps = [(p, w if 0 <= p < size else 0.0) for p, w in taps]
        total = sum(w for _, w in taps) if axis.is_normalised else 1.0
        result.append([(min(max(p, 0), size - 1), w / total) for p, w in taps])
    return result
