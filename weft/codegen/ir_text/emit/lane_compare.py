"""Masks of tails whose length is known at run time.

The mask of a tail compares an index per lane with a size: ``ramp(j * 16, 1, 16) < broadcast(n)``.
As 64-bit integers that takes two vectors of indices, two comparisons and a merge on AVX-512. The
distance ``n - j * 16`` is a scalar; clamped to the lanes, it fits in 32 bits, and one comparison
with the lane numbers remains.
"""

from __future__ import annotations

from weft.codegen.ir_text.emit.arith import call_overloaded, emit_binary
from weft.codegen.ir_text.emit.dispatch import emit
from weft.codegen.ir_text.emit.state import FunctionState
from weft.ir import int32, int64
from weft.tir import Broadcast, PrimExpr, Ramp, int_value
from weft.tir import expr as x

_MIRRORED: dict[type, type] = {x.LT: x.GT, x.GT: x.LT, x.LE: x.GE, x.GE: x.LE}


def emit_lane_compare(state: FunctionState, e: x.Compare) -> str | None:
    """An inequality of a ramp and a broadcast of int64; ``None`` for other comparisons."""
    op = type(e)
    if op not in _MIRRORED or e.a.dtype.element is not int64 or e.a.dtype.lanes < 2:
        return None
    ramp, bound = e.a, e.b
    if isinstance(bound, Ramp):
        ramp, bound, op = bound, ramp, _MIRRORED[op]
    stride = int_value(ramp.stride) if isinstance(ramp, Ramp) else None
    if not isinstance(ramp, Ramp) or not isinstance(bound, Broadcast) or stride is None:
        return None
    last = stride * (ramp.lanes - 1)
    if not 0 < last < 2**31 - 1 or not _is_index(ramp.base) or not _is_index(bound.value):
        return None
    out = state.out
    distance = out.emit(f"sub nsw i64 {emit(state, bound.value)}, {emit(state, ramp.base)}")
    # Beyond these ends the comparison has one result for all lanes.
    low = call_overloaded(out, "smax", "i64", (distance, "-1"))
    near = call_overloaded(out, "smin", "i64", (low, str(last + 1)))
    number = out.broadcast(out.emit(f"trunc i64 {near} to i32"), "i32", ramp.lanes)
    lanes = ", ".join(f"i32 {lane * stride}" for lane in range(ramp.lanes))
    return emit_binary(out, op, int32.vector(ramp.lanes), f"<{lanes}>", number)


def _is_index(e: PrimExpr) -> bool:
    """Whether a scalar is index arithmetic, whose differences do not overflow."""
    if isinstance(e, x.BufferLoad | x.Cast | x.Call | x.Let | x.Select):
        return False
    return all(map(_is_index, (e.a, e.b))) if isinstance(e, x.Binary) else True
