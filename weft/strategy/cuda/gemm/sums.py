"""The work of a block of threads, and where the finished sums of a thread belong."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from weft.support.dataclass import dataclass
from weft.tir import TRUE, Analyzer, Buffer, PrimExpr, Stmt


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """The sums of one thread, in groups of ``width`` neighbours along a row of C.

    A group is its row and first column in the tile, and the register of its first sum. ``owns``
    says whether the thread stores them: others hold the same.
    """

    registers: Buffer
    width: int
    groups: tuple[tuple[PrimExpr, PrimExpr, int], ...]
    owns: PrimExpr = TRUE


Finish: TypeAlias = Callable[[Sums], Stmt]


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """One tile of C of matrix ``z`` from (``row``, ``column``) on.

    It sums ``steps`` tiles of K from number ``first_step`` on; ``finish`` stores the sums.
    """

    z: PrimExpr
    row: PrimExpr
    column: PrimExpr
    first_step: PrimExpr
    steps: PrimExpr
    finish: Finish
    analyzer: Analyzer
