"""One walk over a loop program that collects what code generation must know beforehand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from weft.support.errors import InternalError
from weft.tir.buffer import Buffer
from weft.tir.expr import (
    Binary,
    Broadcast,
    BufferLoad,
    Call,
    Cast,
    Let,
    Not,
    PrimExpr,
    Ramp,
    Select,
    Shuffle,
    Var,
)
from weft.tir.stmt import (
    Allocate,
    AttrStmt,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
)


@dataclass(slots=True)
class Uses:
    """What a statement mentions; dictionaries serve as sets that keep their order."""

    vars: dict[Var, None] = field(default_factory=dict)
    buffers: dict[Buffer, None] = field(default_factory=dict)
    written: dict[Buffer, None] = field(default_factory=dict)
    local_accesses: dict[Buffer, dict[PrimExpr, None]] = field(default_factory=dict)
    bound: dict[Var | Buffer, None] = field(default_factory=dict)

    def free_vars(self) -> list[Var]:
        return [v for v in self.vars if v not in self.bound]

    def free_buffers(self) -> list[Buffer]:
        return [b for b in self.buffers if b not in self.bound]


def operands(expr: PrimExpr) -> tuple[PrimExpr, ...]:
    """The expressions directly below one."""
    if isinstance(expr, Binary):
        return (expr.a, expr.b)
    reader = _OPERANDS.get(type(expr))
    return reader(expr) if reader else ()


_OPERANDS = {
    BufferLoad: lambda e: e.indices if e.predicate is None else (*e.indices, e.predicate),
    Call: lambda e: e.args,
    Broadcast: lambda e: (e.value,),
    Ramp: lambda e: (e.base, e.stride),
    Cast: lambda e: (e.value,),
    Not: lambda e: (e.a,),
    Select: lambda e: (e.condition, e.true_value, e.false_value),
    Let: lambda e: (e.value, e.body),
    Shuffle: lambda e: e.vectors,
}


def scan(root: Stmt) -> Uses:
    """Collect the variables and buffers of ``root``; iterative, each expression once."""
    uses = Uses()
    seen: set[PrimExpr] = set()
    todo: list[Stmt] = [root]
    while todo:
        stmt = todo.pop()
        _note_stmt(uses, stmt)
        for expr in stmt_exprs(stmt):
            _scan_expr(uses, expr, seen)
        todo.extend(reversed(tuple(child_stmts(stmt))))
    return uses


def child_stmts(stmt: Stmt) -> Iterator[Stmt]:
    """The statements directly inside one."""
    match stmt:
        case SeqStmt():
            yield from stmt.stmts
        case IfThenElse():
            yield stmt.then_case
            if stmt.else_case is not None:
                yield stmt.else_case
        case For() | Allocate() | LetStmt() | AttrStmt():
            yield stmt.body


def stmt_exprs(stmt: Stmt) -> tuple[PrimExpr, ...]:
    """The expressions that a statement evaluates itself."""
    match stmt:
        case BufferStore():
            predicate = () if stmt.predicate is None else (stmt.predicate,)
            return (*stmt.indices, *predicate, stmt.value)
        case For():
            return (stmt.min, stmt.extent)
        case IfThenElse():
            return (stmt.condition,)
        case LetStmt() | Evaluate():
            return (stmt.value,)
        case Allocate() | SeqStmt() | AttrStmt():
            return ()
    raise InternalError(f"code generation does not know the statement {type(stmt).__name__}")


def _note_stmt(uses: Uses, stmt: Stmt) -> None:
    match stmt:
        case BufferStore():
            uses.buffers[stmt.buffer] = None
            uses.written[stmt.buffer] = None
            _note_local(uses, stmt.buffer, stmt.indices)
        case For():
            uses.bound[stmt.loop_var] = None
        case LetStmt():
            uses.bound[stmt.var] = None
        case Allocate():
            uses.bound[stmt.buffer] = None


def _scan_expr(uses: Uses, root: PrimExpr, seen: set[PrimExpr]) -> None:
    todo = [root]
    while todo:
        expr = todo.pop()
        if expr in seen:
            continue
        seen.add(expr)
        match expr:
            case Var():
                uses.vars[expr] = None
            case Let():
                uses.bound[expr.var] = None
            case BufferLoad():
                uses.buffers[expr.buffer] = None
                _note_local(uses, expr.buffer, expr.indices)
            case Call(name="address_of"):
                _note_address(uses, expr)
        todo.extend(reversed(operands(expr)))


def _note_address(uses: Uses, call: Call) -> None:
    load = call.args[0]
    if isinstance(load, BufferLoad):
        uses.written[load.buffer] = None  # whoever holds the address may write through it


def _note_local(uses: Uses, buffer: Buffer, indices: tuple[PrimExpr, ...]) -> None:
    if buffer.scope == "local":
        index = indices[0] if len(indices) == 1 else None
        if index is not None:
            uses.local_accesses.setdefault(buffer, {})[index] = None
