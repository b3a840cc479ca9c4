"""The range of sizes that a symbol stands for, as a part of the symbol's text.

``n`` is any size, ``n{1..16}`` a size from 1 to 16, ``n{8..%8}`` a multiple of 8 from 8 on.
"""

from __future__ import annotations

import functools
import re

from weft.ir.dtype import DType
from weft.runtime.sizes import MAX_SIZE
from weft.support.dataclass import dataclass
from weft.support.errors import OptionError, TypeInferenceError

_TEXT = re.compile(r"(?P<name>[^\W\d]\w*)"
                   r"(?:\{(?P<low>\d+)\.\.(?P<high>\d*)(?:%(?P<multiple>\d+))?\})?")

_VALUES = frozenset(("True", "False", "None", "inf", "nan"))

# The size that decisions assume for a symbol without a narrower range.
TYPICAL_SIZE = 64


@dataclass(frozen=True, slots=True)
class SizeRange:
    """Sizes from ``low`` to ``high`` (``None``: without end) that are multiples of ``multiple``."""

    low: int = 0
    high: int | None = None
    multiple: int = 1

    def __contains__(self, size: int) -> bool:
        return (self.low <= size and (self.high is None or size <= self.high)
                and size % self.multiple == 0)

    @property
    def typical(self) -> int:
        """The size in the range that decisions assume."""
        return self.nearest(TYPICAL_SIZE)

    def nearest(self, size: int) -> int:
        """``size`` if the range contains it, else the size of the range next to it or below."""
        if self.high is not None:
            size = min(size, self.high)
        low = -(-self.low // self.multiple) * self.multiple
        return max(size // self.multiple * self.multiple, low)

    def __str__(self) -> str:
        end = "" if self.high is None else self.high
        return f"{self.low}..{end}" + (f"%{self.multiple}" if self.multiple > 1 else "")


ANY_SIZE = SizeRange()


def symbol_text(name: str, sizes: SizeRange = ANY_SIZE) -> str:
    """The text of a symbol, which ``SymDim.symbol`` takes."""
    return name if sizes == ANY_SIZE else f"{name}{{{sizes}}}"


def name_of(symbol: str) -> str:
    """The name in a symbol's text."""
    return symbol.partition("{")[0]


def is_symbol(text: str) -> bool:
    """Whether a text is a name, or a name with a range that ``range_of`` can read."""
    return _TEXT.fullmatch(text) is not None


def is_reserved(name: str) -> bool:
    """Whether a name means something else as the value of an attribute: ``float32``, ``inf``."""
    return name in _VALUES or _is_dtype(name)


def _is_dtype(name: str) -> bool:
    if not DType.resembles(name):
        return False  # the error of ``parse`` would look for similar names
    try:
        DType.parse(name)
    except OptionError:
        return False
    return True


@functools.lru_cache(maxsize=4096)
def range_of(symbol: str) -> SizeRange:
    """The range in a symbol's text; ``TypeInferenceError`` for a malformed or empty one."""
    found = _TEXT.fullmatch(symbol)
    if found is None:
        raise TypeInferenceError("not a symbol of a dimension", got=symbol,
                                 expected="a name such as n, or with a range such as n{1..16}")
    if found["low"] is None:
        return ANY_SIZE
    numbers = [int(found[part]) for part in ("low", "high", "multiple") if found[part]]
    if max(numbers) > MAX_SIZE:
        raise TypeInferenceError("a size beyond int64", got=symbol, expected=f"at most {MAX_SIZE}")
    sizes = SizeRange(numbers[0], int(found["high"]) if found["high"] else None,
                      int(found["multiple"] or 1))
    if sizes.multiple < 1 or (
            sizes.high is not None and sizes.high // sizes.multiple * sizes.multiple < sizes.low):
        raise TypeInferenceError("an empty range of sizes", got=symbol)
    return sizes
