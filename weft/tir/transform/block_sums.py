"""Cuts long sums into blocks, and adds up the sums of the blocks.

The rounding error of a sum grows with the number of terms that are added to one accumulator. A sum
of ``n`` terms in blocks of ``b`` has about the error of ``b + n / b`` terms; with blocks of blocks,
that of ``3 b`` (Blanchard, Higham and Mary, "A Class of Fast and Accurate Summation Algorithms",
2020). The terms of a block are added to fresh registers that start at zero. The sum over all blocks
is loaded and stored once per block, so it needs no register in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from weft.support.dataclass import dataclass
from weft.tir import stmt as s
from weft.tir import visitor
from weft.tir.buffer import Buffer
from weft.tir.expr import Add, Broadcast, BufferLoad, PrimExpr, Ramp, Var, const, int_value, minimum
from weft.tir.func import PrimFunc
from weft.tir.stmt import ForKind, Stmt
from weft.tir.transform.rewriter import RewriterWithAnalyzer

# Each accumulator costs an addition, a load and a store per block. For a few accumulators the loads
# of the terms hide that cost; for a register tile of a GEMM or a convolution they do not. A smaller
# tile at the edge has the blocks of the whole tiles: the order of additions, and so the bits of a
# result, does not depend on where it lies.
FEW_ACCUMULATORS = 8
SHORT_BLOCK, LONG_BLOCK = 16, 64


@dataclass(frozen=True, slots=True)
class _Sums:
    """The accumulators of a loop: elements that iterations may add to and use for nothing else."""

    loads: Mapping[BufferLoad, None]

    @staticmethod
    def of(loop: s.For) -> _Sums | None:
        """The accumulators of ``loop``; ``None`` if it uses outside memory in another way."""
        inside, bound = set[Buffer](), {loop.loop_var}
        loads, addends = dict[BufferLoad, None](), list[PrimExpr]()
        for node in _top_down(loop.body):
            if isinstance(node, s.For | s.LetStmt):
                bound.add(node.loop_var if isinstance(node, s.For) else node.var)
            if isinstance(node, s.Allocate):
                inside.add(node.buffer)
            elif not isinstance(node, s.BufferStore) or node.buffer in inside:
                addends.extend(visitor.exprs_of(node))
            elif (parts := _parts(node)) is None:
                return None
            else:
                loads[parts[0]] = None
                addends.extend((*node.indices, parts[1]))
        sums = _Sums(loads)
        return sums if loads and sums.stay(bound) and not sums.are_in(addends) else None

    def stay(self, bound: set[Var]) -> bool:
        """Whether all iterations add to the same elements: no index depends on ``bound``."""
        indices = (index for load in self.loads for index in load.indices)
        return bound.isdisjoint(visitor.nodes_of(indices))

    def are_in(self, expressions: Iterable[PrimExpr]) -> bool:
        """Whether one of ``expressions`` loads an accumulator, or another element beside it."""
        buffers = {load.buffer for load in self.loads}
        return any(type(e) is BufferLoad and e.buffer in buffers
                   for e in visitor.nodes_of(expressions))

    def blocked(self, loop: s.For, factor: int) -> s.For:
        """``loop`` in blocks of ``factor`` iterations, whose accumulators start at zero."""
        fresh = {load: _registers(load) for load in self.loads}
        outer, inner = Var(f"{loop.loop_var.name}.block"), Var(loop.loop_var.name)
        body = visitor.substitute(_adding_to(loop.body, fresh),
                                  {loop.loop_var: loop.min + outer * factor + inner})
        size = int_value(loop.extent)
        is_whole = size is not None and size % factor == 0
        steps = const(factor) if is_whole else minimum(
            const(factor), loop.extent - outer * factor)
        whole = s.seq([
            *(s.BufferStore(load.buffer, _zero(load), load.indices) for load in fresh.values()),
            loop.replace(loop_var=inner, min=const(0), extent=steps, body=body),
            *(s.BufferStore(load.buffer, load + block, load.indices)
              for load, block in fresh.items())])
        for block in fresh.values():
            whole = s.Allocate(block.buffer, whole)
        blocks = (loop.extent + (factor - 1)) // factor
        return s.For(outer, const(0), blocks, ForKind.SERIAL, whole)


def _axis(loop: s.For) -> tuple[str, PrimExpr]:
    """What loops over one axis of a reduction have in common, in the tiles of a kernel."""
    return loop.loop_var.name, loop.extent


def _widest_tiles(body: Stmt) -> dict[tuple[str, PrimExpr], int]:
    """The most accumulators of a loop, for each axis that several loops reduce over."""
    loops: dict[tuple[str, PrimExpr], list[s.For]] = {}
    for node in _top_down(body):
        if isinstance(node, s.For) and node.kind is ForKind.SERIAL:
            loops.setdefault(_axis(node), []).append(node)
    return {axis: max(len(sums.loads) for sums in found)
            for axis, group in loops.items() if len(group) > 1
            if (found := [sums for loop in group if (sums := _Sums.of(loop)) is not None])}


def _top_down(stmt: Stmt) -> Iterator[Stmt]:
    """All statements of ``stmt``, each before those inside it."""
    pending = [stmt]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(reversed(visitor.stmts_of(node)))


def _parts(store: s.BufferStore) -> tuple[BufferLoad, PrimExpr] | None:
    """The accumulator and the addend of ``R[i] = R[i] + addend``, for floats."""
    value, buffer = store.value, store.buffer
    if not buffer.dtype.is_float or store.predicate is not None or not isinstance(value, Add):
        return None
    load = BufferLoad(buffer, store.indices)
    if value.a is load:
        return load, value.b
    return (load, value.a) if value.b is load else None


def _registers(load: BufferLoad) -> BufferLoad:
    """New registers, one for each element of ``load``."""
    lanes = load.dtype.lanes
    buffer = Buffer(f"{load.buffer.name}.block", (const(lanes),), load.buffer.dtype, "local")
    return BufferLoad(buffer, (Ramp(const(0), const(1), lanes) if lanes > 1 else const(0),))


def _zero(load: BufferLoad) -> PrimExpr:
    zero = const(0, load.buffer.dtype)
    return Broadcast(zero, load.dtype.lanes) if load.dtype.lanes > 1 else zero


def _adding_to(stmt: Stmt, fresh: Mapping[BufferLoad, BufferLoad]) -> Stmt:
    """``stmt`` with the accumulators ``fresh`` in place of the original ones."""
    if not isinstance(stmt, s.BufferStore):
        return visitor.map_stmts(stmt, lambda inner: _adding_to(inner, fresh))
    parts = _parts(stmt)
    block = None if parts is None else fresh.get(parts[0])
    if parts is None or block is None:
        return stmt
    return s.BufferStore(block.buffer, block + parts[1], block.indices)


class _Blocker(RewriterWithAnalyzer):
    """Cuts inner loops first: an outer loop then adds the sums of the blocks of its inner loops."""

    def __init__(self, func: PrimFunc) -> None:
        super().__init__(func)
        self._widest = _widest_tiles(func.body)

    def loop(self, node: s.For) -> Stmt:
        done = super().loop(node)
        if not isinstance(done, s.For) or done.kind is not ForKind.SERIAL:
            return done
        sums = _Sums.of(done)
        if sums is None:
            return done
        accumulators = max(len(sums.loads), self._widest.get(_axis(node), 0))
        return self._cut(done, sums,
                         SHORT_BLOCK if accumulators <= FEW_ACCUMULATORS else LONG_BLOCK)

    def _cut(self, loop: s.For, sums: _Sums, block: int) -> s.For:
        """``loop`` in blocks of so many terms, the loop over blocks in blocks again, and so on."""
        each = self._terms(loop.body, sums, block)
        limit = max(1, block // max(1, each))
        count = self._bound(loop.extent)
        if count is not None and count <= limit:
            return loop
        # Where only a bound is known, the block size does not depend on it: sums over a cache have
        # the same bits for every capacity.
        size = int_value(loop.extent)
        cut = sums.blocked(loop, limit if size is None else _factor(size, limit))
        if count is None or self._bound(cut.extent) == count:
            return cut
        return self._cut(cut, sums, block)

    def _terms(self, stmt: Stmt, sums: _Sums, block: int) -> int:
        """The most terms that ``stmt`` adds to one accumulator; a block of them if unknown."""
        if isinstance(stmt, s.BufferStore):
            return int(any(load.buffer is stmt.buffer for load in sums.loads))
        if isinstance(stmt, s.For):
            count = self._bound(stmt.extent)
            return (block if count is None else count) * self._terms(stmt.body, sums, block)
        return max((self._terms(inner, sums, block) for inner in visitor.stmts_of(stmt)), default=0)

    def _bound(self, extent: PrimExpr) -> int | None:
        return self.analyzer.int_bounds(extent)[1]


def _factor(count: int, limit: int) -> int:
    """Iterations per block, at most ``limit``: a divisor of ``count`` near it, or equal blocks."""
    whole = next((f for f in range(limit, limit // 2, -1) if count % f == 0), None)
    return whole or -(-count // -(-count // limit))


def block_sums(func: PrimFunc) -> PrimFunc:
    """Bound the number of terms that are added to one accumulator.

    T = allocate(float32[1] local)
    T[0] = 0.0
    for k in range(64):
        T[0] = T[0] + A[k]
    B[0] = T[0]
    =>
    T = allocate(float32[1] local)
    T[0] = 0.0
    for k.block in range(4):
        T.block = allocate(float32[1] local)
        T.block[0] = 0.0
        for k in range(16):
            T.block[0] = T.block[0] + A[k.block * 16 + k]
        T[0] = T[0] + T.block[0]
    B[0] = T[0]
    """
    is_sum = any(isinstance(node, s.BufferStore) and _parts(node) is not None
                 for node in _top_down(func.body))
    return visitor.map_body(func, _Blocker(func).visit) if is_sum else func
