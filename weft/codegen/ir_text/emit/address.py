"""Addresses of buffer elements.

An index is split into a constant, which becomes the displacement of the addressing mode, and a
variable term. The address of the variable term is computed once per scope, so that the accesses of
an unrolled loop share one base register.
"""

from __future__ import annotations

from weft.codegen.ir_text.emit.state import FunctionState, emit
from weft.codegen.ir_text.types import memory_type, value_type
from weft.support.errors import CodegenError, InternalError
from weft.tir import Add, Broadcast, Buffer, BufferLoad, IntImm, PrimExpr, Sub, int_value


def sole_index(buffer: Buffer, indices: tuple[PrimExpr, ...]) -> PrimExpr:
    """The index of a one-dimensional buffer; ``CodegenError`` for a buffer with several."""
    if len(indices) != 1:
        raise CodegenError(
            f"buffer {buffer.name} is not flattened",
            expected="one index",
            got=len(indices),
            help="run the tir pipeline first",
        )
    return indices[0]


def allocate_array(state: FunctionState, buffer: Buffer) -> str:
    """Stack memory for a buffer of constant size; ``CodegenError`` for a symbolic size."""
    size = buffer.static_bytes
    if size is None:
        raise CodegenError(f"stack buffer {buffer.name} has a symbolic size")
    count = max(1, size // buffer.dtype.itemsize)
    state.on_stack.add(buffer)
    return state.out.alloca(f"[{count} x {memory_type(buffer.dtype)}]", 64)


def workspace_pointer(state: FunctionState, buffer: Buffer, offset: int | PrimExpr) -> str:
    """The pointer to byte ``offset`` of the workspace, where ``buffer`` starts."""
    if state.workspace is None:
        raise InternalError(
            f"buffer {buffer.name} is in the workspace, but the function does not take one",
            where=state.kernel.name,
        )
    start = emit(state, offset) if isinstance(offset, PrimExpr) else offset
    kind = state.pointer_type(buffer)
    return state.out.emit(f"getelementptr inbounds i8, {kind} {state.workspace}, i64 {start}")


def address(state: FunctionState, buffer: Buffer, index: PrimExpr, *, exact: bool = True) -> str:
    """A pointer to the element at ``index``.

    Pass ``exact=False`` where the element may lie outside of the buffer, as in masked accesses:
    LLVM's ``inbounds`` would be undefined behaviour there.
    """
    rest, constant = _split_constant(index)
    scalar = memory_type(buffer.dtype)
    pointer = _base_address(state, buffer, rest, scalar)
    if constant == 0:
        return pointer
    flags, kind = " inbounds" if exact else "", state.pointer_type(buffer)
    return state.out.emit(f"getelementptr{flags} {scalar}, {kind} {pointer}, i64 {constant}")


def _base_address(state: FunctionState, buffer: Buffer, rest: PrimExpr, scalar: str) -> str:
    pointer = state.pointer(buffer)
    if int_value(rest) == 0:
        return pointer
    key = (buffer, rest)
    known = state.memo.known.get(key)
    if known is None:
        before = state.effects
        kind, offset = value_type(rest.dtype), emit(state, rest)
        # Not ``inbounds``: without its constant, an index such as i - 1 may point past the end.
        known = state.out.emit(
            f"getelementptr {scalar}, {state.pointer_type(buffer)} {pointer}, {kind} {offset}")
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
    """A vector of pointers: lane ``i`` points to the element at lane ``i`` of ``index``.

    What all lanes share is added to the pointer, so that a gather takes offsets of int32 as they
    are.
    """
    shared, own = _split_shared(index)
    scalar, kind = memory_type(buffer.dtype), value_type(index.dtype)
    pointer = state.pointer(buffer) if shared is None else address(
        state, buffer, shared, exact=False)
    offsets = emit(state, own)
    return state.out.emit(
        f"getelementptr {scalar}, {state.pointer_type(buffer)} {pointer}, {kind} {offsets}")


def _split_shared(index: PrimExpr) -> tuple[PrimExpr | None, PrimExpr]:
    """The sum of the terms that are equal in all lanes, if any, and the other terms."""
    shared: PrimExpr | None = None
    while isinstance(index, Add):
        term, rest = (index.a, index.b) if isinstance(index.a, Broadcast) else (index.b, index.a)
        if not isinstance(term, Broadcast) or isinstance(rest, Broadcast):
            break
        shared, index = term.value if shared is None else shared + term.value, rest
    return shared, index


def element_address(state: FunctionState, element: PrimExpr) -> str:
    """The address of the element that the operand of ``address_of`` or ``prefetch`` loads."""
    if not isinstance(element, BufferLoad):
        raise CodegenError("address of an expression that is not a buffer element", got=element)
    buffer = element.buffer
    if buffer in state.slots:
        raise CodegenError(f"address of local buffer {buffer.name}, which is held in registers")
    # A prefetch may run past the end of the buffer; the hint does not fault.
    return address(state, buffer, sole_index(buffer, element.indices), exact=False)
