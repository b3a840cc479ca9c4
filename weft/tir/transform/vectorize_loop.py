"""Vectorisation: loops marked ``vectorized`` become vector expressions of legal widths.

The loop variable becomes a ramp. Expressions that depend on it become vectors; all others stay
scalar and are broadcast where an operation combines both. A condition that depends on the lane
becomes a mask of the stores and loads that it protects.

Extents are split into powers of two, since LLVM compiles other vector lengths to slow code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from weft.ir.dtype import int64
from weft.support.dataclass import dataclass
from weft.tir import expr as x
from weft.tir import stmt as s
from weft.tir import visitor
from weft.tir.buffer import Buffer
from weft.tir.expr import Broadcast, BufferLoad, Call, PrimExpr, Ramp, Var, const, int_value
from weft.tir.func import PrimFunc
from weft.tir.simplify.scalar import fold_index_vector
from weft.tir.stmt import ForKind, Stmt
from weft.tir.transform.masked_tail import (
    MASKED_TAIL,
    Tail,
    only_excludes_padding,
    pad_for_tails,
)

# Loops of at most this extent are unrolled if they cannot be vectorised, so that the indices of
# local buffers become constant.
_MAX_UNROLLED = 16
# Wider vectors would spill. Up to _MAX_COPIES vectors are unrolled; more become a loop.
_MAX_LANES = 64
_MAX_COPIES = 16
_UNMASKABLE = ("call_extern", "address_of", "prefetch", "prefetch_l2")


class CannotVectorizeError(Exception):
    """The reason why a loop cannot be vectorised. The passes that vectorise catch it."""


class _NoSimplifier:
    @staticmethod
    def simplify(e: PrimExpr) -> PrimExpr:
        return e


class Vectorizer:
    """Rewrites the body of one vectorised loop as vectors of ``lanes`` lanes.

    With ``tail``, only the first lanes are active, and loads and stores are masked. ``padded`` maps
    buffers with rows of whole vectors to the lengths of these rows without the padding, ``ranges``
    loop variables to their first and last values.
    """

    def __init__(self, loop: s.For, lanes: int, *, tail: Tail | None = None,
                 padded: Mapping[Buffer, PrimExpr] | None = None,
                 ranges: Mapping[PrimExpr, tuple[int, int]] | None = None) -> None:
        self.lanes = lanes
        self._tail = tail
        self._padded = padded or {}
        self._ranges = ranges or {}
        ramp = Ramp(loop.min, const(1), lanes)
        self.loop_var = loop.loop_var
        self._memo: dict[PrimExpr, PrimExpr] = {loop.loop_var: ramp}
        self._expanded: dict[Buffer, Buffer] = {}

    def bind(self, e: PrimExpr, vector: PrimExpr) -> None:
        """Use ``vector`` as the value of ``e`` in all lanes."""
        self._memo[e] = vector

    # expressions

    def wide(self, e: PrimExpr) -> PrimExpr:
        """``e`` as a vector; a broadcast if it does not depend on the lane."""
        e = self.expr(e)
        return e if e.dtype.lanes == self.lanes else Broadcast(e, self.lanes)

    def expr(self, e: PrimExpr) -> PrimExpr:
        """``e`` for all lanes: a vector if it depends on the lane, else a scalar."""
        done = self._memo.get(e)
        if done is None:
            if e.dtype.lanes > 1:
                raise CannotVectorizeError("it contains a vectorised loop")
            rule = _EXPRS.get(type(e), Vectorizer._generic)
            done = self._memo[e] = rule(self, e)
        return done

    def _generic(self, e: PrimExpr) -> PrimExpr:
        # Lists, not generators, here and below: recursion through C overflows the stack.
        new = [self.expr(c) for c in visitor.children(e)]
        if not any(c.dtype.lanes > 1 for c in new):
            return visitor.with_children(e, tuple(new))
        if type(e) is Call:
            if e.name in _UNMASKABLE:
                raise CannotVectorizeError(f"it calls {e.name}")
            args = tuple(self._spread(c) for c in new)
            return Call(e.dtype.vector(self.lanes), e.name, args)
        made = visitor.with_children(e, tuple(self._spread(c) for c in new))
        if isinstance(made, x.Binary) and made.dtype.element is int64:
            return fold_index_vector(_NoSimplifier, made)
        return made

    def _spread(self, e: PrimExpr) -> PrimExpr:
        return e if e.dtype.lanes > 1 else Broadcast(e, self.lanes)

    def load(self, e: BufferLoad) -> PrimExpr:
        indices = tuple([self.expr(index) for index in e.indices])
        mask = self._mask(e.buffer, e.indices, e.predicate)
        buffer = self._expanded.get(e.buffer)
        if buffer is not None:
            return BufferLoad(buffer, (*indices, Ramp(const(0), const(1), self.lanes)), mask)
        if _any_vector(indices):
            mask = self._within_tail(e.buffer, indices, mask)
        if mask is not None and not _any_vector(indices) and self._is_inside(e.buffer, indices):
            mask = None  # one element for all lanes, which exists: no gather
        if mask is not None and mask.dtype.lanes > 1 and not _any_vector(indices):
            indices = (*indices[:-1], Broadcast(indices[-1], self.lanes))
        elif mask is not None and mask.dtype.lanes == 1 and _any_vector(indices):
            mask = Broadcast(mask, self.lanes)
        return BufferLoad(e.buffer, indices, mask)

    def _mask(self, buffer: Buffer, indices: tuple[PrimExpr, ...],
              predicate: PrimExpr | None) -> PrimExpr | None:
        if predicate is None or only_excludes_padding(buffer, indices, predicate, self._padded):
            return None
        return self.expr(predicate)

    def _is_inside(self, buffer: Buffer, indices: tuple[PrimExpr, ...]) -> bool:
        """Whether an element is known to exist: the ranges of all indices are within the shape."""
        for index, size in zip(indices, map(int_value, buffer.shape), strict=True):
            value = int_value(index)
            low, high = self._ranges.get(index, (-1, -1)) if value is None else (value, value)
            if size is None or not 0 <= low <= high < size:
                return False
        return True

    def _within_tail(self, buffer: Buffer, indices: tuple[PrimExpr, ...],
                     mask: PrimExpr | None) -> PrimExpr | None:
        own = None if self._tail is None else self._tail.mask_for(buffer, indices)
        if own is None or mask is None:
            return own if mask is None else mask
        return x.all_of(own, self._spread(mask))

    def call(self, e: Call) -> PrimExpr:
        if e.name != "if_then_else":
            return self._generic(e)
        condition = self.expr(e.args[0])
        if condition.dtype.lanes == 1:
            t, f = self.expr(e.args[1]), self.expr(e.args[2])
            if t.dtype.lanes != f.dtype.lanes:
                t, f = self._spread(t), self._spread(f)
            return x.if_then_else(condition, t, f)
        same, by_lane = self._split_condition(e.args[0])
        if same and by_lane and type(e.args[2]) in (x.FloatImm, x.IntImm):
            chosen = self.expr(x.if_then_else(x.all_of(*by_lane), e.args[1], e.args[2]))
            return x.if_then_else(x.all_of(*same), chosen, self.wide(e.args[2]))
        t = self.wide(mask_loads(e.args[1], e.args[0]))
        if isinstance(t, BufferLoad) and _is_zero(e.args[2]):
            return t  # masked-off lanes of a load are zero already
        f = self.wide(mask_loads(e.args[2], x.not_(e.args[0])))
        return x.select(condition, t, f)

    def _split_condition(self, e: PrimExpr) -> tuple[list[PrimExpr], list[PrimExpr]]:
        """The conjuncts that are the same in all lanes (rewritten), and those that are not."""
        if type(e) is Call and e.name == "likely":
            return self._split_condition(e.args[0])
        if type(e) is not x.And:
            return ([], [e]) if self.expr(e).dtype.lanes > 1 else ([self.expr(e)], [])
        (same, by_lane), (more, others) = self._split_condition(e.a), self._split_condition(e.b)
        return same + more, by_lane + others

    def let(self, e: x.Let) -> PrimExpr:
        value = self.expr(e.value)
        if value.dtype.lanes == 1:
            return x.Let(e.var, value, self.expr(e.body))
        var = Var(e.var.name, value.dtype)
        self._memo[e.var] = var
        return x.Let(var, value, self.expr(e.body))

    # statements

    def stmt(self, node: Stmt, mask: PrimExpr | None) -> Stmt:
        match node:
            case s.BufferStore():
                return self._store(node, mask)
            case s.IfThenElse():
                return self._branch(node, mask)
            case s.For():
                return self._loop(node, mask)
            case s.LetStmt():
                return self._let_stmt(node, mask)
            case s.Allocate():
                return self._allocate(node, mask)
            case s.SeqStmt() | s.AttrStmt():
                return visitor.map_stmts(node, lambda inner: self.stmt(inner, mask))
        raise CannotVectorizeError(f"it contains a {type(node).__name__}")

    def _store(self, node: s.BufferStore, mask: PrimExpr | None) -> Stmt:
        condition = node.predicate if mask is None else mask
        if mask is not None and node.predicate is not None:
            condition = x.all_of(mask, node.predicate)
        value = node.value if mask is None else mask_loads(node.value, mask)
        indices = tuple(map(self.expr, node.indices))
        for inner in visitor.depth_checkpoints(value):
            self.expr(inner)
        value, where = self.expr(value), self._mask(node.buffer, node.indices, condition)
        buffer = self._expanded.get(node.buffer, node.buffer)
        if buffer is not node.buffer:
            indices = (*indices, Ramp(const(0), const(1), self.lanes))
        if not _any_vector(indices):
            if _any_vector((value,)) or (where is not None and _any_vector((where,))):
                raise CannotVectorizeError(f"every lane writes the same element of {buffer.name}")
            if visitor.loads_from(value, node.buffer):
                raise CannotVectorizeError(f"every lane updates one element of {buffer.name}")
            return s.BufferStore(buffer, value, indices, where)
        value, where = self._spread(value), self._within_tail(buffer, indices, where)
        if where is None or where.dtype.lanes == 1:
            where = None if where is None else self._spread(where)
        if where is not None and buffer.scope == "local":
            # All lanes of a register may be read and written, so a select replaces the mask; masked
            # stores would force the buffer into memory.
            value, where = x.select(where, value, BufferLoad(buffer, indices)), None
        return s.BufferStore(buffer, value, indices, where)

    def _branch(self, node: s.IfThenElse, mask: PrimExpr | None) -> Stmt:
        condition = self.expr(node.condition)
        other = node.else_case
        if condition.dtype.lanes == 1:
            return node.replace(condition=condition, then_case=self.stmt(node.then_case, mask),
                                else_case=None if other is None else self.stmt(other, mask))
        plain = without_hints(node.condition)
        then_mask = plain if mask is None else x.all_of(mask, plain)
        branches = [self.stmt(node.then_case, then_mask)]
        if other is not None:
            negated = x.not_(plain)
            other_mask = negated if mask is None else x.all_of(mask, negated)
            branches.append(self.stmt(other, other_mask))
        return s.seq(branches)

    def _loop(self, node: s.For, mask: PrimExpr | None) -> Stmt:
        start, extent = self.expr(node.min), self.expr(node.extent)
        if _any_vector((start, extent)):
            raise CannotVectorizeError("the extent of an inner loop depends on the lane")
        return node.replace(min=start, extent=extent, body=self.stmt(node.body, mask))

    def _let_stmt(self, node: s.LetStmt, mask: PrimExpr | None) -> Stmt:
        value = self.expr(node.value if mask is None else mask_loads(node.value, mask))
        var = node.var
        if value.dtype.lanes > 1:
            var = self._memo[node.var] = Var(var.name, value.dtype)
        return s.LetStmt(var, value, self.stmt(node.body, mask))

    def _allocate(self, node: s.Allocate, mask: PrimExpr | None) -> Stmt:
        old = node.buffer
        new = Buffer(old.name, (*old.shape, const(self.lanes)), old.dtype, old.scope)
        self._expanded[old] = new
        return s.Allocate(new, self.stmt(node.body, mask))


_EXPRS: dict[type, Callable[[Vectorizer, Any], PrimExpr]] = {
    BufferLoad: Vectorizer.load,
    Call: Vectorizer.call,
    x.Let: Vectorizer.let,
    Var: lambda _, e: e,
}


def _any_vector(items: tuple[PrimExpr, ...]) -> bool:
    return any(e.dtype.lanes > 1 for e in items)


def _is_zero(e: PrimExpr) -> bool:
    """Whether ``e`` is the constant +0 (-0 compares equal, but has other bits)."""
    return isinstance(e, x.IntImm | x.FloatImm) and e.value == 0 and math.copysign(1, e.value) > 0


def without_hints(e: PrimExpr) -> PrimExpr:
    """``e`` without calls of ``likely``."""
    new = visitor.with_children(e, tuple(map(without_hints, visitor.children(e))))
    return new.args[0] if type(new) is Call and new.name == "likely" else new


def mask_loads(e: PrimExpr, mask: PrimExpr) -> PrimExpr:
    """``e`` with ``mask`` added to the predicates of its loads, but those that ``mask`` has too.

    These happen in all lanes anyway, to know the mask. Masked, they would make the next mask deeper
    than this one: nested conditions on one element would grow as the square of their number.
    """
    always = {node for node in visitor.post_order(mask) if type(node) is BufferLoad}

    def masked(new: PrimExpr) -> PrimExpr:
        if type(new) is not BufferLoad or not new.indices:  # a zero-dimensional buffer can be read
            return new
        if new in always:
            return new
        both = mask if new.predicate is None else x.all_of(new.predicate, mask)
        return BufferLoad(new.buffer, new.indices, both)

    return visitor.transform_expr(e, masked)  # each shared node once


@dataclass(frozen=True, slots=True)
class _Around:
    """The arguments of ``Vectorizer`` that are the same for all loops of a function."""

    padded: Mapping[Buffer, PrimExpr]
    ranges: Mapping[PrimExpr, tuple[int, int]]

    def vectorizer(self, loop: s.For, lanes: int) -> Vectorizer:
        return Vectorizer(loop, lanes, padded=self.padded, ranges=self.ranges)


def _ranges_of_loops(body: Stmt) -> dict[PrimExpr, tuple[int, int]]:
    """The first and last values of the variables of loops over constants.

    After partitioning, several loops may have one variable; all must be over constants.
    """
    found: dict[PrimExpr, tuple[int, int]] = {}
    for node in visitor.post_order_stmts(body):
        if isinstance(node, s.For):
            first, count = int_value(node.min), int_value(node.extent)
            low, high = found.get(node.loop_var, (0, 0))
            known = first is not None and count is not None and low >= 0
            found[node.loop_var] = (min(low, first), max(high, first + count - 1)) if (
                known and first is not None and count is not None) else (-1, -1)
    return found


def _vectorize(node: s.For, around: _Around) -> Stmt:
    """The loop as vector statements; a serial or unrolled loop if it cannot be vectorised."""
    lanes = int_value(node.extent)
    if lanes is None:
        return _fall_back(node, "its extent is not a constant")
    if lanes == 1:
        return node.replace(kind=ForKind.UNROLLED)
    try:
        widths = _vector_widths(node, lanes)
        if widths == [(lanes, 1)] and lanes.bit_count() == 1:
            return around.vectorizer(node, lanes).stmt(node.body, None)
        return _split_to_widths(node, node.body, widths, around)
    except CannotVectorizeError as reason:
        return _fall_back(node, str(reason))


def _vector_widths(node: s.For, extent: int) -> list[tuple[int, int]]:
    """``legal_vector_widths`` of the loop; with a masked tail, the remainder is one vector."""
    width = node.annotations.get(MASKED_TAIL)
    if width is None or (extent % width).bit_count() < 2:
        return legal_vector_widths(extent)
    whole, rest = divmod(extent, width)
    return [*legal_vector_widths(whole * width), (rest, 1)]


def legal_vector_widths(extent: int) -> list[tuple[int, int]]:
    """``extent`` as vectors of powers of two: (lanes, number of vectors), the widest first.

    LLVM compiles vectors of other lengths to slow code.
    """
    whole, rest = divmod(extent, _MAX_LANES)
    widths = [(_MAX_LANES, whole)] if whole > _MAX_COPIES else [(_MAX_LANES, 1)] * whole
    return widths + [(1 << n, 1) for n in reversed(range(rest.bit_length())) if rest >> n & 1]


def _split_to_widths(node: s.For, body: Stmt, widths: list[tuple[int, int]],
                     around: _Around) -> Stmt:
    """``body`` for all iterations of ``node``, as a sequence of vector statements.

    Iterations are independent, so the vectorised loop can be distributed over statements and
    interchanged with inner loops that do not depend on its variable. In a register tile, the
    vectors of one row are then adjacent inside the reduction loop.
    """
    match body:
        case s.SeqStmt() | s.AttrStmt():
            return visitor.map_stmts(body, lambda inner: _split_to_widths(node, inner, widths,
                                                                          around))
        case s.For() if not any(visitor.mentions(e, node.loop_var)
                                for e in (body.min, body.extent)):
            return visitor.map_stmts(body, lambda inner: _split_to_widths(node, inner, widths,
                                                                          around))
        case s.IfThenElse() if not visitor.mentions(body.condition, node.loop_var):
            return visitor.map_stmts(body, lambda inner: _split_to_widths(node, inner, widths,
                                                                          around))
    vectors: list[Stmt] = []
    start = node.min
    for lanes, times in widths:
        vectors.append(_vectors(node, body, start, (lanes, times), around))
        start = start + lanes * times
    return s.seq(vectors)


def _vectors(node: s.For, body: Stmt, start: PrimExpr, width: tuple[int, int],
             around: _Around) -> Stmt:
    """``body`` for ``times`` vectors of ``lanes`` from iteration ``start``."""
    lanes, times = width
    if times > 1:
        chunk = Var(f"{node.loop_var.name}_chunk", int64)
        vector = _vectors(node, body, start + chunk * lanes, (lanes, 1), around)
        return s.For(chunk, const(0), const(times), ForKind.SERIAL, vector)
    if lanes == 1:
        return visitor.substitute(body, {node.loop_var: start})
    if lanes.bit_count() > 1:  # the remainder of a loop with a masked tail
        full = node.annotations[MASKED_TAIL]
        return Vectorizer(node.replace(min=start), full, tail=Tail(lanes, full, around.padded)
                          ).stmt(body, None)
    return around.vectorizer(node.replace(min=start), lanes).stmt(body, None)


def _fall_back(node: s.For, reason: str) -> s.For:
    """The loop, unrolled or serial, with the reason as the annotation ``not_vectorized``."""
    lanes = int_value(node.extent)
    small = lanes is not None and lanes <= _MAX_UNROLLED
    return node.replace(kind=ForKind.UNROLLED if small else ForKind.SERIAL,
                        annotations={**node.annotations, "not_vectorized": reason})


def vectorize_loop(func: PrimFunc) -> PrimFunc:
    """Replace vectorised loops by vector expressions.

    for i in range(4):
        for j in vectorized(16):
            A[i, j] = A[i, j] + B[i]
    =>
    for i in range(4):
        A[i, ramp(0, 1, 16)] = A[i, ramp(0, 1, 16)] + broadcast(B[i], 16)
    """
    func, padded = pad_for_tails(func)
    around = _Around(padded, _ranges_of_loops(func.body))

    def rewrite(node: Stmt) -> Stmt:
        node = visitor.map_stmts(node, rewrite)
        is_vector = isinstance(node, s.For) and node.kind is ForKind.VECTORIZED
        return _vectorize(node, around) if is_vector else node  # type: ignore[arg-type]

    return visitor.map_body(func, rewrite)
