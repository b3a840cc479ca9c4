"""LLVM types and constants of dtypes, as text.

Each dtype has a value type, for registers, and a memory type. They differ for types narrower than a
byte (``bool``, ``int4``), which take a byte in memory. ``bfloat16`` and floats of 8 and 4 bits are
integers of their width in LLVM: conversions are integer arithmetic, with the same results on every
CPU.
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
    """The LLVM type of a value of ``dtype`` in a register.

    ``CodegenError`` for dtypes that weft cannot compute in.
    """
    return vector_of(_scalar_type(dtype), dtype.lanes)


@cache
def memory_type(dtype: DType) -> str:
    """The LLVM type of ``dtype`` in memory, for loads and stores."""
    scalar = _scalar_type(dtype)
    return vector_of("i8" if scalar in ("i1", "i2", "i4") else scalar, dtype.lanes)


def is_narrow(dtype: DType) -> bool:
    """Whether values are narrower than a byte, so that stores zero-extend them."""
    return dtype.is_bool or (dtype.is_int and dtype.bits < 8)


def vector_of(scalar: str, lanes: int) -> str:
    """A vector type; ``CodegenError`` for more lanes than LLVM's back ends handle."""
    if lanes > _MAX_LANES:
        raise CodegenError(
            f"vector too long: {lanes} lanes",
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
    raise CodegenError(f"unsupported dtype: {dtype}")


@lru_cache(maxsize=4096)
def float_constant(value: float, dtype: DType) -> str:
    """``value`` rounded to ``dtype``, as a bit-exact (hexadecimal) LLVM literal."""
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
    """``value`` wrapped to the width of ``dtype``, as an LLVM literal."""
    if dtype.is_bool:
        return "true" if value else "false"
    return str(value & ((1 << dtype.bits) - 1))


def splat(constant: str, scalar_type: str, lanes: int) -> str:
    """A constant vector with ``constant`` in every lane; the constant itself for one lane."""
    return constant if lanes == 1 else f"splat ({scalar_type} {constant})"


def zero_of(dtype: DType) -> str:
    """The zero constant of ``dtype``."""
    if dtype.lanes > 1:
        return "zeroinitializer"
    return "0.0" if dtype.code == "float" else "false" if dtype.is_bool else "0"


def mangle(llvm_type: str) -> str:
    """The name of a type in overloaded intrinsics: ``v16f32`` for ``<16 x float>``."""
    if llvm_type.startswith("<"):
        lanes, _, scalar = llvm_type[1:-1].partition(" x ")
        return f"v{lanes}{mangle(scalar)}"
    if llvm_type.startswith("ptr addrspace("):
        return f"p{llvm_type[len('ptr addrspace('):-1]}"
    return {"half": "f16", "float": "f32", "double": "f64", "ptr": "p0"}.get(llvm_type, llvm_type)
