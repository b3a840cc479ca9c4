"""Whether any two accesses to the same element are made by the same thread.

Each index is a sum ``c1 * t1 + c2 * t2 + ... + base + rest`` over the thread indices, where
``rest`` varies with the loops of the thread. If each coefficient is larger than the greatest sum of
the smaller terms, as in mixed radix numbers, different threads have different values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft.support.dataclass import dataclass
from weft.tir import stmt as s
from weft.tir.expr import BufferLoad, PrimExpr, Var, const, int_value
from weft.tir.simplify import Analyzer
from weft.tir.stmt import Stmt
from weft.tir.visitor import mentions, post_order, post_order_stmts, substitute


@dataclass(frozen=True, slots=True)
class _Sum:
    """One index: coefficients of the thread indices, base, least and largest rest."""

    coefficients: tuple[int, ...]
    base: PrimExpr
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class AccessIndices:
    """The indices of an access as sums; ``None`` for an index that is not such a sum.

    ``fixed`` are the thread indices that have one value at the access, as in ``if threadIdx.x ==
    0``.
    """

    sums: tuple[_Sum | None, ...]
    fixed: Mapping[Var, int]


class ThreadIndices:
    """Compares the accesses in the code ``body`` of one thread."""

    def __init__(self, body: Stmt, threads: Sequence[s.For]) -> None:
        self.threads = [t for t in threads if int_value(t.extent) != 1]
        self.loops = [n for n in post_order_stmts(body) if isinstance(n, s.For)]
        self.lets = {n.var: n.value for n in post_order_stmts(body) if isinstance(n, s.LetStmt)}
        self._known: dict[PrimExpr, _Sum | None] = {}
        self._analyzer = Analyzer()
        for thread in self.threads:
            self._analyzer.bind(thread.loop_var, thread.min, thread.extent)

    def of(self, indices: tuple[PrimExpr, ...], fixed: Mapping[Var, int]) -> AccessIndices:
        """The indices of an access."""
        return AccessIndices(tuple(map(self._sum, indices)), fixed)

    def is_own(self, a: AccessIndices, b: AccessIndices) -> bool:
        """Whether no element is accessed by a thread with ``a`` and by another one with ``b``."""
        apart = {i for i, thread in enumerate(self.threads)
                 if thread.loop_var in a.fixed
                 and a.fixed[thread.loop_var] == b.fixed.get(thread.loop_var)}
        for first, second in zip(a.sums, b.sums, strict=True):
            if first is None or second is None or first.base is not second.base \
                    or first.coefficients != second.coefficients:
                continue
            spread = max(first.high, second.high) - min(first.low, second.low)
            order = sorted((abs(c), i) for i, c in enumerate(first.coefficients) if c)
            for coefficient, i in order:
                if coefficient <= spread:
                    break
                apart.add(i)
                spread += coefficient * ((int_value(self.threads[i].extent) or 1) - 1)
        return len(apart) == len(self.threads)

    def _sum(self, index: PrimExpr) -> _Sum | None:
        if index not in self._known:
            self._known[index] = self._split(index)
        return self._known[index]

    def _split(self, index: PrimExpr) -> _Sum | None:
        while mentions(index, *self.lets):
            index = substitute(index, self.lets)
        if index.dtype.lanes != 1 or any(isinstance(e, BufferLoad) for e in post_order(index)):
            return None
        simplify = self._analyzer.simplify
        coefficients, rest = [], index
        for thread in self.threads:
            var = thread.loop_var
            step = int_value(simplify(substitute(rest, {var: var + 1}) - rest))
            if step is None:
                return None
            coefficients.append(step)
            rest = simplify(substitute(rest, {var: const(0)}))
        zero: dict[Var, PrimExpr] = {n.loop_var: const(0) for n in self.loops}
        base = simplify(substitute(rest, zero))
        ranges = Analyzer()
        for n in self.loops:
            ranges.bind(n.loop_var, n.min, n.extent)
        difference = simplify(rest - base)
        low, high = ranges.int_bounds(difference)
        value = int_value(difference)
        if value is not None:
            low = high = value
        if low is None or high is None:
            return None
        return _Sum(tuple(coefficients), base, low, high)
