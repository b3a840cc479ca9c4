"""Types and arrays of StableHLO as those of weft."""

from __future__ import annotations

import re

import numpy as np

from weft.frontend.common import arrays
from weft.frontend.stablehlo.syntax import HloType, Literal
from weft.ir.dtype import DType
from weft.ir.types import TensorType
from weft.support.errors import InvalidModelError, UnsupportedModelError

DTYPES = {
    "i1": "bool", "f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16",
    **{f"{sign}i{bits}": f"{kind}{bits}" for sign, kind in (("", "int"), ("s", "int"),
                                                            ("u", "uint"))
       for bits in (2, 4, 8, 16, 32, 64)},
    "f8E4M3FN": "float8_e4m3fn", "f8E5M2": "float8_e5m2", "f8E4M3FNUZ": "float8_e4m3fnuz",
    "f8E5M2FNUZ": "float8_e5m2fnuz", "f8E8M0FNU": "float8_e8m0fnu", "f4E2M1FN": "float4_e2m1fn",
    "index": "int64",
}
_ITEM = re.compile(r"true|false|[-+]?(?:0x[0-9A-Fa-f]+|nan|inf|[\d.]+(?:[eE][-+]?\d+)?)")


def dtype_of(type_: HloType) -> DType | None:
    """The dtype of the elements; ``None`` if weft has none."""
    name = DTYPES.get(type_.element)
    return None if name is None else DType.of(name)


def tensor_type_of(type_: HloType) -> TensorType:
    """A tensor type of known sizes; ``UnsupportedModelError`` for other types."""
    dtype = dtype_of(type_)
    if dtype is None or None in type_.shape:
        raise UnsupportedModelError("no such type in weft", got=str(type_))
    return TensorType(tuple(n for n in type_.shape if n is not None), dtype)


def array_of(literal: Literal) -> np.ndarray:
    """The array that a literal writes; raises ``InvalidModelError`` for damaged ones."""
    type_ = tensor_type_of(literal.type)
    shape, dtype = type_.concrete_shape, type_.dtype.numpy
    if not literal.text.startswith("dense<"):
        raise UnsupportedModelError("the data of an array are not in the text",
                                    got=literal.text[:60],
                                    help="print the module with all its constants")
    body = literal.text[len("dense<"):-1].strip()
    flat = _from_bytes(body, dtype) if body.startswith('"') else _from_items(body, dtype)
    count = int(np.prod(shape, dtype=np.int64))
    if flat.size == 1:
        return arrays.full(shape, flat[0], dtype)
    if type_.dtype.is_bool and flat.size != count and body.startswith('"'):
        flat = np.unpackbits(flat.view(np.uint8), bitorder="little")[:count].astype(bool)
    if flat.size != count:
        raise InvalidModelError("an array has another number of elements than its type",
                                expected=f"{count} for {literal.type}", got=str(flat.size))
    return flat.reshape(shape)


def _from_bytes(body: str, dtype: np.dtype) -> np.ndarray:
    try:
        data = bytes.fromhex(body.strip('"').removeprefix("0x"))
        return np.frombuffer(data, dtype)
    except ValueError as error:
        raise InvalidModelError("the bytes of an array are damaged", got=str(error)) from None


def _from_items(body: str, dtype: np.dtype) -> np.ndarray:
    items = _ITEM.findall(body)
    if dtype.kind == "b":
        return np.array([item == "true" for item in items], bool)
    if dtype.kind in "iu" or dtype.name.startswith(("int", "uint")):
        return np.array([int(item, 0) for item in items]).astype(dtype)
    if not any("x" in item for item in items):
        return np.array([float(item) for item in items]).astype(dtype)
    bits = np.dtype(f"u{dtype.itemsize}")
    found = np.empty(len(items), dtype)
    for position, item in enumerate(items):
        found[position] = np.array(int(item, 16), bits).view(dtype) if "x" in item \
            else float(item)
    return found
