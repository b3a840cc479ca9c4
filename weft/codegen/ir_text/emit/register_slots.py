"""Register allocation of ``local`` buffers, by stack slots that LLVM promotes (mem2reg).

Each distinct span of elements that the program accesses gets a stack slot of that width, so that a
vector of a register tile becomes one SSA value. If spans overlap without being equal, or an index
is not constant, the buffer becomes an array on the stack.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.codegen.ir_text.emit.address import allocate_array
from weft.codegen.ir_text.emit.cast import from_memory, to_memory
from weft.codegen.ir_text.emit.state import FunctionState
from weft.codegen.ir_text.types import memory_type, value_type, vector_of, zero_of
from weft.ir import DType
from weft.tir import Buffer, PrimExpr, Ramp, int_value

ElementSpan = tuple[int, int]  # first element, lanes


def allocate_local(state: FunctionState, buffer: Buffer) -> None:
    """Allocate ``buffer`` as register slots, or as a stack array if an access prevents it."""
    spans = [constant_span(i) for i in state.kernel.local_accesses.get(buffer, {})]
    constant = [span for span in spans if span is not None]
    if len(constant) < len(spans) or _overlap(constant):
        state.pointers[buffer] = allocate_array(state, buffer)
        return
    state.slots[buffer] = {span: _slot(state, buffer, span[1]) for span in constant}


def _slot(state: FunctionState, buffer: Buffer, lanes: int) -> str:
    kind = memory_type(buffer.dtype.vector(lanes))
    return state.out.alloca(kind, 64 if lanes > 1 else buffer.dtype.itemsize)


def constant_span(index: PrimExpr) -> ElementSpan | None:
    """The elements of a scalar or contiguous access; ``None`` unless the index is constant."""
    base = index.base if isinstance(index, Ramp) else index
    start = int_value(base)
    if start is None or (isinstance(index, Ramp) and int_value(index.stride) != 1):
        return None
    return start, index.dtype.lanes


def _overlap(spans: Iterable[ElementSpan]) -> bool:
    """Whether two different spans share an element."""
    end = 0
    for start, lanes in sorted(set(spans)):
        if start < end:
            return True
        end = start + lanes
    return False


def find_slot(state: FunctionState, buffer: Buffer, index: PrimExpr) -> str | None:
    """The slot of an access; ``None`` if the buffer is in memory."""
    slots = state.slots.get(buffer)
    span = None if slots is None else constant_span(index)
    return None if slots is None or span is None else slots[span]


def load_slot(state: FunctionState, slot: str, dtype: DType, mask: str | None) -> str:
    """Load a slot; lanes where ``mask`` is false are zero."""
    out, kind = state.out, value_type(dtype)
    value = from_memory(out, out.emit(f"load {memory_type(dtype)}, ptr {slot}"), dtype)
    if mask is None:
        return value
    flag = vector_of("i1", dtype.lanes)
    return out.emit(f"select {flag} {mask}, {kind} {value}, {kind} {zero_of(dtype)}")


def store_slot(state: FunctionState, slot: str, dtype: DType, value: str, mask: str | None) -> None:
    """Store to a slot; lanes where ``mask`` is false keep their value."""
    out, kind = state.out, value_type(dtype)
    if mask is not None:
        old = load_slot(state, slot, dtype, None)
        flag = vector_of("i1", dtype.lanes)
        value = out.emit(f"select {flag} {mask}, {kind} {value}, {kind} {old}")
    out.do(f"store {memory_type(dtype)} {to_memory(out, value, dtype)}, ptr {slot}")
