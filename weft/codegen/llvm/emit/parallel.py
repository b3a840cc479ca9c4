"""Parallel loops: the body is outlined into a function that runs a range of iterations.

``weft_parallel_launch(body, data, extent)`` of the runtime distributes the iterations over threads.
``data`` points to a record of the captured values: the start of the loop, buffers and variables.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from weft.codegen.llvm.emit.dispatch import emit
from weft.codegen.llvm.emit.loops import emit_loop
from weft.codegen.llvm.emit.state import FunctionState
from weft.codegen.llvm.text.types import value_type
from weft.codegen.llvm.text.writer import FunctionWriter
from weft.codegen.uses import collect_uses
from weft.support.errors import CodegenError
from weft.tir.buffer import Buffer
from weft.tir.expr import Var
from weft.tir.stmt import For, Stmt

LAUNCH = "weft_parallel_launch"


@dataclass(frozen=True, slots=True)
class _Captures:
    """The captured buffers and variables in the order of the record's fields.

    Field 0 is the first iteration of the loop.
    """

    buffers: tuple[Buffer, ...]
    vars: tuple[Var, ...]

    def record_type(self) -> str:
        kinds = ["ptr"] * len(self.buffers) + [value_type(v.dtype) for v in self.vars]
        return "{ " + ", ".join(["i64", *kinds]) + " }"

    def field_type(self, index: int) -> str:
        if index < len(self.buffers):
            return "ptr"
        return value_type(self.vars[index - len(self.buffers)].dtype)


def emit_parallel(
    state: FunctionState, loop: For, emit_stmt: Callable[[FunctionState, Stmt], None]
) -> None:
    """Outline the body of ``loop`` and launch its iterations on the thread pool."""
    uses = collect_uses(loop.body)
    captures = _Captures(
        uses.free_buffers(), tuple(v for v in uses.free_vars() if v is not loop.loop_var)
    )
    module = state.kernel.module
    name = f"{state.kernel.name}.parallel{len(module.functions)}"
    # Nested parallel loops run serially, so no other body is outlined before this one is complete.
    module.functions.append(_body_function(state, loop, captures, name, emit_stmt))
    record = _fill_record(state, loop, captures)
    launch = module.declare(LAUNCH, "void @(ptr, ptr, i64)")
    extent = emit(state, loop.extent)
    state.out.do(f"call void {launch}(ptr @{name}, ptr {record}, i64 {extent})")
    state.effects += 1


def _fill_record(state: FunctionState, loop: For, captures: _Captures) -> str:
    kind = captures.record_type()
    # On the stack: the launch returns only when the last iteration has ended.
    record = state.out.alloca(kind, 16)
    values = [_shared_pointer(state, b) for b in captures.buffers]
    values += [emit(state, v) for v in captures.vars]
    _store_field(state, record, kind, 0, "i64", emit(state, loop.min))
    for index, value in enumerate(values):
        _store_field(state, record, kind, index + 1, captures.field_type(index), value)
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
    begin = body.out.emit(f"add nsw i64 %begin, {offset}")
    end = body.out.emit(f"add nsw i64 %end, {offset}")

    def iteration() -> None:
        emit_stmt(body, loop.body)

    # The launcher never calls the body with an empty range.
    emit_loop(body, loop.loop_var, begin, end, iteration, runs_at_least_once=True)
    body.out.do("ret void")
    return body.out.text(
        f"define internal void @{name}(i64 %begin, i64 %end, ptr noalias readonly %data) "
        f"{state.kernel.attributes}"
    )
