"""Which loops may run in any order, or at the same time.

The iterations of a loop are independent if no iteration accesses an element that another one
writes. Parallel and vectorised loops are so by their kind. For a serial loop over ``v``, every
buffer that the body writes needs a dimension whose index is ``c * v + rest`` in all accesses, where
``rest`` varies by less than ``c`` within one iteration.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.tir import stmt as s
from weft.tir.buffer import Buffer
from weft.tir.expr import BufferLoad, Call, PrimExpr, Var, const, int_value
from weft.tir.simplify import Analyzer
from weft.tir.stmt import ForKind, Stmt
from weft.tir.visitor import all_exprs, mentions, post_order, post_order_stmts, substitute

_PARALLEL = (ForKind.PARALLEL, ForKind.VECTORIZED)
# Calls that touch memory in ways that indices do not show.
_OPAQUE = ("call_extern", "address_of")


def is_independent(loop: s.For, analyzer: Analyzer) -> bool:
    """Whether the iterations of ``loop`` may run at the same time.

    ``analyzer`` knows the ranges of the enclosing loops.
    """
    if loop.kind in _PARALLEL:
        return True
    if loop.kind is ForKind.THREAD_BINDING:
        return False
    if any(type(e) is Call and e.name in _OPAQUE for e in all_exprs(loop.body)):
        return False
    accesses = _accesses(loop.body)
    inner = [n for n in post_order_stmts(loop.body) if isinstance(n, s.For | s.LetStmt)]
    if any(isinstance(n, s.LetStmt) for n in inner):
        return False
    loops = [n for n in inner if isinstance(n, s.For)]
    return all(_is_separated(indices, loop, loops, analyzer) for indices in accesses.values())


def _accesses(body: Stmt) -> dict[Buffer, list[tuple[PrimExpr, ...]]]:
    """The indices of all accesses to each buffer that ``body`` writes and does not allocate."""
    statements = list(post_order_stmts(body))
    own = {n.buffer for n in statements if isinstance(n, s.Allocate)}
    stores = [n for n in statements if isinstance(n, s.BufferStore)]
    found: dict[Buffer, list[tuple[PrimExpr, ...]]] = {
        n.buffer: [] for n in stores if n.buffer not in own}
    for access in (*stores, *(e for e in all_exprs(body) if type(e) is BufferLoad)):
        if access.buffer in found:
            found[access.buffer].append(access.indices)
    return found


def _is_separated(accesses: Sequence[tuple[PrimExpr, ...]], loop: s.For, inner: Sequence[s.For],
                  analyzer: Analyzer) -> bool:
    """Whether some dimension tells the iterations of ``loop`` apart in all accesses."""
    return any(_separates([indices[d] for indices in accesses], loop, inner, analyzer)
               for d in range(len(accesses[0])))


def _separates(indices: Sequence[PrimExpr], loop: s.For, inner: Sequence[s.For],
               analyzer: Analyzer) -> bool:
    var = loop.loop_var
    if any(any(isinstance(e, BufferLoad) for e in post_order(i)) for i in indices):
        return False
    distinct = list(dict.fromkeys(indices))
    if distinct == [var]:
        return True
    bases = set[PrimExpr]()
    low, high, step = 0, 0, None
    for index in distinct:
        found = _split(index, var, inner, analyzer)
        if found is None or step not in (None, found[0]):
            return False
        step, base, least, most = found
        bases.add(base)
        low, high = min(low, least), max(high, most)
    return step is not None and len(bases) == 1 and high - low < abs(step)


def _split(index: PrimExpr, var: Var, inner: Sequence[s.For], analyzer: Analyzer
           ) -> tuple[int, PrimExpr, int, int] | None:
    """``index`` as ``step * var + base + rest``: step, base, least and largest rest."""
    if index.dtype.lanes != 1:
        return None
    step = int_value(analyzer.simplify(substitute(index, {var: var + 1}) - index))
    if not step:
        return None
    rest = analyzer.simplify(index - var * step)
    base = analyzer.simplify(substitute(rest, {n.loop_var: const(0) for n in inner}))
    if mentions(rest, var) or mentions(base, var):
        return None
    least, most = _spread(analyzer.simplify(rest - base), inner)
    return None if least is None or most is None else (step, base, least, most)


def _spread(e: PrimExpr, inner: Sequence[s.For]) -> tuple[int | None, int | None]:
    """The bounds of ``e``, given the ranges of the inner loops."""
    constant = int_value(e)
    if constant is not None:
        return constant, constant
    ranges = Analyzer()
    for n in inner:
        ranges.bind(n.loop_var, n.min, n.extent)
    return ranges.int_bounds(e)
