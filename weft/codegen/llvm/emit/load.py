"""Loads of scalars and vectors.

Vectors move with element alignment: unaligned moves of aligned data cost nothing on the CPUs in
use.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.codegen.llvm.emit.address import address, lane_addresses, sole_index
from weft.codegen.llvm.emit.cast import from_memory
from weft.codegen.llvm.emit.dispatch import emit
from weft.codegen.llvm.emit.register_slots import find_slot, load_slot
from weft.codegen.llvm.emit.state import FunctionState
from weft.codegen.llvm.text.types import mangle, memory_type, splat, value_type, vector_of, zero_of
from weft.codegen.llvm.vector.constant_mask import active_lanes, lane_of
from weft.tir.buffer import Buffer
from weft.tir.expr import Broadcast, BufferLoad, PrimExpr, Ramp, const, int_value

# Strides of which a few neighbouring loads and shuffles are cheaper than a gather.
SHUFFLED_STRIDES = (2, 3, 4)


def emit_load(state: FunctionState, load: BufferLoad) -> str:
    """The value of a ``BufferLoad``; lanes outside its predicate are zero and not read."""
    buffer, index = load.buffer, sole_index(load.buffer, load.indices)
    if buffer in state.kernel.written or buffer.scope == "local":
        state.effects += 1  # memory may change: do not reuse the value
    mask = emit_mask(state, load.predicate, index.dtype.lanes)
    slot = find_slot(state, buffer, index)
    if slot is not None:
        return load_slot(state, slot, load.dtype, mask)
    if index.dtype.lanes == 1:
        return _load_scalar(state, buffer, index, mask)
    if isinstance(index, Broadcast) and mask is None:
        scalar = _load_elements(state, buffer, index.value, 1)
        return state.out.broadcast(scalar, value_type(buffer.dtype), index.lanes)
    stride = int_value(index.stride) if isinstance(index, Ramp) else None
    if isinstance(index, Ramp) and stride == 1:
        return _load_contiguous(state, buffer, index, mask)
    lanes = index.dtype.lanes
    if isinstance(index, Ramp) and stride == -1 and mask is None:
        run = _load_elements(state, buffer, index.base - (lanes - 1), lanes)
        kind = value_type(buffer.dtype.vector(lanes))
        return _shuffled(state, kind, run, "poison", range(lanes)[::-1])
    active = range(lanes) if load.predicate is None else active_lanes(load.predicate)
    only = lane_of(index, active[0]) if active is not None and len(active) == 1 else None
    if active is not None and only is not None:  # as a part of a run of neighbours
        return _load_contiguous(state, buffer, Ramp(only - active[0], const(1), lanes), mask)
    if isinstance(index, Ramp) and stride in SHUFFLED_STRIDES and active:
        if len(active) == lanes:
            return _load_strided(state, buffer, index, stride)
        return _load_some_strided(state, buffer, index, stride, active)
    return _gather(state, buffer, index, mask)


def emit_mask(state: FunctionState, predicate: PrimExpr | None, lanes: int) -> str | None:
    """A predicate as one flag per lane."""
    if predicate is None:
        return None
    mask = emit(state, predicate)
    return mask if predicate.dtype.lanes == lanes else state.out.broadcast(mask, "i1", lanes)


def lane_mask(mask: str | None, lanes: int) -> str:
    """``mask``, or that of all lanes."""
    return mask or splat("true", "i1", lanes)


def _load_scalar(state: FunctionState, buffer: Buffer, index: PrimExpr, mask: str | None) -> str:
    if mask is None:
        return _load_elements(state, buffer, index, 1)
    out = state.out
    label = out.fresh("guarded")
    out.do(f"br i1 {mask}, label %{label}, label %{label}.skip")
    before = out.block
    out.start_block(label)
    with state.memo.scope():
        value = _load_elements(state, buffer, index, 1)
    loaded_in = out.block
    out.branch(f"{label}.skip")
    out.start_block(f"{label}.skip")
    kind = value_type(buffer.dtype)
    return out.emit(f"phi {kind} [ {value}, %{loaded_in} ], [ {zero_of(buffer.dtype)}, %{before} ]")


def _load_elements(state: FunctionState, buffer: Buffer, index: PrimExpr, lanes: int) -> str:
    """``lanes`` neighbours from ``index`` on."""
    pointer = address(state, buffer, index)
    dtype = buffer.dtype.vector(lanes)
    loaded = state.out.emit(
        f"load {memory_type(dtype)}, ptr {pointer}, align {buffer.dtype.itemsize}"
        f"{state.kernel.alias.suffix(buffer)}"
    )
    return from_memory(state.out, loaded, dtype)


def _load_contiguous(state: FunctionState, buffer: Buffer, index: Ramp, mask: str | None) -> str:
    if mask is None:
        return _load_elements(state, buffer, index.base, index.lanes)
    pointer = address(state, buffer, index.base, exact=False)
    return _masked(state, buffer, index.lanes, "load", "ptr", pointer, mask)


def _gather(state: FunctionState, buffer: Buffer, index: PrimExpr, mask: str | None) -> str:
    lanes = index.dtype.lanes
    places = lane_addresses(state, buffer, index)
    return _masked(
        state, buffer, lanes, "gather", vector_of("ptr", lanes), places, lane_mask(mask, lanes)
    )


def _masked(
    state: FunctionState, buffer: Buffer, lanes: int, name: str, places: str, where: str, mask: str
) -> str:
    """The intrinsic ``llvm.masked.NAME`` over pointers ``where`` of type ``places``."""
    dtype = buffer.dtype.vector(lanes)
    kind, flag = memory_type(dtype), vector_of("i1", lanes)
    callee = state.out.module.declare(
        f"llvm.masked.{name}.{mangle(kind)}.{mangle(places)}",
        f"{kind} @({places}, {flag}, {kind})",
    )
    loaded = state.out.emit(
        f"call {kind} {callee}({places} align {buffer.dtype.itemsize} {where}, {flag} {mask}, "
        f"{kind} zeroinitializer){state.kernel.alias.suffix(buffer)}"
    )
    return from_memory(state.out, loaded, dtype)


def _load_strided(state: FunctionState, buffer: Buffer, index: Ramp, stride: int) -> str:
    """A short stride as neighbouring loads, one for each step of it, and shuffles of them.

    The last load ends with the last element, so that nothing past it is read.
    """
    lanes = index.lanes
    kind = value_type(buffer.dtype.vector(lanes))
    last = (lanes - 1) * stride
    result = _load_elements(state, buffer, index.base, lanes)
    for number in range(1, stride):
        first = min(number * lanes, last - lanes + 1)
        loaded = _load_elements(state, buffer, index.base + first, lanes)
        picks = [_pick(lane, lane * stride, number, first, lanes) for lane in range(lanes)]
        result = _shuffled(state, kind, result, loaded, picks)
    return result


def _load_some_strided(
    state: FunctionState, buffer: Buffer, index: Ramp, stride: int, active: Sequence[int]
) -> str:
    """As ``_load_strided`` for some lanes, the others zero; reads from the first to the last."""
    lanes = index.lanes
    kind = value_type(buffer.dtype.vector(lanes))
    low, last = active[0] * stride, active[-1] * stride
    result = "zeroinitializer"
    for first in range(low // lanes * lanes, last + 1, lanes):
        inside = [low <= element <= last for element in range(first, first + lanes)]
        flags = ", ".join(f"i1 {'true' if flag else 'false'}" for flag in inside)
        run = Ramp(index.base + first, const(1), lanes)
        loaded = _load_contiguous(state, buffer, run, None if all(inside) else f"<{flags}>")
        found = {lane: lane * stride - first for lane in active
                 if first <= lane * stride < first + lanes}
        picks = [lanes + found[lane] if lane in found else lane for lane in range(lanes)]
        result = _shuffled(state, kind, result, loaded, picks)
    return result


def _shuffled(state: FunctionState, kind: str, a: str, b: str, picks: Sequence[int]) -> str:
    chosen = ", ".join(f"i32 {p}" for p in picks)
    return state.out.emit(f"shufflevector {kind} {a}, {kind} {b}, <{len(picks)} x i32> <{chosen}>")


def _pick(lane: int, element: int, number: int, first: int, lanes: int) -> int:
    """Where a lane comes from as load ``number``, which starts at ``first``, joins the others.

    From the load, where it is the one that holds the element; else it stays in place. Before the
    first shuffle that is its place in memory.
    """
    holder = element // lanes
    if holder == number:
        return lanes + element - first
    if number > 1:
        return lane
    return element if holder == 0 else 0
