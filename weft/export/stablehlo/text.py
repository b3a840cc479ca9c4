"""Types and constants as StableHLO writes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.ir import DType, TensorType
from weft.support.errors import UnsupportedModelError

_LISTED = 32  # larger constants are written as bytes
_FLOATS = {"float16": "f16", "float32": "f32", "float64": "f64", "bfloat16": "bf16"}


def element_text(dtype: DType) -> str:
    """``f32``, ``i64``, ``ui8``, ``i1``."""
    if dtype.is_bool:
        return "i1"
    if dtype.is_small_float:
        code = dtype.name.removeprefix("float8_").removeprefix("float4_")
        return f"f{dtype.bits}{code.upper()}"
    if dtype.is_float:
        return _FLOATS[dtype.name]
    return f"{'u' if dtype.code == 'uint' else ''}i{dtype.bits}"


def type_text(type_: TensorType) -> str:
    """``tensor<2x3xf32>``; ``UnsupportedModelError`` for symbolic sizes."""
    if not all(isinstance(d, int) for d in type_.shape):
        raise UnsupportedModelError(
            "StableHLO is written for fixed sizes", got=str(type_),
            help='give the sizes: inputs={"x": (1, 3, 224, 224)}')
    return "tensor<" + "".join(f"{d}x" for d in type_.shape) + element_text(type_.dtype) + ">"


def constant_text(data: np.ndarray, dtype: DType) -> str:
    """``dense<..>`` with one value, nested lists or bytes."""
    if data.size and (data.reshape(-1)[:1].tobytes() * data.size) == data.tobytes():
        return f"dense<{_element(data.reshape(-1)[0], dtype)}>"
    if dtype.is_bool or data.size <= _LISTED:
        return f"dense<{_listed(data, dtype)}>"
    content = np.ascontiguousarray(data).astype(data.dtype.newbyteorder("<"), copy=False)
    return f'dense<"0x{content.tobytes().hex().upper()}">'


def _listed(data: np.ndarray, dtype: DType) -> str:
    """The elements in nested brackets; arrays have few axes."""
    if data.ndim == 0:
        return _element(data[()], dtype)
    if not data.size:
        return ""
    return "[" + ", ".join(_listed(row, dtype) for row in data) + "]"


def _element(value: Any, dtype: DType) -> str:
    if dtype.is_bool:
        return "true" if value else "false"
    if not dtype.is_float:
        return str(int(value))
    # Bits say every float exactly, infinities and NaN among them.
    bits = np.asarray(value).view(f"u{dtype.numpy.itemsize}")
    return f"0x{int(bits):0{2 * dtype.numpy.itemsize}X}"


def ints(values: Sequence[int]) -> str:
    """``[0, 1]``"""
    return "[" + ", ".join(map(str, values)) + "]"


def array(values: Sequence[int]) -> str:
    """``array<i64: 0, 1>``"""
    return f"array<i64: {', '.join(map(str, values))}>" if values else "array<i64>"
