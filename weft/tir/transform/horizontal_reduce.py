"""Partial results are combined pairwise: vectors first, then the halves of one vector.

A schedule keeps a vector of partial results and reduces over its lanes at the end. Lane after lane
that is a chain as long as the vector; in halves it is as many steps as the vector has doublings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from weft.tir import stmt as s
from weft.tir.expr import (
    Broadcast,
    BufferLoad,
    Call,
    PrimExpr,
    Ramp,
    Shuffle,
    Var,
    const,
    int_value,
)
from weft.tir.func import PrimFunc
from weft.tir.stmt import ForKind, Stmt
from weft.tir.visitor import children, map_body, map_stmts, mentions, post_order, with_children

ANNOTATION = "horizontal_reduce"


@dataclass(frozen=True, slots=True)
class _Combination:
    """``stores[i] = results[i]``, where ``old`` are the results so far and ``new`` one lane's."""

    stores: tuple[s.BufferStore, ...]
    results: tuple[PrimExpr, ...]
    old: tuple[PrimExpr, ...]
    new: tuple[BufferLoad, ...]

    def apply(self, a: Sequence[PrimExpr], b: Sequence[PrimExpr]) -> tuple[PrimExpr, ...]:
        values = {**dict(zip(self.old, a, strict=True)), **dict(zip(self.new, b, strict=True))}
        return tuple(_widened(e, values, a[0].dtype.lanes) for e in self.results)


def _widened(e: PrimExpr, values: Mapping[PrimExpr, PrimExpr], lanes: int) -> PrimExpr:
    """``e`` in every lane, with ``values`` put for some of its parts."""
    done = values.get(e)
    if done is not None:
        return done
    old = children(e)
    new = tuple(_widened(c, values, lanes) for c in old)
    if lanes == 1 or not any(c.dtype.lanes > 1 for c in new):
        return with_children(e, new)
    wide = tuple(c if c.dtype.lanes > 1 else Broadcast(c, lanes) for c in new)
    return Call(e.dtype.vector(lanes), e.name, wide) if type(e) is Call else with_children(e, wide)


def _combination(loop: s.For) -> _Combination | None:
    """What one iteration combines; ``None`` for a body of another form."""
    body = loop.body
    values: dict[PrimExpr, PrimExpr] = {}
    while isinstance(body, s.LetStmt):
        values[body.var] = body.value
        body = body.body
    parts = body.stmts if isinstance(body, s.SeqStmt) else (body,)
    stores = tuple(part for part in parts if isinstance(part, s.BufferStore))
    if len(stores) != len(parts) or any(
        mentions(i, loop.loop_var) for p in stores for i in p.indices
    ):
        return None
    results = tuple(values.get(p.value, p.value) for p in stores)
    lanes = dict.fromkeys(
        e for r in results for e in post_order(r)
        if isinstance(e, BufferLoad) and _is_lane(e, loop.loop_var)
    )
    old = tuple(BufferLoad(p.buffer, p.indices) for p in stores)
    new = tuple(lanes)
    outside = {e: const(0, e.dtype) for e in (*old, *new)}
    rest = tuple(_widened(r, outside, 1) for r in results)
    if len(new) != len(old) or any(type(e) in (Var, BufferLoad) for r in rest
                                   for e in post_order(r)):
        return None
    # Stores and the buffers of partial results are both in the order of the reduction's results.
    partners = tuple(sorted(new, key=lambda load: load.buffer.uid))
    if any(a.dtype is not b.dtype for a, b in zip(old, partners, strict=True)):
        return None
    return _Combination(stores, results, old, partners)


def _is_lane(e: BufferLoad, var: Var) -> bool:
    """A load of neighbouring elements, one a lane."""
    if not e.indices or e.predicate is not None:
        return False
    return e.indices[-1] is var and not any(mentions(i, var) for i in e.indices[:-1])


class _Tree:
    """Binds every intermediate result once, outermost first."""

    def __init__(self, combination: _Combination) -> None:
        self.combination = combination
        self.bound: list[tuple[Var, PrimExpr]] = []

    def let(self, values: Sequence[PrimExpr]) -> tuple[PrimExpr, ...]:
        names = tuple(Var("lanes", e.dtype) for e in values)
        self.bound += zip(names, values, strict=True)
        return names

    def load(self, start: int, lanes: int) -> tuple[PrimExpr, ...]:
        index = Ramp(const(start), const(1), lanes)
        return self.let([BufferLoad(e.buffer, (*e.indices[:-1], index))
                         for e in self.combination.new])

    def joined(self, parts: list[tuple[PrimExpr, ...]]) -> tuple[PrimExpr, ...]:
        """One of several, combined pairwise."""
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=False)
            odd = parts[-1:] if len(parts) % 2 else []
            parts = [self.let(self.combination.apply(a, b)) for a, b in pairs] + odd
        return parts[0]

    def folded(self, vector: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        """A scalar of each vector: the upper half onto the lower until one lane is left."""
        lanes = vector[0].dtype.lanes
        while lanes > 1:
            lanes //= 2
            low, high = (
                tuple(Shuffle((v,), tuple(range(first, first + lanes))) for v in vector)
                for first in (0, lanes)
            )
            vector = self.let(self.combination.apply(self.let(low), self.let(high)))
        return vector

    def stores(self, value: tuple[PrimExpr, ...]) -> Stmt:
        combination = self.combination
        final = self.let(combination.apply(combination.old, value))
        body = s.seq([p.replace(value=v) for p, v in zip(combination.stores, final, strict=True)])
        for var, bound in reversed(self.bound):
            body = s.LetStmt(var, bound, body)
        return body


def _combine(loop: s.For) -> Stmt:
    lanes, extent = int(loop.annotations[ANNOTATION]), int_value(loop.extent)
    combination = _combination(loop)
    plain = loop.replace(kind=ForKind.SERIAL)
    if combination is None or extent is None or extent % lanes or int_value(loop.min) != 0:
        return plain
    if lanes & (lanes - 1):
        return plain
    tree = _Tree(combination)
    parts = [tree.load(start, lanes) for start in range(0, extent, lanes)]
    return tree.stores(tree.folded(tree.joined(parts)))


def horizontal_reduce(func: PrimFunc) -> PrimFunc:
    """Combine partial results in a tree where a loop is annotated with their vectors' lanes.

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
