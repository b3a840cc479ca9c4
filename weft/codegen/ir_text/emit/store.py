"""Stores of scalars and vectors."""

from __future__ import annotations

from weft.codegen.ir_text.emit.address import address, lane_addresses, sole_index
from weft.codegen.ir_text.emit.cast import to_memory
from weft.codegen.ir_text.emit.lane_access import store_lanes
from weft.codegen.ir_text.emit.load import emit_mask, lane_mask
from weft.codegen.ir_text.emit.register_slots import find_slot, store_slot
from weft.codegen.ir_text.emit.state import FunctionState, emit
from weft.codegen.ir_text.types import mangle, memory_type, value_type, vector_of
from weft.tir import Buffer, BufferStore, PrimExpr, Ramp, int_value


def emit_store(state: FunctionState, store: BufferStore) -> None:
    """``buffer[index] = value`` for the lanes where the predicate holds."""
    buffer, index = store.buffer, sole_index(store.buffer, store.indices)
    lanes = index.dtype.lanes
    value = emit(state, store.value)
    if store.value.dtype.lanes != lanes:
        value = state.out.broadcast(value, value_type(buffer.dtype), lanes)
    mask = emit_mask(state, store.predicate, lanes)
    slot = find_slot(state, buffer, index)
    dtype = buffer.dtype.vector(lanes)
    if slot is not None:
        store_slot(state, slot, dtype, value, mask)
        return
    stored = to_memory(state.out, value, dtype)
    contiguous = isinstance(index, Ramp) and int_value(index.stride) == 1
    if lanes == 1:
        _store_scalar(state, buffer, index, stored, mask)
    elif not state.kernel.has_masks and not (contiguous and mask is None):
        store_lanes(state, buffer, index, stored, mask)
    elif not (isinstance(index, Ramp) and contiguous):
        pointers = lane_addresses(state, buffer, index)
        kind = vector_of(state.pointer_type(buffer), lanes)
        _masked(state, buffer, lanes, "scatter", kind, pointers, stored, lane_mask(mask, lanes))
    elif mask is None:
        _store_elements(state, buffer, index.base, stored, lanes)
    else:
        pointer = address(state, buffer, index.base, exact=False)
        _masked(state, buffer, lanes, "store", state.pointer_type(buffer), pointer, stored, mask)


def _store_scalar(
    state: FunctionState, buffer: Buffer, index: PrimExpr, value: str, mask: str | None
) -> None:
    if mask is None:
        _store_elements(state, buffer, index, value, 1)
        return
    out = state.out
    label = out.fresh("guarded")
    out.do(f"br i1 {mask}, label %{label}, label %{label}.skip")
    out.start_block(label)
    with state.memo.scope():
        _store_elements(state, buffer, index, value, 1)
    out.branch(f"{label}.skip")
    out.start_block(f"{label}.skip")


def _store_elements(
    state: FunctionState, buffer: Buffer, index: PrimExpr, value: str, lanes: int
) -> None:
    pointer = address(state, buffer, index)
    kind = memory_type(buffer.dtype.vector(lanes))
    state.out.do(
        f"store {kind} {value}, {state.pointer_type(buffer)} {pointer}, "
        f"align {state.kernel.alignment(buffer, index, lanes)}{state.kernel.alias.suffix(buffer)}"
    )


def _masked(
    state: FunctionState, buffer: Buffer, lanes: int, name: str, pointer_type: str, pointers: str,
    value: str, mask: str,
) -> None:  # fmt: skip
    """The intrinsic ``llvm.masked.NAME`` at ``pointers``, one for all lanes or one per lane."""
    kind, flag = memory_type(buffer.dtype.vector(lanes)), vector_of("i1", lanes)
    callee = state.out.module.declare(
        f"llvm.masked.{name}.{mangle(kind)}.{mangle(pointer_type)}",
        f"void @({kind}, {pointer_type}, {flag})",
    )
    state.out.do(
        f"call void {callee}({kind} {value}, {pointer_type} align {buffer.dtype.itemsize} "
        f"{pointers}, {flag} {mask}){state.kernel.alias.suffix(buffer)}"
    )
