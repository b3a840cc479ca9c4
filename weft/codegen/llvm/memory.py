"""Loads, stores and addresses.

Vectors move with element alignment (unaligned moves of aligned data cost nothing on the CPUs in
use). An index is split into its constant part, which becomes a displacement, and the rest, whose
address is computed once per scope.
"""

from __future__ import annotations

from weft.codegen.llvm.cast import from_memory, to_memory
from weft.codegen.llvm.emit import emit
from weft.codegen.llvm.state import FunctionState, LocalSlots
from weft.codegen.llvm.types import (
    mangle,
    memory_type,
    splat,
    value_type,
    vector_of,
    zero_of,
)
from weft.support.errors import CodegenError
from weft.tir.buffer import Buffer
from weft.tir.expr import (
    Add,
    Broadcast,
    BufferLoad,

    IntImm,
    PrimExpr,
    Ramp,
    Sub,

    int_value,
)
from weft.tir.stmt import BufferStore


def sole_index(buffer: Buffer, indices: tuple[PrimExpr, ...]) -> PrimExpr:
    """The one index of a flattened buffer."""
    if len(indices) != 1:
        raise CodegenError(
            f"buffer {buffer.name} is not flattened", expected="one index", got=len(indices)
        )
    return indices[0]


def make_slots(state: FunctionState, buffer: Buffer) -> LocalSlots:
    """Stack slots for a ``local`` buffer: one per vector where all accesses are whole vectors."""
    lanes = _common_lanes(state, buffer)
    if lanes:
        return LocalSlots(lanes, {})
    return LocalSlots(0, {0: allocate_array(state, buffer)})


def allocate_array(state: FunctionState, buffer: Buffer) -> str:
    """Stack memory for a whole buffer."""
    size = buffer.static_bytes
    if size is None:
        raise CodegenError(f"buffer {buffer.name} on the stack has a symbolic size")
    count = max(1, size // buffer.dtype.itemsize)
    return state.out.alloca(f"[{count} x {memory_type(buffer.dtype)}]", 64)


def _common_lanes(state: FunctionState, buffer: Buffer) -> int:
    widths = set[int]()
    for index in state.kernel.local_accesses.get(buffer, {}):
        start = _constant_start(index)
        lanes = index.dtype.lanes
        if start is None or start % lanes:
            return 0
        widths.add(lanes)
    return widths.pop() if len(widths) == 1 else 0


def _constant_start(index: PrimExpr) -> int | None:
    if isinstance(index, Ramp):
        return int_value(index.base) if int_value(index.stride) == 1 else None
    return int_value(index)


def _slot(state: FunctionState, buffer: Buffer, index: PrimExpr) -> str | None:
    """The slot that an access of a local buffer moves as a whole."""
    local = state.locals.get(buffer)
    start = None if local is None or not local.lanes else _constant_start(index)
    if local is None or start is None:
        return None
    if start not in local.slots:
        dtype = buffer.dtype.vector(local.lanes)
        local.slots[start] = state.out.alloca(memory_type(dtype), 64 if local.lanes > 1 else 8)
    return local.slots[start]


def address(state: FunctionState, buffer: Buffer, index: PrimExpr, *, exact: bool = True) -> str:
    """A pointer to one element; ``exact`` where that element certainly exists."""
    rest, constant = _split_constant(index)
    scalar = memory_type(buffer.dtype)
    flags = " inbounds" if exact else ""
    pointer = _base_address(state, buffer, rest, scalar)
    if constant == 0:
        return pointer
    return state.out.emit(f"getelementptr{flags} {scalar}, ptr {pointer}, i64 {constant}")


def _base_address(state: FunctionState, buffer: Buffer, rest: PrimExpr, scalar: str) -> str:
    local = state.locals.get(buffer)
    pointer = local.slots[0] if local is not None else state.pointer(buffer)
    if int_value(rest) == 0:
        return pointer
    key = (buffer, rest)
    known = state.memo.known.get(key)
    if known is None:
        before = state.effects
        offset = emit(state, rest)
        known = state.out.emit(f"getelementptr {scalar}, ptr {pointer}, i64 {offset}")
        if state.effects == before:
            state.memo.add(key, known)
    return known


def _split_constant(index: PrimExpr) -> tuple[PrimExpr, int]:
    constant = 0
    while isinstance(index, Add | Sub):
        value = int_value(index.b)
        if value is not None:
            constant += value if isinstance(index, Add) else -value
            index = index.a
        elif isinstance(index, Add) and int_value(index.a) is not None:
            constant += int_value(index.a) or 0
            index = index.b
        else:
            break
    value = int_value(index)
    return (IntImm(0), constant + value) if value is not None else (index, constant)


def emit_load(state: FunctionState, load: BufferLoad) -> str:
    """The value of a ``BufferLoad``."""
    buffer, index = load.buffer, sole_index(load.buffer, load.indices)
    if buffer in state.kernel.written or buffer in state.locals or state.mask is not None:
        state.effects += 1  # memory may change, or the mask: do not reuse the value
    mask = _mask(state, load.predicate, index.dtype.lanes)
    slot = _slot(state, buffer, index)
    if slot is not None:
        return _load_slot(state, slot, load, mask)
    if isinstance(index, Broadcast):
        return _load_broadcast(state, load, index, mask)
    if index.dtype.lanes == 1:
        return _load_scalar(state, load, index, mask)
    stride = int_value(index.stride) if isinstance(index, Ramp) else None
    if isinstance(index, Ramp) and stride == 1:
        return _load_contiguous(state, buffer, index, mask)
    if isinstance(index, Ramp) and stride == 2 and mask is None and index.lanes > 1:
        return _load_every_second(state, buffer, index)
    return _gather(state, buffer, index, mask)


def _load_slot(state: FunctionState, slot: str, load: BufferLoad, mask: str | None) -> str:
    out, kind = state.out, memory_type(load.dtype)
    value = from_memory(out, out.emit(f"load {kind}, ptr {slot}, align 1"), load.dtype)
    if mask is None:
        return value
    flag, typed = vector_of("i1", load.dtype.lanes), value_type(load.dtype)
    return out.emit(f"select {flag} {mask}, {typed} {value}, {typed} {zero_of(load.dtype)}")


def _load_broadcast(
    state: FunctionState, load: BufferLoad, index: Broadcast, mask: str | None
) -> str:
    if mask is not None:
        return _gather(state, load.buffer, index, mask)
    scalar = emit_load(state, BufferLoad(load.buffer, (index.value,), None))
    return broadcast(state, scalar, value_type(load.buffer.dtype), index.lanes)


def _load_scalar(
    state: FunctionState, load: BufferLoad, index: PrimExpr, mask: str | None
) -> str:
    buffer = load.buffer
    if mask is None:
        return _plain_load(state, buffer, index, 1)
    out = state.out
    label = out.fresh("guarded")
    out.do(f"br i1 {mask}, label %{label}, label %{label}.skip")
    before = out.block
    out.start_block(label)
    with state.memo.scope():
        value = _plain_load(state, buffer, index, 1)
    loaded_in = out.block
    out.branch(f"{label}.skip")
    out.start_block(f"{label}.skip")
    zero = "null" if buffer.dtype.code == "handle" else zero_of(buffer.dtype)
    kind = value_type(buffer.dtype)
    return out.emit(f"phi {kind} [ {value}, %{loaded_in} ], [ {zero}, %{before} ]")


def _plain_load(state: FunctionState, buffer: Buffer, index: PrimExpr, lanes: int) -> str:
    out = state.out
    pointer = address(state, buffer, index)
    dtype = buffer.dtype.vector(lanes)
    suffix = state.kernel.alias.suffix(buffer)
    loaded = out.emit(
        f"load {memory_type(dtype)}, ptr {pointer}, align {buffer.dtype.itemsize}{suffix}"
    )
    return from_memory(out, loaded, dtype)


def _load_contiguous(
    state: FunctionState, buffer: Buffer, index: Ramp, mask: str | None
) -> str:
    if mask is None:
        return _plain_load(state, buffer, index.base, index.lanes)
    dtype = buffer.dtype.vector(index.lanes)
    kind, flag = memory_type(dtype), vector_of("i1", index.lanes)
    pointer = address(state, buffer, index.base, exact=False)
    name = state.kernel.module.declare(
        f"llvm.masked.load.{mangle(kind)}.p0", f"{kind} @(ptr, i32, {flag}, {kind})"
    )
    loaded = state.out.emit(
        f"call {kind} {name}(ptr {pointer}, i32 {buffer.dtype.itemsize}, {flag} {mask}, "
        f"{kind} zeroinitializer){state.kernel.alias.suffix(buffer)}"
    )
    return from_memory(state.out, loaded, dtype)


def _load_every_second(state: FunctionState, buffer: Buffer, index: Ramp) -> str:
    """Stride 2 as two neighbouring loads and a shuffle, reading nothing past the last element."""
    lanes = index.lanes
    dtype = buffer.dtype.vector(lanes)
    low = _plain_load(state, buffer, index.base, lanes)
    high = _plain_load(state, buffer, index.base + (lanes - 1), lanes)
    # Element k of ``high`` is element k + lanes - 1 of the whole.
    picks = [
        2 * i if 2 * i < lanes else lanes + 2 * i - (lanes - 1) for i in range(lanes)
    ]
    kind = value_type(dtype)
    chosen = ", ".join(f"i32 {p}" for p in picks)
    return state.out.emit(
        f"shufflevector {kind} {low}, {kind} {high}, <{lanes} x i32> <{chosen}>"
    )


def _addresses(state: FunctionState, buffer: Buffer, index: PrimExpr) -> str:
    offsets = emit(state, index)
    scalar, kind = memory_type(buffer.dtype), value_type(index.dtype)
    local = state.locals.get(buffer)
    base = local.slots[0] if local is not None else state.pointer(buffer)
    return state.out.emit(f"getelementptr {scalar}, ptr {base}, {kind} {offsets}")


def _all_true(lanes: int) -> str:
    return splat("true", "i1", lanes)


def _gather(state: FunctionState, buffer: Buffer, index: PrimExpr, mask: str | None) -> str:
    lanes = index.dtype.lanes
    dtype = buffer.dtype.vector(lanes)
    kind, flag, pointers = memory_type(dtype), vector_of("i1", lanes), vector_of("ptr", lanes)
    where = _addresses(state, buffer, index)
    name = state.kernel.module.declare(
        f"llvm.masked.gather.{mangle(kind)}.{mangle(pointers)}",
        f"{kind} @({pointers}, i32, {flag}, {kind})",
    )
    loaded = state.out.emit(
        f"call {kind} {name}({pointers} {where}, i32 {buffer.dtype.itemsize}, "
        f"{flag} {mask or _all_true(lanes)}, {kind} zeroinitializer)"
        f"{state.kernel.alias.suffix(buffer)}"
    )
    return from_memory(state.out, loaded, dtype)


def emit_store(state: FunctionState, store: BufferStore) -> None:
    """``buffer[index] = value`` under the store's predicate."""
    buffer, index = store.buffer, sole_index(store.buffer, store.indices)
    lanes = index.dtype.lanes
    value = emit(state, store.value)
    if store.value.dtype.lanes == 1 and lanes > 1:
        value = broadcast(state, value, value_type(buffer.dtype), lanes)
    mask = _mask(state, store.predicate, lanes)
    slot = _slot(state, buffer, index)
    dtype = buffer.dtype.vector(lanes)
    if slot is not None:
        _store_slot(state, slot, BufferLoad(buffer, store.indices, None), value, mask)
    elif lanes == 1:
        _store_scalar(state, buffer, index, to_memory(state.out, value, dtype), mask)
    else:
        _store_vector(state, buffer, index, to_memory(state.out, value, dtype), mask)


def _store_slot(
    state: FunctionState, slot: str, place: BufferLoad, value: str, mask: str | None
) -> None:
    out, dtype = state.out, place.dtype
    if mask is not None:
        old = _load_slot(state, slot, place, None)
        kind = value_type(dtype)
        flag = vector_of("i1", dtype.lanes)
        value = out.emit(f"select {flag} {mask}, {kind} {value}, {kind} {old}")
    stored = to_memory(out, value, dtype)
    out.do(f"store {memory_type(dtype)} {stored}, ptr {slot}, align 1")


def _store_scalar(
    state: FunctionState, buffer: Buffer, index: PrimExpr, value: str, mask: str | None
) -> None:
    out = state.out
    if mask is None:
        _plain_store(state, buffer, index, value, 1)
        return
    label = out.fresh("guarded")
    out.do(f"br i1 {mask}, label %{label}, label %{label}.skip")
    out.start_block(label)
    with state.memo.scope():
        _plain_store(state, buffer, index, value, 1)
    out.branch(f"{label}.skip")
    out.start_block(f"{label}.skip")


def _plain_store(
    state: FunctionState, buffer: Buffer, index: PrimExpr, value: str, lanes: int
) -> None:
    pointer = address(state, buffer, index)
    kind = memory_type(buffer.dtype.vector(lanes))
    state.out.do(
        f"store {kind} {value}, ptr {pointer}, align {buffer.dtype.itemsize}"
        f"{state.kernel.alias.suffix(buffer)}"
    )


def _store_vector(
    state: FunctionState, buffer: Buffer, index: PrimExpr, value: str, mask: str | None
) -> None:
    lanes = index.dtype.lanes
    contiguous = isinstance(index, Ramp) and int_value(index.stride) == 1
    if isinstance(index, Ramp) and contiguous and mask is None:
        _plain_store(state, buffer, index.base, value, lanes)
        return
    kind = memory_type(buffer.dtype.vector(lanes))
    flag = vector_of("i1", lanes)
    suffix = state.kernel.alias.suffix(buffer)
    if isinstance(index, Ramp) and contiguous:
        where, places, name = address(state, buffer, index.base, exact=False), "ptr", "store"
    else:
        where, places, name = (
            _addresses(state, buffer, index), vector_of("ptr", lanes), "scatter"
        )
    callee = state.kernel.module.declare(
        f"llvm.masked.{name}.{mangle(kind)}.{mangle(places)}",
        f"void @({kind}, {places}, i32, {flag})",
    )
    state.out.do(
        f"call void {callee}({kind} {value}, {places} {where}, i32 {buffer.dtype.itemsize}, "
        f"{flag} {mask or _all_true(lanes)}){suffix}"
    )


def _mask(state: FunctionState, predicate: PrimExpr | None, lanes: int) -> str | None:
    """The lanes that an access may touch, its own predicate and the enclosing choice combined."""
    flag = vector_of("i1", lanes)
    own = None
    if predicate is not None:
        own = emit(state, predicate)
        if predicate.dtype.lanes == 1 and lanes > 1:
            own = broadcast(state, own, "i1", lanes)
    if state.mask is None:
        return own
    if state.mask_lanes != lanes:
        raise CodegenError("a scalar is read under a condition of several lanes")
    return state.mask if own is None else state.out.emit(f"and {flag} {own}, {state.mask}")


def broadcast(state: FunctionState, scalar: str, kind: str, lanes: int) -> str:
    """A scalar in every lane; a constant splat where it is a literal."""
    if not scalar.startswith(("%", "@")):
        return splat(scalar, kind, lanes)
    vector = vector_of(kind, lanes)
    first = state.out.emit(f"insertelement {vector} poison, {kind} {scalar}, i64 0")
    return state.out.emit(
        f"shufflevector {vector} {first}, {vector} poison, <{lanes} x i32> zeroinitializer"
    )


def emit_address(state: FunctionState, place: PrimExpr) -> str:
    """The address of the element that a load names (of a buffer's start for a variable)."""
    if not isinstance(place, BufferLoad):
        raise CodegenError("only an element of a buffer has an address", got=place)
    if place.buffer in state.locals and state.locals[place.buffer].lanes:
        raise CodegenError(f"registers have no address: local buffer {place.buffer.name}")
    return address(state, place.buffer, sole_index(place.buffer, place.indices), exact=False)
