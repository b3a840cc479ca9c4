"""A kernel as a tree of loops and straight-line blocks, with what each executes and accesses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from weft.strategy.cpu.machine_model import MachineModel
from weft.strategy.cpu.prediction.affine import Digit, Forms, divisors_of
from weft.strategy.cpu.prediction.instructions import (
    Access,
    Counter,
    Instructions,
    UnpredictableError,
)
from weft.strategy.cpu.prediction.ranges import Samples, UnknownValueError, mentioned
from weft.strategy.cpu.prediction.spills import spilled
from weft.support.dataclass import dataclass
from weft.tir import PrimFunc
from weft.tir import expr as x
from weft.tir import stmt as s
from weft.tir.expr import PrimExpr


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Statements without loops; ``share`` is the part of the iterations that executes them.

    One that ``packs`` computes nothing and stores to memory of the kernel's own.
    """

    work: Instructions
    accesses: Sequence[Access]
    share: float = 1.0
    packs: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """A loop, or one digit of it."""

    digit: Digit
    body: Sequence[Loop | Block]
    share: float = 1.0


@dataclass(slots=True)
class _Builder:
    vector_bytes: int
    divisors: dict[x.Var, set[int]]
    sampled: set[x.Var]
    arguments: frozenset[object]
    registers: int
    forms: Forms = field(default_factory=Forms)
    samples: Samples = Samples()

    def nodes(self, stmt: s.Stmt, share: float, loop_var: x.Var | None = None
              ) -> list[Loop | Block]:
        """The loops and blocks of a statement, in order; ``loop_var`` is of the loop around it."""
        found: list[Loop | Block] = []
        straight: list[s.Stmt] = []
        self._collect(stmt, share, found, straight)
        self._close(found, straight, share, None if found else loop_var)
        return found

    def _collect(self, stmt: s.Stmt, share: float, found: list[Loop | Block],
                 straight: list[s.Stmt]) -> None:
        while isinstance(stmt, (s.Allocate, s.AttrStmt, s.LetStmt)):
            if isinstance(stmt, s.LetStmt):
                straight.append(stmt)
                if stmt.var.dtype.is_int:
                    self.forms.let(stmt.var, stmt.value)
            stmt = stmt.body
        if isinstance(stmt, s.SeqStmt):
            for each in stmt.stmts:
                self._collect(each, share, found, straight)
        elif isinstance(stmt, s.For):
            self._close(found, straight, share)
            found.append(self._loop(stmt, share))
        elif isinstance(stmt, s.IfThenElse):
            self._close(found, straight, share)
            found += self._branches(stmt, share)
        else:
            straight.append(stmt)

    def _close(self, found: list[Loop | Block], straight: list[s.Stmt], share: float,
               loop_var: x.Var | None = None) -> None:
        if straight:
            stored = frozenset(each.buffer for each in straight if isinstance(each, s.BufferStore))
            counter = Counter(self.vector_bytes, self.forms, loop_var, stored)
            for stmt in straight:
                counter.visit(stmt)
            work = counter.finish()
            stores, loads = spilled(straight, self.registers)
            work.store += stores
            work.load += loads
            targets = {one.buffer for one in counter.accesses if one.is_store}
            packs = bool(targets) and not work.fma and targets.isdisjoint(self.arguments)
            found.append(Block(work, counter.accesses, share, packs))
            straight.clear()

    def _branches(self, stmt: s.IfThenElse, share: float) -> list[Loop | Block]:
        outer, cases = self.samples, (stmt.then_case, stmt.else_case)
        try:
            taken = outer.mean(stmt.condition)
            sides = [outer.where(stmt.condition, holds=holds) for holds in (True, False)]
        except UnknownValueError:
            taken, sides = 0.5, [outer, outer]
        found: list[Loop | Block] = []
        for case, part, side in zip(cases, (taken, 1 - taken), sides, strict=True):
            if case is not None and part:
                self.samples = side
                found += self.nodes(case, share * part)
        self.samples = outer
        return found

    def _loop(self, stmt: s.For, share: float) -> Loop:
        outer = self.samples
        try:
            extent = outer.mean(stmt.extent)
            if stmt.loop_var in self.sampled:
                self.samples = outer.within(stmt.loop_var, stmt.min, stmt.extent)
        except UnknownValueError as error:
            raise UnpredictableError(f"a loop of {error} iterations") from None
        digits = self.forms.define(stmt.loop_var, extent, self.divisors.get(stmt.loop_var, ()))
        body: Sequence[Loop | Block] = self.nodes(stmt.body, 1.0, stmt.loop_var)
        self.samples = outer
        for digit in reversed(digits[1:]):
            body = (Loop(digit, body),)
        return Loop(digits[0], body, share)


def tree_of(func: PrimFunc, model: MachineModel) -> tuple[list[Loop | Block], Forms]:
    """The loops and blocks of a kernel; ``UnpredictableError`` if they say too little."""
    every, deciding = _expressions(func.body)
    builder = _Builder(model.vector_bytes, divisors_of(every), mentioned(deciding),
                       frozenset(func.params), model.vector_registers)
    return builder.nodes(func.body, 1.0), builder.forms


def _expressions(root: s.Stmt) -> tuple[list[PrimExpr], list[PrimExpr]]:
    """The outermost expressions of all statements, and of those that decide what is executed."""
    found: list[PrimExpr] = []
    deciding: list[PrimExpr] = []
    pending = [root]
    while pending:
        stmt = pending.pop()
        if isinstance(stmt, s.For):
            deciding += [stmt.min, stmt.extent]
        elif isinstance(stmt, s.IfThenElse):
            deciding.append(stmt.condition)
        for name in stmt.__dataclass_fields__:
            value = getattr(stmt, name)
            for part in value if isinstance(value, tuple) else (value,):
                if isinstance(part, s.Stmt):
                    pending.append(part)
                elif isinstance(part, PrimExpr):
                    found.append(part)
    return found, deciding
