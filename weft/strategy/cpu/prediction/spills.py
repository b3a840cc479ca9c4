"""Values of a block that registers cannot hold: each is stored once and loaded where it is used."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence

from weft.tir import stmt as s
from weft.tir import visitor
from weft.tir.expr import Var


def spilled(statements: Sequence[s.Stmt], registers: int) -> tuple[int, int]:
    """Vectors that are stored because ``registers`` are too few, and loads of them.

    The value that is used last of all makes room (Belady, "A study of replacement algorithms for a
    virtual-storage computer", 1966).
    """
    defined = [stmt.var if isinstance(stmt, s.LetStmt) and stmt.var.dtype.lanes > 1 else None
               for stmt in statements]
    variables = {var for var in defined if var is not None}
    if len(variables) <= registers:
        return 0, 0
    uses: dict[Var, list[int]] = {var: [] for var in variables}
    read = [{node for node in visitor.nodes_of(visitor.exprs_of(stmt)) if node in variables}
            for stmt in statements]
    for at, found in enumerate(read):
        for var in found:
            uses[var].append(at)
    held: set[Var] = set()
    stored: set[Var] = set()
    loads = 0
    for at, (found, var) in enumerate(zip(read, defined, strict=True)):
        loads += len(found - held)
        held |= found
        for each in found:
            if uses[each][-1] == at:
                held.discard(each)
        if var is not None and uses[var]:
            held.add(var)
        while len(held) > registers:
            last = max(held, key=lambda each: _next(uses[each], at))
            held.discard(last)
            stored.add(last)
    return len(stored), loads


def _next(uses: Sequence[int], at: int) -> float:
    following = bisect.bisect_right(uses, at)
    return uses[following] if following < len(uses) else math.inf
