"""The variables and buffers that a statement uses, binds and writes."""

from __future__ import annotations

from dataclasses import field

from weft.support.dataclass import dataclass
from weft.tir import Allocate, Buffer, BufferStore, For, LetStmt, Stmt
from weft.tir.expr import BufferLoad, Call, Let, PrimExpr, Var
from weft.tir.visitor import all_exprs, post_order_stmts


@dataclass(slots=True)
class Uses:
    """The uses in a statement. Dictionaries serve as ordered sets.

    ``local_accesses`` has the distinct indices of each local buffer, ``bound`` the variables and
    buffers that the statement itself defines.
    """

    vars: dict[Var, None] = field(default_factory=dict)
    buffers: dict[Buffer, None] = field(default_factory=dict)
    written: dict[Buffer, None] = field(default_factory=dict)
    local_accesses: dict[Buffer, dict[PrimExpr, None]] = field(default_factory=dict)
    bound: dict[Var | Buffer, None] = field(default_factory=dict)

    def free_vars(self) -> tuple[Var, ...]:
        return tuple(v for v in self.vars if v not in self.bound)

    def free_buffers(self) -> tuple[Buffer, ...]:
        return tuple(b for b in self.buffers if b not in self.bound)


def collect_uses(root: Stmt) -> Uses:
    """Collect the uses in ``root`` and all statements inside it."""
    uses = Uses()
    for stmt in post_order_stmts(root):
        _note_stmt(uses, stmt)
    for expr in all_exprs(root):
        _note_expr(uses, expr)
    return uses


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


def _note_expr(uses: Uses, expr: PrimExpr) -> None:
    match expr:
        case Var():
            uses.vars[expr] = None
        case Let():
            uses.bound[expr.var] = None
        case BufferLoad():
            uses.buffers[expr.buffer] = None
            _note_local(uses, expr.buffer, expr.indices)
        case Call(name="address_of", args=(BufferLoad() as element,)):
            uses.written[element.buffer] = None  # the callee may write through the pointer


def _note_local(uses: Uses, buffer: Buffer, indices: tuple[PrimExpr, ...]) -> None:
    if buffer.scope == "local" and len(indices) == 1:
        uses.local_accesses.setdefault(buffer, {})[indices[0]] = None
