"""``local`` buffers as stack slots that LLVM promotes to registers.

Every access of a local buffer that is at a constant place gets a slot of its own, as wide as the
access. Where accesses overlap without being equal, or a place is not constant, the buffer is one
array on the stack.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.codegen.llvm.emit.address import allocate_array
from weft.codegen.llvm.emit.cast import from_memory, to_memory
from weft.codegen.llvm.emit.state import FunctionState
from weft.codegen.llvm.text.types import memory_type, value_type, vector_of, zero_of
from weft.ir.dtype import DType
from weft.tir.buffer import Buffer
from weft.tir.expr import PrimExpr, Ramp, int_value

ElementSpan = tuple[int, int]  # first element, lanes


def allocate_local(state: FunctionState, buffer: Buffer) -> None:
    """Give ``buffer`` its slots, or an array."""
    places = [constant_span(i) for i in state.kernel.local_accesses.get(buffer, {})]
    whole = [p for p in places if p is not None]
    if len(whole) < len(places) or _overlap(whole):
        state.pointers[buffer] = allocate_array(state, buffer)
        return
    state.slots[buffer] = {place: _slot(state, buffer, place[1]) for place in whole}


def _slot(state: FunctionState, buffer: Buffer, lanes: int) -> str:
    kind = memory_type(buffer.dtype.vector(lanes))
    return state.out.alloca(kind, 64 if lanes > 1 else buffer.dtype.itemsize)


def constant_span(index: PrimExpr) -> ElementSpan | None:
    """The elements that an access moves as a whole; ``None`` if they depend on anything."""
    base = index.base if isinstance(index, Ramp) else index
    start = int_value(base)
    if start is None or (isinstance(index, Ramp) and int_value(index.stride) != 1):
        return None
    return start, index.dtype.lanes


def _overlap(places: Iterable[ElementSpan]) -> bool:
    end = 0
    for start, lanes in sorted(set(places)):
        if start < end:
            return True
        end = start + lanes
    return False


def find_slot(state: FunctionState, buffer: Buffer, index: PrimExpr) -> str | None:
    """The slot that an access of a local buffer moves; ``None`` for memory."""
    slots = state.slots.get(buffer)
    place = None if slots is None else constant_span(index)
    return None if slots is None or place is None else slots[place]


def load_slot(state: FunctionState, slot: str, dtype: DType, mask: str | None) -> str:
    """The value of a slot; lanes outside ``mask`` are zero."""
    out, kind = state.out, value_type(dtype)
    value = from_memory(out, out.emit(f"load {memory_type(dtype)}, ptr {slot}"), dtype)
    if mask is None:
        return value
    flag = vector_of("i1", dtype.lanes)
    return out.emit(f"select {flag} {mask}, {kind} {value}, {kind} {zero_of(dtype)}")


def store_slot(state: FunctionState, slot: str, dtype: DType, value: str, mask: str | None) -> None:
    """Set a slot; lanes outside ``mask`` keep their value."""
    out, kind = state.out, value_type(dtype)
    if mask is not None:
        old = load_slot(state, slot, dtype, None)
        flag = vector_of("i1", dtype.lanes)
        value = out.emit(f"select {flag} {mask}, {kind} {value}, {kind} {old}")
    out.do(f"store {memory_type(dtype)} {to_memory(out, value, dtype)}, ptr {slot}")
