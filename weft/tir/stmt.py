"""Statements of loop programs: immutable, compared by identity."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, TypeVar

from weft.support.dataclass import dataclass, replace
from weft.tir.buffer import Buffer
from weft.tir.expr import PrimExpr, Var
from weft.tir.node import print_node

S = TypeVar("S", bound="Stmt")


class ForKind(enum.Enum):
    """How a loop runs."""

    SERIAL = "serial"
    PARALLEL = "parallel"
    VECTORIZED = "vectorized"
    UNROLLED = "unrolled"
    THREAD_BINDING = "thread_binding"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Stmt:
    """Base of all statements."""

    def __str__(self) -> str:
        return print_node(self)

    def __repr__(self) -> str:
        return print_node(self)

    def replace(self: S, **changes: Any) -> S:
        """A copy with changed fields; ``self`` if all values are identical to the current ones."""
        for name, value in changes.items():
            if getattr(self, name) is not value:
                return replace(self, **changes)
        return self


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BufferStore(Stmt):
    """``buffer[indices] = value``; no store where ``predicate`` is false, per lane."""

    buffer: Buffer
    value: PrimExpr
    indices: tuple[PrimExpr, ...]
    predicate: PrimExpr | None = None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class For(Stmt):
    """``for loop_var in range(min, min + extent)``.

    Iterations of parallel and vectorised loops are independent.
    """

    loop_var: Var
    min: PrimExpr
    extent: PrimExpr
    kind: ForKind
    body: Stmt
    thread_tag: str | None = None
    annotations: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class IfThenElse(Stmt):
    """Runs one of two statements, or one or none."""

    condition: PrimExpr
    then_case: Stmt
    else_case: Stmt | None = None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SeqStmt(Stmt):
    """Runs statements one after another."""

    stmts: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Allocate(Stmt):
    """Allocates ``buffer`` for the duration of ``body``, uninitialised."""

    buffer: Buffer
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LetStmt(Stmt):
    """Names a value within a statement."""

    var: Var
    value: PrimExpr
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class AttrStmt(Stmt):
    """Attaches ``key`` and ``value`` to ``body``, for later passes."""

    key: str
    value: Any
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Evaluate(Stmt):
    """Evaluates an expression for its side effects: a call."""

    value: PrimExpr


def seq(stmts: Sequence[Stmt | None]) -> Stmt:
    """The statements in order; nested sequences are flattened, ``None`` is dropped."""
    flat: list[Stmt] = []
    for stmt in stmts:
        if isinstance(stmt, SeqStmt):
            flat.extend(stmt.stmts)
        elif stmt is not None:
            flat.append(stmt)
    return flat[0] if len(flat) == 1 else SeqStmt(tuple(flat))


def store_together(buffers: Sequence[Buffer], values: Sequence[PrimExpr],
                   indices: tuple[PrimExpr, ...]) -> Stmt:
    """Store each value; several values are all computed before the first is stored."""
    if len(values) == 1:
        return BufferStore(buffers[0], values[0], indices)
    # The combiner of a tuple (argmax) reads all old accumulators for each of its results.
    new = [Var(f"{b.name}.new", b.dtype) for b in buffers]
    body = seq([BufferStore(b, v, indices) for b, v in zip(buffers, new, strict=True)])
    for var, value in reversed(list(zip(new, values, strict=True))):
        body = LetStmt(var, value, body)
    return body
