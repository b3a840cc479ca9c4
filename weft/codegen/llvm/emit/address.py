"""Addresses of elements.

An index is split into its constant part, which becomes a displacement, and the rest, whose
address is computed once per scope.
"""

from __future__ import annotations

from weft.codegen.llvm.emit.dispatch import emit
from weft.codegen.llvm.emit.state import FunctionState
from weft.codegen.llvm.text.types import memory_type, value_type
from weft.support.errors import CodegenError
from weft.tir.buffer import Buffer
from weft.tir.expr import Add, BufferLoad, IntImm, PrimExpr, Sub, int_value


def sole_index(buffer: Buffer, indices: tuple[PrimExpr, ...]) -> PrimExpr:
    """The one index of a flattened buffer."""
    if len(indices) != 1:
        raise CodegenError(
            f"buffer {buffer.name} is not flattened",
            expected="one index",
            got=len(indices),
            help="run the tir pipeline first",
        )
    return indices[0]


def allocate_array(state: FunctionState, buffer: Buffer) -> str:
    """Stack memory for a whole buffer."""
    size = buffer.static_bytes
    if size is None:
        raise CodegenError(f"buffer {buffer.name} on the stack has a symbolic size")
    count = max(1, size // buffer.dtype.itemsize)
    return state.out.alloca(f"[{count} x {memory_type(buffer.dtype)}]", 64)


def address(state: FunctionState, buffer: Buffer, index: PrimExpr, *, exact: bool = True) -> str:
    """A pointer to one element; ``exact`` where that element certainly exists."""
    rest, constant = _split_constant(index)
    scalar = memory_type(buffer.dtype)
    pointer = _base_address(state, buffer, rest, scalar)
    if constant == 0:
        return pointer
    flags = " inbounds" if exact else ""
    return state.out.emit(f"getelementptr{flags} {scalar}, ptr {pointer}, i64 {constant}")


def _base_address(state: FunctionState, buffer: Buffer, rest: PrimExpr, scalar: str) -> str:
    pointer = state.pointer(buffer)
    if int_value(rest) == 0:
        return pointer
    key = (buffer, rest)
    known = state.memo.known.get(key)
    if known is None:
        before = state.effects
        kind, offset = value_type(rest.dtype), emit(state, rest)
        known = state.out.emit(f"getelementptr {scalar}, ptr {pointer}, {kind} {offset}")
        if state.effects == before:
            state.memo.add(key, known)
    return known


def _split_constant(index: PrimExpr) -> tuple[PrimExpr, int]:
    constant = 0
    while isinstance(index, Add | Sub):
        right, left = int_value(index.b), int_value(index.a)
        if right is not None:
            constant += right if isinstance(index, Add) else -right
            index = index.a
        elif left is not None and isinstance(index, Add):
            constant += left
            index = index.b
        else:
            break
    value = int_value(index)
    return (IntImm(0), constant + value) if value is not None else (index, constant)


def lane_addresses(state: FunctionState, buffer: Buffer, index: PrimExpr) -> str:
    """A vector of pointers, one to the element of each lane."""
    offsets = emit(state, index)
    scalar, kind = memory_type(buffer.dtype), value_type(index.dtype)
    return state.out.emit(f"getelementptr {scalar}, ptr {state.pointer(buffer)}, {kind} {offsets}")


def element_address(state: FunctionState, place: PrimExpr) -> str:
    """The address of the element that a load names."""
    if not isinstance(place, BufferLoad):
        raise CodegenError("only an element of a buffer has an address", got=place)
    if place.buffer in state.slots:
        raise CodegenError(f"registers have no address: local buffer {place.buffer.name}")
    return address(state, place.buffer, sole_index(place.buffer, place.indices), exact=False)
