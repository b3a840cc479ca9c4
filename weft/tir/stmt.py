"""Statements of loop programs: frozen, compared by identity."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from weft.tir.buffer import Buffer
from weft.tir.expr import PrimExpr, Var

S = TypeVar("S", bound="Stmt")


class ForKind(enum.Enum):
    SERIAL = "serial"
    PARALLEL = "parallel"
    VECTORIZED = "vectorized"
    UNROLLED = "unrolled"
    THREAD_BINDING = "thread_binding"


class _Text:
    """The printer of loop programs hands itself over when ``weft.tir`` is imported."""

    render: Any = staticmethod(object.__repr__)


def install_stmt_printer(function: Any) -> None:
    _Text.render = staticmethod(function)


def print_node(node: Any) -> str:
    """The text of a statement or function."""
    return _Text.render(node)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Stmt:
    """Base of all statements."""

    def __str__(self) -> str:
        return _Text.render(self)

    def __repr__(self) -> str:
        return _Text.render(self)

    def replace(self: S, **changes: Any) -> S:
        """A statement with the fields changed; ``self`` where nothing differs (by identity)."""
        if all(getattr(self, name) is value for name, value in changes.items()):
            return self
        return dataclasses.replace(self, **changes)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BufferStore(Stmt):
    """``buffer[indices] = value``; ``predicate`` masks lanes (or the whole scalar store)."""

    buffer: Buffer
    value: PrimExpr
    indices: tuple[PrimExpr, ...]
    predicate: PrimExpr | None = None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class For(Stmt):
    """``for loop_var in range(min, min + extent)``; iterations of a parallel loop commute."""

    loop_var: Var
    min: PrimExpr
    extent: PrimExpr
    kind: ForKind
    body: Stmt
    thread_tag: str | None = None
    annotations: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class IfThenElse(Stmt):
    condition: PrimExpr
    then_case: Stmt
    else_case: Stmt | None = None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SeqStmt(Stmt):
    stmts: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Allocate(Stmt):
    """``buffer`` lives during ``body``; its content is undefined at the start."""

    buffer: Buffer
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LetStmt(Stmt):
    var: Var
    value: PrimExpr
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class AttrStmt(Stmt):
    """A remark for later passes (``pragma_*``) about ``body``."""

    key: str
    value: Any
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Evaluate(Stmt):
    """An expression for its effect: a call."""

    value: PrimExpr


def seq(stmts: Sequence[Stmt | None]) -> Stmt:
    """The statements in order, nested sequences flattened, ``None`` and empties dropped."""
    flat: list[Stmt] = []
    for stmt in stmts:
        if isinstance(stmt, SeqStmt):
            flat.extend(stmt.stmts)
        elif stmt is not None:
            flat.append(stmt)
    return flat[0] if len(flat) == 1 else SeqStmt(tuple(flat))
