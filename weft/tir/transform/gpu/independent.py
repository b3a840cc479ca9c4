"""Which loops may run in any order, or at the same time.

The iterations of a loop are independent if no iteration accesses an element that another one
writes. Parallel and vectorised loops are independent by definition. A serial loop over ``v`` is
independent if each store and each other access to the same buffer have a dimension in which their
indices always differ, or in which both are ``c * v + rest``, where ``rest`` varies by less than
``c`` within one iteration.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from weft.tir import stmt as s
from weft.tir.buffer import Buffer
from weft.tir.expr import BufferLoad, Call, PrimExpr, Var, const, int_value
from weft.tir.simplify import Analyzer
from weft.tir.stmt import ForKind, Stmt
from weft.tir.visitor import all_exprs, mentions, post_order_stmts, substitute

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
    inner = [n for n in post_order_stmts(loop.body) if isinstance(n, s.For | s.LetStmt)]
    if any(isinstance(n, s.LetStmt) for n in inner):
        return False
    loops = [n for n in inner if isinstance(n, s.For)]
    check = _Pairs(loop, loops, analyzer)
    return all(check.are_apart(store, access) for stores, accesses in _accesses(loop.body)
               for store in stores for access in accesses)


_Index = tuple[PrimExpr, ...]


def _accesses(body: Stmt) -> Iterator[tuple[list[_Index], list[_Index]]]:
    """For each buffer that ``body`` writes and does not allocate: its stores, and all accesses."""
    statements = list(post_order_stmts(body))
    own = {n.buffer for n in statements if isinstance(n, s.Allocate)}
    stores: dict[Buffer, dict[_Index, None]] = {}
    for n in statements:
        if isinstance(n, s.BufferStore) and n.buffer not in own:
            stores.setdefault(n.buffer, {})[n.indices] = None
    loads: dict[Buffer, dict[_Index, None]] = {}
    for e in all_exprs(body):
        if type(e) is BufferLoad and e.buffer in stores:
            loads.setdefault(e.buffer, {})[e.indices] = None
    for buffer, written in stores.items():
        yield list(written), [*written, *loads.get(buffer, ())]


class _Pairs:
    """Compares accesses of different iterations of ``loop``; ``inner`` are the loops inside."""

    def __init__(self, loop: s.For, inner: Sequence[s.For], analyzer: Analyzer) -> None:
        self.var, self.inner, self.analyzer = loop.loop_var, inner, analyzer
        self.varying: dict[Var, PrimExpr] = {n.loop_var: const(0) for n in inner}
        self._known: dict[PrimExpr, tuple[int, PrimExpr, int, int] | None] = {}

    def are_apart(self, a: _Index, b: _Index) -> bool:
        """Whether accesses at ``a`` and ``b`` touch different elements in different iterations."""
        return any(self._separates(x, y) or self._differ(x, y) for x, y in zip(a, b, strict=True))

    def _separates(self, a: PrimExpr, b: PrimExpr) -> bool:
        if a is self.var and b is self.var:
            return True
        first, second = self._split(a), self._split(b)
        if first is None or second is None or first[:2] != second[:2]:
            return False
        return max(first[3], second[3]) - min(first[2], second[2]) < abs(first[0])

    def _differ(self, a: PrimExpr, b: PrimExpr) -> bool:
        """Whether the indices differ in all iterations: neither varies within the loop."""
        variables = (self.var, *self.varying)
        if a is b or mentions(a, *variables) or mentions(b, *variables):
            return False
        difference = int_value(self.analyzer.simplify(a - b))
        return difference is not None and difference != 0

    def _split(self, index: PrimExpr) -> tuple[int, PrimExpr, int, int] | None:
        if index not in self._known:
            self._known[index] = _split(index, self.var, self.inner, self.analyzer)
        return self._known[index]


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
