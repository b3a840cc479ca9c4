"""Horizontal reduction of vectors of partial results, as a tree.

An rfactored reduction accumulates one partial result per lane and combines the lanes at the end.
Lane by lane, that is a dependency chain of one operation per lane. The tree combines whole vectors
pairwise, then the halves of the last vector: log2 steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft.support.dataclass import dataclass
from weft.tir import expr as x
from weft.tir import stmt as s
from weft.tir.func import PrimFunc
from weft.tir.stmt import ForKind, Stmt
from weft.tir.visitor import children, map_body, map_stmts, mentions, post_order, with_children

ANNOTATION = "horizontal_reduce"


@dataclass(frozen=True, slots=True)
class _Combiner:
    """The combiner of a reduction loop: iteration ``i`` stores ``results`` to ``stores``.

    ``results`` are expressions of ``old``, the loads of the accumulators, and ``new``, the loads of
    the partial results of one lane. A reduction of tuples has several of each.
    """

    stores: tuple[s.BufferStore, ...]
    results: tuple[x.PrimExpr, ...]
    old: tuple[x.PrimExpr, ...]
    new: tuple[x.BufferLoad, ...]

    def apply(self, a: Sequence[x.PrimExpr], b: Sequence[x.PrimExpr]) -> tuple[x.PrimExpr, ...]:
        """Combine two (tuples of) partial results, vectors or scalars."""
        values = {**dict(zip(self.old, a, strict=True)), **dict(zip(self.new, b, strict=True))}
        return tuple(_vectorized(e, values, a[0].dtype.lanes) for e in self.results)


def _vectorized(e: x.PrimExpr, values: Mapping[x.PrimExpr, x.PrimExpr], lanes: int) -> x.PrimExpr:
    """``e`` with sub-expressions replaced by ``values``, which are vectors of ``lanes``."""
    done = values.get(e)
    if done is not None:
        return done
    old = children(e)
    new = tuple(_vectorized(c, values, lanes) for c in old)
    if lanes == 1 or not any(c.dtype.lanes > 1 for c in new):
        return with_children(e, new)
    wide = tuple(c if c.dtype.lanes > 1 else x.Broadcast(c, lanes) for c in new)
    return x.Call(e.dtype.vector(lanes), e.name,
                  wide) if type(e) is x.Call else with_children(e, wide)


def _combiner(loop: s.For) -> _Combiner | None:
    """The combiner in the body of ``loop``; ``None`` for a body of another form.

    The body must only store to elements that do not depend on the loop variable, and combine them
    with loads indexed by it.
    """
    body = loop.body
    values: dict[x.PrimExpr, x.PrimExpr] = {}
    while isinstance(body, s.LetStmt):
        values[body.var] = body.value
        body = body.body
    stmts = body.stmts if isinstance(body, s.SeqStmt) else (body,)
    stores = tuple(stmt for stmt in stmts if isinstance(stmt, s.BufferStore))
    if len(stores) != len(stmts) or any(
        mentions(i, loop.loop_var) for p in stores for i in p.indices
    ):
        return None
    results = tuple(values.get(p.value, p.value) for p in stores)
    lanes = dict.fromkeys(
        e for r in results for e in post_order(r)
        if isinstance(e, x.BufferLoad) and _is_lane(e, loop.loop_var)
    )
    old = tuple(x.BufferLoad(p.buffer, p.indices) for p in stores)
    new = tuple(lanes)
    outside = {e: x.const(0, e.dtype) for e in (*old, *new)}
    rest = tuple(_vectorized(r, outside, 1) for r in results)
    if len(new) != len(old) or any(type(e) in (x.Var, x.BufferLoad) for r in rest
                                   for e in post_order(r)):
        return None
    # Stores, and buffers of partial results by uid, are both in the order of the result tuple.
    partners = tuple(sorted(new, key=lambda load: load.buffer.uid))
    if any(a.dtype is not b.dtype for a, b in zip(old, partners, strict=True)):
        return None
    return _Combiner(stores, results, old, partners)


def _is_lane(e: x.BufferLoad, var: x.Var) -> bool:
    """Whether ``e`` loads one element per iteration of ``var``, contiguously."""
    if not e.indices or e.predicate is not None:
        return False
    return e.indices[-1] is var and not any(mentions(i, var) for i in e.indices[:-1])


class _Tree:
    """Builds the reduction tree; binds each intermediate result to a variable, in order."""

    def __init__(self, combiner: _Combiner) -> None:
        self.combiner = combiner
        self.bound: list[tuple[x.Var, x.PrimExpr]] = []

    def let(self, values: Sequence[x.PrimExpr]) -> tuple[x.PrimExpr, ...]:
        names = tuple(x.Var("lanes", e.dtype) for e in values)
        self.bound += zip(names, values, strict=True)
        return names

    def load(self, start: int, lanes: int) -> tuple[x.PrimExpr, ...]:
        index = x.Ramp(x.const(start), x.const(1), lanes)
        return self.let([x.BufferLoad(e.buffer, (*e.indices[:-1], index))
                         for e in self.combiner.new])

    def combine_vectors(self, vectors: list[tuple[x.PrimExpr, ...]]) -> tuple[x.PrimExpr, ...]:
        """Combine several vectors pairwise into one."""
        while len(vectors) > 1:
            pairs = zip(vectors[::2], vectors[1::2], strict=False)
            odd = vectors[-1:] if len(vectors) % 2 else []
            vectors = [self.let(self.combiner.apply(a, b)) for a, b in pairs] + odd
        return vectors[0]

    def reduce_lanes(self, vector: tuple[x.PrimExpr, ...]) -> tuple[x.PrimExpr, ...]:
        """Combine the upper half of a vector with the lower half, until one lane is left."""
        lanes = vector[0].dtype.lanes
        while lanes > 1:
            lanes //= 2
            low, high = (
                tuple(x.Shuffle((v,), tuple(range(first, first + lanes))) for v in vector)
                for first in (0, lanes)
            )
            vector = self.let(self.combiner.apply(self.let(low), self.let(high)))
        return vector

    def stores(self, value: tuple[x.PrimExpr, ...]) -> Stmt:
        combiner = self.combiner
        final = self.let(combiner.apply(combiner.old, value))
        body = s.seq([p.replace(value=v) for p, v in zip(combiner.stores, final, strict=True)])
        for var, bound in reversed(self.bound):
            body = s.LetStmt(var, bound, body)
        return body


def _combine(loop: s.For) -> Stmt:
    lanes, extent = int(loop.annotations[ANNOTATION]), x.int_value(loop.extent)
    combiner = _combiner(loop)
    plain = loop.replace(kind=ForKind.SERIAL)
    if combiner is None or extent is None or extent % lanes or x.int_value(loop.min) != 0:
        return plain
    if lanes & (lanes - 1):
        return plain
    tree = _Tree(combiner)
    vectors = [tree.load(start, lanes) for start in range(0, extent, lanes)]
    return tree.stores(tree.reduce_lanes(tree.combine_vectors(vectors)))


def horizontal_reduce(func: PrimFunc) -> PrimFunc:
    """Combine partial results in a tree in loops annotated with the lanes of their vectors.

    for i in range(4):  # horizontal_reduce = 4
        S[0] = S[0] + P[i]
    =>
    lanes = P[ramp(0, 1, 4)]
    lanes_1 = shuffle([lanes], [0, 1])
    lanes_2 = shuffle([lanes], [2, 3])
    lanes_3 = lanes_1 + lanes_2
    lanes_4 = shuffle([lanes_3], [0])
    lanes_5 = shuffle([lanes_3], [1])
    lanes_6 = lanes_4 + lanes_5
    lanes_7 = S[0] + lanes_6
    S[0] = lanes_7
    """

    def rewrite(node: Stmt) -> Stmt:
        node = map_stmts(node, rewrite)
        if isinstance(node, s.For) and ANNOTATION in node.annotations:
            return _combine(node)
        return node

    return map_body(func, rewrite)
