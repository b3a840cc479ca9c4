"""PTX types as NumPy types.

A register holds bits: its canonical array has the unsigned type of its width (``bool`` for
predicates). Instructions read it as the type they name, a view of the same bits. bfloat16 and the
packed types stay unsigned; their instructions unpack them.
"""

from __future__ import annotations

from collections.abc import Mapping

WIDTHS: Mapping[str, int] = {
    "pred": 1, "b8": 8, "u8": 8, "s8": 8, "b16": 16, "u16": 16, "s16": 16, "f16": 16, "bf16": 16,
    "b32": 32, "u32": 32, "s32": 32, "f32": 32, "tf32": 32, "f16x2": 32, "bf16x2": 32, "u16x2": 32,
    "s16x2": 32, "b64": 64, "u64": 64, "s64": 64, "f64": 64, "b128": 128, "e4m3x2": 16,
    "e5m2x2": 16, "f32x2": 64,
}  # fmt: skip

NUMPY: Mapping[str, str] = {
    "pred": "bool", "b8": "u1", "u8": "u1", "s8": "i1", "b16": "u2", "u16": "u2", "s16": "i2",
    "f16": "f2", "bf16": "u2", "b32": "u4", "u32": "u4", "s32": "i4", "f32": "f4", "tf32": "f4",
    "f16x2": "u4", "bf16x2": "u4", "u16x2": "u4", "s16x2": "u4", "b64": "u8", "u64": "u8",
    "s64": "i8", "f64": "f8", "e4m3x2": "u2", "e5m2x2": "u2", "f32x2": "u8",
}  # fmt: skip

# Expressions of the NumPy types in generated code, as `<name>` of the block's namespace.
CANONICAL: Mapping[int, str] = {1: "bool", 8: "u1", 16: "u2", 32: "u4", 64: "u8"}


def is_signed(kind: str) -> bool:
    """Whether ``kind`` is a signed integer type."""
    return kind[0] == "s"


def is_float(kind: str) -> bool:
    """Whether ``kind`` is one floating-point number."""
    return kind in {"f16", "bf16", "f32", "tf32", "f64"}
