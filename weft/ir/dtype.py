"""Element types, shared by the functional IR, tensor expressions and loop programs."""

from __future__ import annotations

import re
from functools import cache

import numpy as np

from weft.ir.block_dtype import block_array_dtype, block_name, block_size
from weft.support.dataclass import dataclass
from weft.support.errors import OptionError
from weft.support.suggestion import did_you_mean

# Storage formats of 8 and 4 bits. NumPy knows them, and integers below 8 bits, through ml_dtypes.
_SMALL_FLOATS = {
    "float8_e4m3fn": 8,
    "float8_e4m3fnuz": 8,
    "float8_e5m2": 8,
    "float8_e5m2fnuz": 8,
    "float8_e8m0fnu": 8,
    "float4_e2m1fn": 4,
}
_SMALL_INTS = ("int2", "uint2", "int4", "uint4")
_OF_ML_DTYPES = frozenset(("bfloat16", *_SMALL_FLOATS, *_SMALL_INTS))
USUAL_DTYPES = ("bool", "bfloat16", *_SMALL_FLOATS, *_SMALL_INTS,
          *(f"float{bits}" for bits in (16, 32, 64)),
          *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)))
_dtypes: dict[tuple[str, int, int], DType] = {}
_NAME = re.compile(rf"(bool|bfloat16|{'|'.join(_SMALL_FLOATS)}|handle|(u?int|float)(\d+))(x(\d+))?")


@dataclass(frozen=True, slots=True, eq=False, init=False)
class DType:
    """An element type, with ``lanes`` above 1 for the vectors of loop programs.

    ``code`` is one of ``int uint float bfloat bool handle``, or the name of a float of 8 or 4
    bits (``float8_e4m3fn``), or that of a format of blocks (``q4_0``). Each dtype is a single
    object, so comparison is by identity and hashing is free.
    """

    code: str
    bits: int
    lanes: int = 1

    def __new__(cls, code: str, bits: int, lanes: int = 1) -> DType:  # noqa: PYI034
        found = _dtypes.get((code, bits, lanes))
        if found is None:
            found = object.__new__(cls)
            for name, value in (("code", code), ("bits", bits), ("lanes", lanes)):
                object.__setattr__(found, name, value)
            found = _dtypes.setdefault((code, bits, lanes), found)
        return found

    def __reduce__(self) -> tuple[type[DType], tuple[str, int, int]]:
        return DType, (self.code, self.bits, self.lanes)

    @staticmethod
    def resembles(name: str) -> bool:
        """Whether a name has the form of those that ``parse`` reads."""
        return block_size(name) is not None or _NAME.fullmatch(name) is not None

    @staticmethod
    @cache
    def parse(name: str) -> DType:
        """``"float32"``, ``"bool"``, ``"int8x16"``; raises ``OptionError`` for anything else."""
        block = block_size(name)
        if block is not None:
            return DType(name, 8 * block[1])
        match = _NAME.fullmatch(name)
        if match is None:
            raise OptionError(
                f"unknown dtype {name!r}",
                expected="bool, int2..int64, uint2..uint64, float16/32/64, bfloat16, "
                + ", ".join(_SMALL_FLOATS) + ", or a format of blocks such as q4_0 or int4_g32",
                help=did_you_mean(name, USUAL_DTYPES),
            )
        lanes = int(match[5] or 1)
        base = match[1]
        if base == "bool":
            return DType("bool", 1, lanes)
        if base == "handle":
            return DType("handle", 64, lanes)
        if base == "bfloat16":
            return DType("bfloat", 16, lanes)
        if base in _SMALL_FLOATS:
            return DType(base, _SMALL_FLOATS[base], lanes)
        code, bits = match[2], int(match[3])
        legal = (16, 32, 64) if code == "float" else (2, 4, 8, 16, 32, 64)
        if bits not in legal:
            raise OptionError(f"unknown dtype {name!r}", expected=f"{code} of {legal} bits")
        return DType(code, bits, lanes)

    @staticmethod
    def of(value: DType | str | np.dtype | type) -> DType:
        """The dtype of a name, a NumPy dtype or a DType; ``OptionError`` for anything else."""
        if isinstance(value, DType):
            return value
        if isinstance(value, str):
            return DType.parse(value)
        try:
            return _of_numpy(np.dtype(value))
        except TypeError:
            raise OptionError("not a dtype", got=repr(value),
                              expected='a name such as "float32", or a NumPy dtype') from None

    @property
    def name(self) -> str:
        if self.code in ("bool", "handle") or self.is_small_float or self.is_block:
            base = self.code
        elif self.code == "bfloat":
            base = "bfloat16"
        else:
            base = f"{self.code}{self.bits}"
        return base if self.lanes == 1 else f"{base}x{self.lanes}"

    def __str__(self) -> str:
        return self.name

    @property
    def is_float(self) -> bool:
        return self.code.startswith(("float", "bfloat"))

    @property
    def is_small_float(self) -> bool:
        """A float of 8 bits or fewer: a storage format that no CPU computes in."""
        return self.code in _SMALL_FLOATS

    @property
    def is_block(self) -> bool:
        """Whether elements are blocks of quantised numbers; ``code`` is their format."""
        return block_size(self.code) is not None

    @property
    def is_narrow_float(self) -> bool:
        """A float of 16 bits or fewer, for which kernels compute in float32."""
        return self.is_float and self.bits <= 16

    @property
    def is_int(self) -> bool:
        return self.code in ("int", "uint")

    @property
    def is_bool(self) -> bool:
        return self.code == "bool"

    @property
    def element(self) -> DType:
        return self if self.lanes == 1 else DType(self.code, self.bits)

    def vector(self, lanes: int) -> DType:
        return DType(self.code, self.bits, lanes)

    @property
    def itemsize(self) -> int:
        """Bytes per element in memory; a smaller element takes one byte, as in ml_dtypes."""
        return max(1, self.bits // 8)

    @property
    def numpy(self) -> np.dtype:
        if self.lanes != 1 or self.code == "handle":
            raise OptionError(f"NumPy lacks an equivalent of dtype {self}")
        if self.is_block:
            return block_array_dtype(self.code)
        return _from_ml_dtypes(self.name) if self.name in _OF_ML_DTYPES else np.dtype(self.name)


float32 = DType("float", 32)
float64 = DType("float", 64)
int32 = DType("int", 32)
int64 = DType("int", 64)
bool_ = DType("bool", 1)
handle = DType("handle", 64)


@cache
def _from_ml_dtypes(name: str) -> np.dtype:
    import ml_dtypes  # few models have such numbers

    return np.dtype(getattr(ml_dtypes, name))


@cache
def _of_numpy(dtype: np.dtype) -> DType:
    # NumPy makes the name anew each time, slowly.
    return DType.parse(block_name(dtype) or dtype.name)
