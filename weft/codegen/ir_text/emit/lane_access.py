"""Vector accesses lane by lane, for machines without gathers, scatters and masked accesses."""

from __future__ import annotations

from weft.codegen.ir_text.emit.address import address
from weft.codegen.ir_text.emit.arith import call_overloaded, emit_binary
from weft.codegen.ir_text.emit.cast import from_memory
from weft.codegen.ir_text.emit.state import FunctionState, emit
from weft.codegen.ir_text.types import memory_type, value_type, zero_of
from weft.ir import int32, int64
from weft.tir import Broadcast, Buffer, PrimExpr, Ramp, const, int_value
from weft.tir import expr as x


def load_lanes(state: FunctionState, buffer: Buffer, index: PrimExpr, mask: str | None) -> str:
    """The elements at the lanes of ``index``; zero, and not read, where ``mask`` is false."""
    out, lanes = state.out, index.dtype.lanes
    kind, scalar = value_type(buffer.dtype.vector(lanes)), value_type(buffer.dtype)
    result = "undef"
    for lane in range(lanes):
        pointer = _pointer(state, buffer, index, lane)
        loaded = (f"load {memory_type(buffer.dtype)}, {state.pointer_type(buffer)} {pointer}, "
                  f"align {buffer.dtype.itemsize}{state.kernel.load_suffix(buffer)}")
        if mask is None:
            value = from_memory(out, out.emit(loaded), buffer.dtype)
        else:
            value = _guarded_load(state, buffer, loaded, _flag(state, mask, lane, lanes))
        result = out.emit(f"insertelement {kind} {result}, {scalar} {value}, i32 {lane}")
    return result


def store_lanes(
    state: FunctionState, buffer: Buffer, index: PrimExpr, value: str, mask: str | None
) -> None:
    """Store the lanes of ``value``, in its memory representation, where ``mask`` is true."""
    out, lanes = state.out, index.dtype.lanes
    kind, scalar = memory_type(buffer.dtype.vector(lanes)), memory_type(buffer.dtype)
    for lane in range(lanes):
        pointer = _pointer(state, buffer, index, lane)
        part = out.emit(f"extractelement {kind} {value}, i32 {lane}")
        store = (f"store {scalar} {part}, {state.pointer_type(buffer)} {pointer}, "
                 f"align {buffer.dtype.itemsize}{state.kernel.alias.suffix(buffer)}")
        if mask is None:
            out.do(store)
            continue
        label = _enter(state, _flag(state, mask, lane, lanes))
        out.do(store)
        out.branch(f"{label}.skip")
        out.start_block(f"{label}.skip")


def _pointer(state: FunctionState, buffer: Buffer, index: PrimExpr, lane: int) -> str:
    if isinstance(index, Ramp):
        return address(state, buffer, index.base + index.stride * const(lane, index.stride.dtype),
                       exact=False)
    if isinstance(index, Broadcast):
        return address(state, buffer, index.value, exact=False)
    kind, scalar = value_type(index.dtype), value_type(index.dtype.element)
    at = state.out.emit(f"extractelement {kind} {emit(state, index)}, i32 {lane}")
    return state.out.emit(f"getelementptr {memory_type(buffer.dtype)}, "
                          f"{state.pointer_type(buffer)} {state.pointer(buffer)}, {scalar} {at}")


def _flag(state: FunctionState, mask: str, lane: int, lanes: int) -> str:
    return state.out.emit(f"extractelement <{lanes} x i1> {mask}, i32 {lane}")


def _enter(state: FunctionState, flag: str) -> str:
    label = state.out.fresh("lane")
    state.out.do(f"br i1 {flag}, label %{label}, label %{label}.skip")
    state.out.start_block(label)
    return label


def _guarded_load(state: FunctionState, buffer: Buffer, load: str, flag: str) -> str:
    out, before = state.out, state.out.block
    label = _enter(state, flag)
    value = from_memory(out, out.emit(load), buffer.dtype)
    out.branch(f"{label}.skip")
    out.start_block(f"{label}.skip")
    zero = zero_of(buffer.dtype)
    return out.emit(f"phi {value_type(buffer.dtype)} [ {value}, %{label} ], [ {zero}, %{before} ]")


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
