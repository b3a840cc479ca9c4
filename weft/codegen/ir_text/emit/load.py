"""Loads of scalars and vectors.

Vector loads state the alignment of the element. Unaligned move instructions are as fast as aligned
ones when the data happens to be aligned.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.codegen.ir_text.emit.address import address, lane_addresses, sole_index
from weft.codegen.ir_text.emit.cast import from_memory
from weft.codegen.ir_text.emit.lane_access import load_lanes
from weft.codegen.ir_text.emit.register_slots import find_slot, load_slot
from weft.codegen.ir_text.emit.state import FunctionState, emit
from weft.codegen.ir_text.types import mangle, memory_type, splat, value_type, vector_of, zero_of
from weft.codegen.ir_text.vector.constant_mask import active_lanes, lane_of
from weft.tir import LT, Broadcast, Buffer, BufferLoad, PrimExpr, Ramp, const, int_value

# For these strides, contiguous loads and shuffles are faster than a gather.
SHUFFLED_STRIDES = (2, 3, 4)


def emit_load(state: FunctionState, load: BufferLoad) -> str:
    """The value of a ``BufferLoad``. Lanes where the predicate is false are zero and not read.

    The cases are tried from the cheapest to the most general: register slot, scalar, broadcast,
    contiguous, reversed, single active lane, short stride, gather.
    """
    buffer, index = load.buffer, sole_index(load.buffer, load.indices)
    if buffer in state.kernel.written or buffer.scope == "local":
        state.effects += 1  # the buffer is written: do not reuse the value
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
    if isinstance(index, Ramp) and stride == 1 and (mask is None or state.kernel.has_masks):
        return _load_contiguous(state, buffer, index, mask)
    if not state.kernel.has_masks:
        return load_lanes(state, buffer, index, mask)
    lanes = index.dtype.lanes
    if isinstance(index, Ramp) and stride == -1 and mask is None:
        run = _load_elements(state, buffer, index.base - (lanes - 1), lanes)
        kind = value_type(buffer.dtype.vector(lanes))
        return _shuffled(state, kind, run, "poison", range(lanes)[::-1])
    active = range(lanes) if load.predicate is None else active_lanes(load.predicate)
    only = lane_of(index, active[0]) if active is not None and len(active) == 1 else None
    if active is not None and only is not None:  # one active lane: a masked contiguous load
        return _load_contiguous(state, buffer, Ramp(only - active[0], const(1), lanes), mask)
    if isinstance(index, Ramp) and stride in SHUFFLED_STRIDES and active:
        if len(active) == lanes:
            return _load_strided(state, buffer, index, stride)
        return _load_some_strided(state, buffer, index, stride, active)
    if isinstance(index, Ramp) and stride in SHUFFLED_STRIDES and load.predicate is not None:
        return _load_masked_strided(state, buffer, index, stride, load.predicate)
    return _gather(state, buffer, index, mask)


def emit_mask(state: FunctionState, predicate: PrimExpr | None, lanes: int) -> str | None:
    """A predicate as an ``i1`` vector of ``lanes``; ``None`` if there is no predicate."""
    if predicate is None:
        return None
    mask = emit(state, predicate)
    return mask if predicate.dtype.lanes == lanes else state.out.broadcast(mask, "i1", lanes)


def lane_mask(mask: str | None, lanes: int) -> str:
    """``mask``, or the all-true mask where it is ``None``."""
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
    """A contiguous load of ``lanes`` elements from ``index``."""
    pointer = address(state, buffer, index)
    dtype = buffer.dtype.vector(lanes)
    loaded = state.out.emit(
        f"load {memory_type(dtype)}, {state.pointer_type(buffer)} {pointer}, "
        f"align {state.kernel.alignment(buffer, index, lanes)}{state.kernel.load_suffix(buffer)}"
    )
    return from_memory(state.out, loaded, dtype)


def _load_contiguous(state: FunctionState, buffer: Buffer, index: Ramp, mask: str | None) -> str:
    if mask is None:
        return _load_elements(state, buffer, index.base, index.lanes)
    pointer = address(state, buffer, index.base, exact=False)
    return _masked(state, buffer, index.lanes, "load", state.pointer_type(buffer), pointer, mask)


def _gather(state: FunctionState, buffer: Buffer, index: PrimExpr, mask: str | None) -> str:
    lanes = index.dtype.lanes
    pointers = lane_addresses(state, buffer, index)
    return _masked(
        state, buffer, lanes, "gather", vector_of(state.pointer_type(buffer), lanes), pointers,
        lane_mask(mask, lanes))


def _masked(
    state: FunctionState, buffer: Buffer, lanes: int, name: str, pointer_type: str, pointers: str,
    mask: str,
) -> str:  # fmt: skip
    """The intrinsic ``llvm.masked.NAME`` at ``pointers``, one for all lanes or one per lane."""
    dtype = buffer.dtype.vector(lanes)
    kind, flag = memory_type(dtype), vector_of("i1", lanes)
    callee = state.out.module.declare(
        f"llvm.masked.{name}.{mangle(kind)}.{mangle(pointer_type)}",
        f"{kind} @({pointer_type}, {flag}, {kind})",
    )
    loaded = state.out.emit(
        f"call {kind} {callee}({pointer_type} align {buffer.dtype.itemsize} {pointers}, "
        f"{flag} {mask}, {kind} zeroinitializer){state.kernel.load_suffix(buffer)}"
    )
    return from_memory(state.out, loaded, dtype)


def _load_strided(state: FunctionState, buffer: Buffer, index: Ramp, stride: int) -> str:
    """A strided load as ``stride`` contiguous loads that shuffles combine.

    The last load ends at the last element, so that no memory beyond the buffer is read.
    """
    lanes = index.lanes
    kind = value_type(buffer.dtype.vector(lanes))
    last = (lanes - 1) * stride
    result = _load_elements(state, buffer, index.base, lanes)
    for number in range(1, stride):
        first = min(number * lanes, last - lanes + 1)
        loaded = _load_elements(state, buffer, index.base + first, lanes)
        picks = [_shuffle_index(lane, lane * stride, number, first, lanes) for lane in range(lanes)]
        result = _shuffled(state, kind, result, loaded, picks)
    return result


def _load_some_strided(
    state: FunctionState, buffer: Buffer, index: Ramp, stride: int, active: Sequence[int]
) -> str:
    """As ``_load_strided`` for a masked load: inactive lanes are zero.

    Reads the contiguous range from the first to the last active element.
    """
    lanes = index.lanes
    kind = value_type(buffer.dtype.vector(lanes))
    low, last = active[0] * stride, active[-1] * stride
    # Elements between two active ones are inside the buffer, so they may be read.
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


def _load_masked_strided(
    state: FunctionState, buffer: Buffer, index: Ramp, stride: int, predicate: PrimExpr
) -> str:
    """As ``_load_strided`` for lanes that are known at run time: masked contiguous loads.

    Elements between two active ones may be read, others that are not active are not.
    """
    lanes = index.lanes
    kind, result = value_type(buffer.dtype.vector(lanes)), "zeroinitializer"
    for first in range(0, (lanes - 1) * stride + 1, lanes):
        mask = _mask_of_elements(state, predicate, stride, first, lanes)
        run = Ramp(index.base + first, const(1), lanes)
        loaded = _load_contiguous(state, buffer, run, mask)
        picks = [lanes + lane * stride - first if first <= lane * stride < first + lanes else lane
                 for lane in range(lanes)]
        result = _shuffled(state, kind, result, loaded, picks)
    return result


def _mask_of_elements(
    state: FunctionState, predicate: PrimExpr, stride: int, first: int, lanes: int
) -> str:
    """The mask of ``lanes`` elements from ``first`` on; lane ``i`` is element ``i * stride``.

    Where a tail begins is a comparison again: lane i < n is element e < stride * n - (stride - 1),
    which excludes the elements after the last active lane.
    """
    if isinstance(predicate, LT) and isinstance(predicate.a, Ramp) and (
            isinstance(predicate.b, Broadcast) and int_value(predicate.a.stride) == 1):
        start, end = predicate.a.base * stride + first, predicate.b.value * stride - (stride - 1)
        return emit(state, LT(Ramp(start, const(1), lanes), Broadcast(end, lanes)))
    mask = emit_mask(state, predicate, lanes)
    picks = [(first + i) // stride if (first + i) % stride == 0 else lanes for i in range(lanes)]
    return _shuffled(state, vector_of("i1", lanes), mask or "", "zeroinitializer", picks)


def _shuffled(state: FunctionState, kind: str, a: str, b: str, picks: Sequence[int]) -> str:
    chosen = ", ".join(f"i32 {p}" for p in picks)
    return state.out.emit(f"shufflevector {kind} {a}, {kind} {b}, <{len(picks)} x i32> <{chosen}>")


def _shuffle_index(lane: int, element: int, number: int, first: int, lanes: int) -> int:
    """Shuffle index of ``lane`` when load ``number``, from element ``first``, is merged.

    Selects from the new load if it holds ``element``, else keeps the lane of the previous result.
    In the first merge the previous result is the first load, still in memory order.
    """
    holder = element // lanes
    if holder == number:
        return lanes + element - first
    if number > 1:
        return lane
    return element if holder == 0 else 0
