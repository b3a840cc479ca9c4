"""Names that the functions of basic blocks use."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from weft.testing.cuda import async_copies, bulk_copies, matrices, mbarriers, warpgroups, warps
from weft.testing.cuda.block_writer import gather, scatter
from weft.testing.cuda.values import conversions, floats, integers, narrow_floats

Array = np.ndarray


def add_with_carry(a: Array, b: Array, carry: Array | bool) -> tuple[Array, Array]:
    """The sum of two unsigned arrays and a carry bit, and the carry out."""
    total = a + b
    out = total < a
    more = total + np.asarray(carry, dtype=a.dtype)
    return more, out | (more < total)


def subtract_with_borrow(a: Array, b: Array, borrow: Array | bool) -> tuple[Array, Array]:
    """The difference of two unsigned arrays and a borrow bit, and the borrow out."""
    total = a - b
    out = a < b
    more = total - np.asarray(borrow, dtype=a.dtype)
    return more, out | (more > total)


def packed_integers(function: Callable[..., Array], kind: str, a: Array, b: Array) -> Array:
    """``function`` of the 16-bit halves of two words."""
    dtype = "i2" if kind[0] == "s" else "u2"
    halves = [
        function((a >> np.uint32(at)).astype("u2").view(dtype),
                 (b >> np.uint32(at)).astype("u2").view(dtype)).view("u2").astype("u4")
        for at in (0, 16)
    ]
    return halves[0] | (halves[1] << np.uint32(16))


def pairs(function: Callable[..., Array], *operands: Array) -> Array:
    """``function`` of the two float32 halves of 64-bit words."""
    low = function(*(v.astype("u4").view("f4") for v in operands)).view("u4").astype("u8")
    high = function(*((v >> np.uint64(32)).astype("u4").view("f4") for v in operands))
    return low | (high.view("u4").astype("u8") << np.uint64(32))


NAMESPACE: Mapping[str, object] = {
    "np": np, "where": np.where, "gather": gather, "scatter": scatter,
    "I": integers, "F": floats, "H": narrow_floats, "C": conversions, "W": warps,
    "M": matrices, "A": async_copies, "B": mbarriers, "T": bulk_copies, "G": warpgroups,
    "add_with_carry": add_with_carry, "subtract_with_borrow": subtract_with_borrow,
    "packed_integers": packed_integers, "pairs": pairs,
    "bool": np.dtype(np.bool_),
    **{name: np.dtype(name) for name in ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2",
                                         "f4", "f8")},
}  # fmt: skip
