"""LLVM types and constants, as text, of weft's element types.

A dtype has two LLVM types: that of values in registers and that of elements in memory. They
differ where a value is narrower than a byte (``bool``, ``int4``). ``bfloat16`` and the floats of 8
and 4 bits are held as their bits: their conversions are integer arithmetic, exact on every CPU.
"""

from __future__ import annotations

import math
import struct
from functools import cache, lru_cache

import numpy as np

from weft.ir.dtype import DType
from weft.support.errors import CodegenError

_MAX_LANES = 1024
_FLOATS = {16: "half", 32: "float", 64: "double"}


@cache
def value_type(dtype: DType) -> str:
    """The type of a value in registers; ``CodegenError`` for dtypes without arithmetic."""
    return vector_of(_scalar_type(dtype), dtype.lanes)


@cache
def memory_type(dtype: DType) -> str:
    """The type that loads and stores of ``dtype`` move."""
    scalar = _scalar_type(dtype)
    return vector_of("i8" if scalar in ("i1", "i2", "i4") else scalar, dtype.lanes)


def is_narrow(dtype: DType) -> bool:
    """Whether values must be widened to a byte when they are stored."""
    return dtype.is_bool or (dtype.is_int and dtype.bits < 8)


def vector_of(scalar: str, lanes: int) -> str:
    """The type of ``lanes`` values, within what LLVM's back ends survive."""
    if lanes > _MAX_LANES:
        raise CodegenError(
            f"a vector of {lanes} lanes",
            expected=f"at most {_MAX_LANES}",
            help="split the loop and vectorise the inner part",
        )
    return scalar if lanes == 1 else f"<{lanes} x {scalar}>"


def _scalar_type(dtype: DType) -> str:
    if dtype.code == "float":
        return _FLOATS[dtype.bits]
    if dtype.code == "bfloat":
        return "i16"
    if dtype.is_small_float:
        return "i8"
    if dtype.is_bool:
        return "i1"
    if dtype.is_int:
        return f"i{dtype.bits}"
    if dtype.code == "handle":
        return "ptr"
    raise CodegenError(f"machine code cannot compute in {dtype}")


@lru_cache(maxsize=4096)
def float_constant(value: float, dtype: DType) -> str:
    """``value`` rounded to ``dtype``, in LLVM's bit-exact spelling."""
    if dtype.code == "bfloat":
        with np.errstate(over="ignore"):
            bits = np.asarray(value, dtype.element.numpy).view(np.uint16)
        return str(int(bits))
    if dtype.is_small_float:
        with np.errstate(over="ignore", invalid="ignore"):
            return str(int(dtype.element.numpy.type(value).view(np.uint8)))
    if dtype.bits == 16:
        with np.errstate(over="ignore"):
            bits = np.float16(value).view(np.uint16)
        return f"0xH{int(bits):04X}"
    if dtype.bits == 32 and math.isfinite(value):
        with np.errstate(over="ignore"):
            value = float(np.float32(value))
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


@lru_cache(maxsize=4096)
def int_constant(value: int, dtype: DType) -> str:
    """``value`` wrapped to the bits of ``dtype``."""
    if dtype.is_bool:
        return "true" if value else "false"
    return str(value & ((1 << dtype.bits) - 1))


def splat(constant: str, scalar_type: str, lanes: int) -> str:
    """A constant in every lane."""
    return constant if lanes == 1 else f"splat ({scalar_type} {constant})"


def zero_of(dtype: DType) -> str:
    """Zero of every lane."""
    if dtype.lanes > 1:
        return "zeroinitializer"
    return "0.0" if dtype.code == "float" else "false" if dtype.is_bool else "0"


def mangle(llvm_type: str) -> str:
    """The suffix by which LLVM's overloaded intrinsics name a type: ``v16f32``, ``i64``."""
    if llvm_type.startswith("<"):
        lanes, _, scalar = llvm_type[1:-1].partition(" x ")
        return f"v{lanes}{mangle(scalar)}"
    return {"half": "f16", "float": "f32", "double": "f64", "ptr": "p0"}.get(llvm_type, llvm_type)
