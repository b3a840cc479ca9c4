"""Updates of accumulators by the combiner of a reduction."""

from __future__ import annotations

from collections.abc import Sequence

from weft.tir import Buffer, BufferStore, CommReducer, LetStmt, PrimExpr, Stmt, Var, seq, substitute


def combined(combiner: CommReducer, old: Sequence[PrimExpr], new: Sequence[PrimExpr]
             ) -> tuple[PrimExpr, ...]:
    """The results of combining the values ``old`` and ``new``."""
    values: dict[Var, PrimExpr] = dict(zip(combiner.lhs, old, strict=True))
    values.update(zip(combiner.rhs, new, strict=False))
    return tuple(substitute(e, values) for e in combiner.result)


def stores(buffers: Sequence[Buffer], values: Sequence[PrimExpr], indices: tuple[PrimExpr, ...]
           ) -> Stmt:
    """Store each value; several values are all computed before the first is stored."""
    if len(values) == 1:
        return BufferStore(buffers[0], values[0], indices)
    # The combiner of a tuple (argmax) reads all old accumulators for each of its results.
    new = [Var(f"{b.name}.new", b.dtype) for b in buffers]
    body = seq([BufferStore(b, v, indices) for b, v in zip(buffers, new, strict=True)])
    for var, value in reversed(list(zip(new, values, strict=True))):
        body = LetStmt(var, value, body)
    return body
