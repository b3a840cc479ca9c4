"""Atomic updates of global and shared memory (PTX ISA, ``atom``); the result is the old value."""

from __future__ import annotations

from weft.codegen.cuda.device_functions.record import DeviceFunction, Kind, reg

_TYPES = {"f32": Kind.F32, "f64": Kind.F64, "s32": Kind.B32, "u32": Kind.B32, "s64": Kind.B64,
          "u64": Kind.B64, "b32": Kind.B32, "b64": Kind.B64}
_UPDATES = (
    ("add", ("f32", "f64", "s32", "u32", "u64")),  # u64 also serves signed integers
    ("min", ("s32", "u32", "s64", "u64")),
    ("max", ("s32", "u32", "s64", "u64")),
    ("and", ("b32", "b64")), ("or", ("b32", "b64")), ("exch", ("b32", "b64")),
)


def _update(name: str, dtype: str, space: Kind) -> DeviceFunction:
    kind = _TYPES[dtype]
    return DeviceFunction(
        f"atomic_{name}_{space}_{dtype}", f"atom.{space}.{name}.{dtype} $d, [$at], $value;",
        (reg("at", space), reg("value", kind)), reg("d", kind),
        doc=f"update an element by ``{name}``")


def _compare(bits: int, space: Kind) -> DeviceFunction:
    kind = Kind.B32 if bits == 32 else Kind.B64
    return DeviceFunction(
        f"atomic_cas_{space}_b{bits}", f"atom.{space}.cas.b{bits} $d, [$at], $expected, $value;",
        (reg("at", space), reg("expected", kind), reg("value", kind)), reg("d", kind),
        doc="store ``value`` where the element has the bits of ``expected``")


FUNCTIONS = (
    *(_update(name, dtype, space) for space in (Kind.GLOBAL, Kind.SHARED)
      for name, dtypes in _UPDATES for dtype in dtypes),
    *(_compare(bits, space) for space in (Kind.GLOBAL, Kind.SHARED) for bits in (32, 64)),
)
