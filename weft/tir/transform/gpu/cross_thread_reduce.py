"""Combines the partial results of threads: by warp shuffles, and across warps in shared memory.

Shuffles exchange registers within a warp in log2(32) steps (a butterfly, so that every thread gets
the result). If several warps reduce together, the first lane of each warp stores its result to
shared memory, and after a barrier every warp reduces these results. A tree in shared memory handles
blocks that are not whole warps, and groups of threads that are not consecutive.

The order of the additions depends on the schedule alone, so results are reproducible.
"""

from __future__ import annotations

import math

from weft.ir.dtype import DType, float32, int32, int64
from weft.support.errors import InternalError
from weft.tir import expr as x
from weft.tir import stmt as s
from weft.tir.buffer import Buffer
from weft.tir.cross_thread import CROSS_THREAD_REDUCE, CrossThreadReduce
from weft.tir.func import PrimFunc
from weft.tir.stmt import IfThenElse, LetStmt, Stmt, seq, store_together
from weft.tir.transform.gpu.thread_axes import THREAD_TAGS, THREADS_APART, WARP, is_bound, is_thread
from weft.tir.visitor import map_stmts, substitute

_ELEMENT = (x.const(0),)
Values = list[x.PrimExpr]


def cross_thread_reduce(func: PrimFunc) -> PrimFunc:
    """Replace each reduction over threads by shuffles and accesses to shared memory."""
    return func.replace(body=_rewrite(func.body, {}))


def _rewrite(node: Stmt, threads: dict[str, tuple[x.Var, int]]) -> Stmt:
    if isinstance(node, s.For) and is_bound(node) and is_thread(node):
        threads = {**threads, node.thread_tag or "": (node.loop_var, x.int_value(node.extent) or 1)}
    if isinstance(node, s.AttrStmt) and node.key == CROSS_THREAD_REDUCE:
        return _Group(node.value, threads).reduced(node.body)
    return map_stmts(node, lambda inner: _rewrite(inner, threads))


class _Group:
    """The threads that combine their partial results, and how."""

    def __init__(self, record: CrossThreadReduce, threads: dict[str, tuple[x.Var, int]]) -> None:
        if not threads:
            raise InternalError("a reduction over threads outside of a block", got=record)
        self.record = record
        used = [tag for tag in THREAD_TAGS if tag in threads and threads[tag][1] > 1]
        self.inner = [threads[tag] for tag in used if tag in record.tags]
        self.outer = [threads[tag] for tag in used if tag not in record.tags]
        self.size = math.prod(extent for _, extent in self.inner)
        self.total = self.size * math.prod(extent for _, extent in self.outer)
        # Whether the threads of a group have consecutive numbers in the block.
        self.is_consecutive = [tag in record.tags for tag in used] == sorted(
            (tag in record.tags for tag in used), reverse=True)
        self.rank = _number(self.inner)
        self.group = _number(self.outer)

    def reduced(self, body: Stmt) -> Stmt:
        """The reduction, then ``body``."""
        if self.size == 1:
            return body
        whole_warps = self.total % WARP == 0 and self.is_consecutive
        if whole_warps and self.size <= WARP and WARP % self.size == 0:
            return seq([self._butterfly(self.size), body])
        if whole_warps and self.size % WARP == 0:
            return self._over_warps(body)
        return self._tree(body)

    def _partial(self) -> Values:
        return [x.BufferLoad(b, _ELEMENT) for b in self.record.partial]

    def _combine(self, a: Values, b: Values) -> Values:
        combiner = self.record.combiner
        values: dict[x.Var, x.PrimExpr] = dict(zip(combiner.lhs, a, strict=True))
        values.update(zip(combiner.rhs, b, strict=True))
        return [substitute(e, values) for e in combiner.result]

    def _assign(self, values: Values) -> Stmt:
        """Set the partial results; every value is computed before the first is stored."""
        return store_together(self.record.partial, values, _ELEMENT)

    def _butterfly(self, lanes: int) -> Stmt:
        """Every thread gets the reduction over its group of ``lanes`` consecutive threads."""
        steps = []
        distance = lanes // 2
        while distance:
            mine = self._partial()
            others = [x.Var("other", v.dtype) for v in mine]
            step = self._assign(self._combine(mine, list(others)))
            for var, value in reversed(list(zip(others, mine, strict=True))):
                step = LetStmt(var, exchanged(value, distance), step)
            steps.append(step)
            distance //= 2
        return seq(steps)

    def _over_warps(self, body: Stmt) -> Stmt:
        warps = self.size // WARP
        slots = 1 << (warps - 1).bit_length()
        memory = [Buffer(f"{b.name}.warps", (x.const(self.total // WARP),), b.dtype, "shared")
                  for b in self.record.partial]
        number = self.group * self.size + self.rank
        lane = x.floormod(self.rank, x.const(WARP))
        store = IfThenElse(x.EQ(lane, x.const(0)),
                           store_together(memory, self._partial(),
                                          (x.floordiv(number, x.const(WARP)),)))
        first = self.group * warps
        slot = x.floormod(self.rank, x.const(slots))
        found: Values = [x.BufferLoad(m, (first + slot,)) for m in memory]
        load = self._assign(found)
        if slots != warps:
            identity = list(self.record.combiner.identity)
            load = s.IfThenElse(slot < x.const(warps), load, self._assign(identity))
        steps = [self._butterfly(WARP), store, load, self._butterfly(slots), body]
        return _allocated(memory, seq(steps))

    def _tree(self, body: Stmt) -> Stmt:
        """Halve the number of partial results in shared memory until one is left."""
        memory = [Buffer(f"{b.name}.threads", (x.const(self.total),), b.dtype, "shared")
                  for b in self.record.partial]
        rank = self.rank
        steps: list[Stmt] = [store_together(memory, self._partial(), (self._slot(rank),))]
        half = 1 << ((self.size - 1).bit_length() - 1)
        while half:
            mine: Values = [x.BufferLoad(m, (self._slot(rank),)) for m in memory]
            other: Values = [x.BufferLoad(m, (self._slot(rank + half),)) for m in memory]
            joined = store_together(memory, self._combine(mine, other), (self._slot(rank),))
            inside = x.all_of(rank < half, rank + half < self.size)
            steps.append(s.AttrStmt(THREADS_APART, True, IfThenElse(inside, joined)))
            half //= 2
        first = [x.BufferLoad(m, (self._slot(x.const(0)),)) for m in memory]
        steps += [self._assign(list(first)), body]
        return _allocated(memory, seq(steps))

    def _slot(self, rank: x.PrimExpr) -> x.PrimExpr:
        """The slot in which the thread of this group with number ``rank`` stores its result.

        The threads of a warp have adjacent slots, so that they access different banks.
        """
        if self.is_consecutive:
            return self.group * self.size + rank
        return rank * (self.total // self.size) + self.group


def _number(axes: list[tuple[x.Var, int]]) -> x.PrimExpr:
    """The row-major number of a thread among the indices of ``axes``, x first."""
    number: x.PrimExpr = x.const(0)
    for var, extent in reversed(axes):
        number = number * extent + var
    return number


def _allocated(buffers: list[Buffer], body: Stmt) -> Stmt:
    for buffer in reversed(buffers):
        body = s.Allocate(buffer, body)
    return body


def exchanged(value: x.PrimExpr, distance: int) -> x.PrimExpr:
    """The value of the thread whose lane differs by the bits of ``distance``."""
    dtype, lane = value.dtype, x.const(distance, int32)
    if dtype is float32:
        return x.Call(float32, "shfl_xor_f32", (value, lane))
    if dtype.bits == 32:
        bits = value if dtype is int32 else x.call(int32, "reinterpret", value)
        return _as(x.Call(int32, "shfl_xor_b32", (bits, lane)), dtype)
    if dtype.bits == 64:
        return _as(_exchanged_halves(value, distance), dtype)
    if dtype.is_float:  # exact in float32
        return x.cast(exchanged(x.cast(value, "float32"), distance), dtype)
    return x.cast(exchanged(x.cast(value, "int32"), distance), dtype)


def _as(bits: x.PrimExpr, dtype: DType) -> x.PrimExpr:
    return bits if bits.dtype is dtype else x.call(dtype, "reinterpret", bits)


def _exchanged_halves(value: x.PrimExpr, distance: int) -> x.PrimExpr:
    """64 bits, exchanged as two words."""
    bits = _as(value, int64)
    low, high = x.cast(bits, "int32"), x.cast(x.call("int64", "shift_right", bits, x.const(32)),
                                              "int32")
    words = [x.cast(exchanged(word, distance), "int64") for word in (low, high)]
    low_bits = x.call("int64", "bitwise_and", words[0], x.const(0xFFFFFFFF))
    high_bits = x.call("int64", "shift_left", words[1], x.const(32))
    return x.call("int64", "bitwise_or", low_bits, high_bits)
