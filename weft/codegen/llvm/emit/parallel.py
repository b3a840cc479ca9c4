"""Parallel loops: the body is outlined into a function that runs a range of iterations.

``weft_parallel_launch(body, data, extent)`` of the runtime distributes the iterations over threads.
``data`` points to a record of the captured values: the start of the loop, buffers and variables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from weft.codegen.ir_text.emit.address import workspace_pointer
from weft.codegen.ir_text.emit.counters import emit_loop
from weft.codegen.ir_text.emit.state import FunctionState, emit
from weft.codegen.ir_text.types import value_type
from weft.codegen.ir_text.writer import FunctionWriter
from weft.codegen.uses import collect_uses
from weft.support.dataclass import dataclass
from weft.support.errors import CodegenError
from weft.tir import Buffer, For, PrimExpr, Stmt, Var, int_value, post_order
from weft.tir.task_scratch import MAX_STACK_BYTES, TaskScratch

LAUNCH = "weft_parallel_launch"


@dataclass(frozen=True, slots=True)
class _Captures:
    """The captured buffers and variables in the order of the record's fields.

    Field 0 is the first iteration of the loop. The workspace is the last field, if ``scratch``, the
    buffers of symbolic size in the body, need it.
    """

    buffers: tuple[Buffer, ...]
    vars: tuple[Var, ...]
    scratch: tuple[Buffer, ...]
    has_workspace: bool

    def record_type(self) -> str:
        kinds = ["ptr"] * len(self.buffers) + [value_type(v.dtype) for v in self.vars]
        return "{ " + ", ".join(["i64", *kinds, *["ptr"] * self.has_workspace]) + " }"

    @property
    def workspace_index(self) -> int:
        return 1 + len(self.buffers) + len(self.vars)

    def field_type(self, index: int) -> str:
        if index < len(self.buffers):
            return "ptr"
        return value_type(self.vars[index - len(self.buffers)].dtype)


def emit_parallel(
    state: FunctionState, loop: For, emit_stmt: Callable[[FunctionState, Stmt], None],
    condition: PrimExpr | None = None,
) -> None:
    """Outline the body of ``loop`` and launch its iterations on the thread pool.

    If ``condition`` is false at run time, the calling thread runs all of them.
    """
    captures = _captures(state, loop)
    module = state.kernel.module
    name = f"{state.kernel.name}.parallel{len(module.functions)}"
    # Nested parallel loops run serially, so no other body is outlined before this one is complete.
    module.functions.append(_body_function(state, loop, captures, name, emit_stmt))
    record = _fill_record(state, loop, captures)
    launch = module.declare(LAUNCH, "void @(ptr, ptr, i64)")
    extent = emit(state, loop.extent)
    shared = f"call void {launch}(ptr @{name}, ptr {record}, i64 {extent})"
    if condition is None:
        state.out.do(shared)
    else:
        alone = f"call void @{name}(i64 0, i64 {extent}, ptr {record}) noinline"
        _emit_choice(state, emit(state, condition), shared, extent, alone)
    state.effects += 1


def _emit_choice(state: FunctionState, flag: str, shared: str, extent: str, alone: str) -> None:
    """``shared`` if ``flag``, else ``alone`` unless ``extent`` is 0."""
    out = state.out
    fork, small, serial, join = map(out.fresh, ("fork", "small", "serial", "join"))
    out.do(f"br i1 {flag}, label %{fork}, label %{small}")
    out.start_block(fork)
    out.do(shared)
    out.branch(join)
    out.start_block(small)
    some = out.emit(f"icmp sgt i64 {extent}, 0")
    out.do(f"br i1 {some}, label %{serial}, label %{join}")
    out.start_block(serial)
    out.do(alone)
    out.branch(join)
    out.start_block(join)


def _captures(state: FunctionState, loop: For) -> _Captures:
    uses = collect_uses(loop.body)
    scratch = {b: state.kernel.task_scratch[b] for b in uses.bound
               if isinstance(b, Buffer) and b in state.kernel.task_scratch}
    sizes = [e for s in scratch.values() for e in (s.size, s.offset) if e is not None]
    free = dict.fromkeys((*uses.free_vars(), *_vars_in(sizes)))
    return _Captures(
        uses.free_buffers(), tuple(v for v in free if v is not loop.loop_var), tuple(scratch),
        any(s.offset is not None for s in scratch.values()),
    )


def _vars_in(exprs: Sequence[PrimExpr]) -> Iterator[Var]:
    """The variables of the expressions, in the order of their occurrence."""
    return (e for root in exprs for e in post_order(root) if isinstance(e, Var))


def _fill_record(state: FunctionState, loop: For, captures: _Captures) -> str:
    kind = captures.record_type()
    # On the stack: the launch returns only when the last iteration has ended.
    record = state.out.alloca(kind, 16)
    values = [_shared_pointer(state, b) for b in captures.buffers]
    values += [emit(state, v) for v in captures.vars]
    _store_field(state, record, kind, 0, "i64", emit(state, loop.min))
    for index, value in enumerate(values):
        _store_field(state, record, kind, index + 1, captures.field_type(index), value)
    if captures.has_workspace:
        pointer = state.workspace
        assert pointer is not None
        _store_field(state, record, kind, captures.workspace_index, "ptr", pointer)
    return record


def _shared_pointer(state: FunctionState, buffer: Buffer) -> str:
    if buffer in state.slots:
        raise CodegenError(
            f"parallel loop uses local buffer {buffer.name}, which is held in registers",
            where=state.kernel.name,
            help="compute its stage inside the parallel loop, or leave it in memory",
        )
    return state.pointer(buffer)


def _store_field(
    state: FunctionState, record: str, kind: str, index: int, field: str, value: str
) -> None:
    pointer = state.out.emit(f"getelementptr inbounds {kind}, ptr {record}, i32 0, i32 {index}")
    state.out.do(f"store {field} {value}, ptr {pointer}")


def _load_field(body: FunctionState, kind: str, index: int, field: str) -> str:
    pointer = body.out.emit(f"getelementptr inbounds {kind}, ptr %data, i32 0, i32 {index}")
    # The record is complete before the launch and is not written again.
    return body.out.emit(f"load {field}, ptr {pointer}, !invariant.load !0")


def _body_function(
    state: FunctionState,
    loop: For,
    captures: _Captures,
    name: str,
    emit_stmt: Callable[[FunctionState, Stmt], None],
) -> str:
    out = FunctionWriter(state.kernel.module)
    body = FunctionState(state.kernel, out, in_parallel=True, nonnegative=set(state.nonnegative))
    kind = captures.record_type()
    offset = _load_field(body, kind, 0, "i64")
    for index, buffer in enumerate(captures.buffers):
        body.pointers[buffer] = _load_field(body, kind, index + 1, "ptr")
    for index, var in enumerate(captures.vars, len(captures.buffers)):
        body.memo.add(var, _load_field(body, kind, index + 1, captures.field_type(index)))
    if captures.has_workspace:
        body.workspace = _load_field(body, kind, captures.workspace_index, "ptr")
    for buffer in captures.scratch:
        body.pointers[buffer] = _task_memory(body, buffer, state.kernel.task_scratch[buffer])
    begin = body.out.emit(f"add nsw i64 %begin, {offset}")
    end = body.out.emit(f"add nsw i64 %end, {offset}")

    # The launcher never calls the body with an empty range.
    emit_loop(body, loop.loop_var, begin, end, loop.body, emit_stmt, runs_at_least_once=True)
    body.out.do("ret void")
    return body.out.text(
        f"define internal void @{name}(i64 %begin, i64 %end, ptr noalias readonly %data) "
        f"{state.kernel.attributes}"
    )


def _task_memory(body: FunctionState, buffer: Buffer, scratch: TaskScratch) -> str:
    """Memory for the iterations from ``%begin`` on: the stack, or a slice of the workspace."""
    out, size = body.out, emit(body, scratch.size)
    fixed = int_value(scratch.size)
    if fixed is not None and fixed <= MAX_STACK_BYTES:
        return out.alloca(f"[{fixed} x i8]", 64)
    assert scratch.offset is not None
    task = out.emit(f"mul nsw i64 %begin, {size}")
    first = workspace_pointer(body, buffer, scratch.offset)
    far = out.emit(f"getelementptr i8, ptr {first}, i64 {task}")
    if fixed is not None:
        return far
    is_small = out.emit(f"icmp ule i64 {size}, {MAX_STACK_BYTES}")
    taken = out.emit(f"select i1 {is_small}, i64 {size}, i64 0")
    # In the entry block, but with a size of run time: the code above computes it.
    near = out.emit(f"alloca i8, i64 {taken}, align 64")
    return out.emit(f"select i1 {is_small}, ptr {near}, ptr {far}")
