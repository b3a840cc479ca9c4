"""Loop programs over matrices of float64, written statement by statement.

Work matrices hold the columns of a matrix as contiguous rows, padded to whole vectors, so that
searches, norms and updates along a column are vector code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from weft.ir.dtype import DType, float64, int64
from weft.tir import (
    Buffer,
    PrimExpr,
    Ramp,
    Shuffle,
    Var,
    all_of,
    as_prim,
    const,
    int_value,
    maximum,
    minimum,
)
from weft.tir.expr import Broadcast, BufferLoad, ExprLike
from weft.tir.stmt import Allocate, BufferStore, For, ForKind, IfThenElse, LetStmt, Stmt, seq
from weft.topi.loop_nest import is_large
from weft.topi.shuffles import exchange_quadrants

LANES = 8  # of float64, a register of 64 bytes; narrower CPUs take several for one
# Operations on a matrix of which threads share each step; steps are short.
_LARGE = 8_000_000
Wrap = Callable[[Stmt], Stmt]
Combine = Callable[[PrimExpr, PrimExpr], PrimExpr]


class Program:
    """A sequence of statements; names and memory exist until the end of their block."""

    def __init__(self) -> None:
        self._blocks: list[list[Stmt | Wrap]] = [[]]
        self._tiles = ForKind.SERIAL

    def statement(self) -> Stmt:
        """The whole program."""
        return self._close(self._blocks[0])

    def add(self, stmt: Stmt) -> None:
        self._blocks[-1].append(stmt)

    def store(self, buffer: Buffer, value: ExprLike, *indices: ExprLike,
              where: PrimExpr | None = None) -> None:
        self.add(BufferStore(buffer, as_prim(value, buffer.dtype),
                             tuple(as_prim(i) for i in indices), where))

    def let(self, value: PrimExpr, name: str = "x") -> Var:
        """The value that an expression has here."""
        var = Var(name, value.dtype)
        self._blocks[-1].append(lambda body: LetStmt(var, value, body))
        return var

    def memory(self, name: str, *shape: ExprLike, dtype: DType = float64,
               scope: str = "global") -> Buffer:
        found = Buffer(name, tuple(as_prim(s) for s in shape), dtype, scope)
        self._blocks[-1].append(lambda body: Allocate(found, body))
        return found

    def cell(self, name: str, start: ExprLike, dtype: DType = float64) -> Buffer:
        """A variable: a register of one element, which has a value from the start."""
        found = self.memory(name, 1, dtype=dtype, scope="local")
        self.store(found, start, 0)
        return found

    @contextmanager
    def loop(self, stop: ExprLike, start: ExprLike = 0, *, step: int = 1, name: str = "i",
             kind: ForKind = ForKind.SERIAL) -> Iterator[Var]:
        """The variable takes ``start``, ``start + step``, … below ``stop``."""
        begin, count = as_prim(start), as_prim(stop) - start
        if step == 1:
            var = at = Var(name, int64)
        else:
            at, begin, count = Var(f"{name}.step", int64), as_prim(0), (count + (step - 1)) // step
            var = Var(name, int64)
        with self._block() as block:
            yield var
        body = self._close(block)
        if var is not at:
            body = LetStmt(var, as_prim(start) + at * step, body)
        self.add(For(at, begin, count, kind, body))

    def share(self, batch: PrimExpr, work: int) -> ForKind:
        """How a loop over matrices runs; threads share the tiles of a single large one."""
        if int_value(batch) == 1:
            self._tiles = ForKind.PARALLEL if work >= _LARGE else ForKind.SERIAL
            return ForKind.SERIAL
        return ForKind.PARALLEL if is_large((batch,), work) else ForKind.SERIAL

    def tiles(self, stop: PrimExpr, start: PrimExpr, step: int) -> AbstractContextManager[Var]:
        """A loop over columns that do not depend on each other."""
        return self.loop(stop, start, step=step, name="j", kind=self._tiles)

    @contextmanager
    def when(self, condition: PrimExpr) -> Iterator[None]:
        with self._block() as block:
            yield
        self.add(IfThenElse(condition, self._close(block)))

    @contextmanager
    def otherwise(self) -> Iterator[None]:
        """The other case of the ``when`` before it."""
        with self._block() as block:
            yield
        branch = self._blocks[-1].pop()
        assert isinstance(branch, IfThenElse)
        self.add(branch.replace(else_case=self._close(block)))

    @contextmanager
    def _block(self) -> Iterator[list[Stmt | Wrap]]:
        block: list[Stmt | Wrap] = []
        self._blocks.append(block)
        yield block
        self._blocks.pop()

    @staticmethod
    def _close(block: Sequence[Stmt | Wrap]) -> Stmt:
        body: list[Stmt] = []
        for item in reversed(block):
            if isinstance(item, Stmt):
                body.insert(0, item)
            else:
                body = [item(seq(body))]
        return seq(body)


def over_batch(program: Program, batch: PrimExpr, work: int) -> AbstractContextManager[Var]:
    """A loop over matrices, which threads share if each takes ``work`` operations."""
    return program.loop(batch, name="matrix", kind=program.share(batch, work))


def padded(size: PrimExpr) -> PrimExpr:
    """``size`` up to whole vectors; at least one."""
    return maximum((size + (LANES - 1)) // LANES, 1) * LANES


def stride(size: PrimExpr) -> PrimExpr:
    """The length of a row of at least ``size`` numbers: an odd number of cache lines.

    Columns of the array are spread over the sets of the caches.
    """
    return ((size + LANES) // (2 * LANES) * 2 + 1) * LANES


def lanes(start: ExprLike, count: int = LANES) -> PrimExpr:
    """The positions ``start``, ``start + 1``, …"""
    return Ramp(as_prim(start), const(1), count)


def spread(value: ExprLike, count: int = LANES) -> PrimExpr:
    """``value`` in all lanes; Python's floats are float64."""
    own = const(value, float64) if isinstance(value, float) else as_prim(value)
    return Broadcast(own, count)


def lane(vector: PrimExpr, number: int) -> PrimExpr:
    """One lane of a vector in all lanes."""
    return Shuffle((vector,), (number,) * vector.dtype.lanes)


class Running:
    """A vector in a register whose lanes each hold a result so far."""

    def __init__(self, program: Program, name: str, start: ExprLike, dtype: DType = float64
                 ) -> None:
        self._program = program
        self._register = program.memory(name, LANES, dtype=dtype, scope="local")
        self.put(spread(start))

    def get(self) -> PrimExpr:
        return self._register.load(lanes(0))

    def put(self, value: PrimExpr) -> None:
        self._program.store(self._register, value, lanes(0))

    def reduced(self, combine: Combine) -> PrimExpr:
        """The results of all lanes, combined."""
        return reduce_lanes(self._program, self._program.let(self.get()), combine)


def reduce_lanes(program: Program, vector: PrimExpr, combine: Combine) -> PrimExpr:
    """Halves are combined until one lane is left."""
    width = vector.dtype.lanes
    while width > 1:
        width //= 2
        low, high = (Shuffle((vector,), tuple(range(first, first + width)))
                     for first in (0, width))
        vector = program.let(combine(low, high), "lanes")
    return vector


def load_part(source: Buffer, index: Sequence[PrimExpr], at: PrimExpr, size: PrimExpr,
              also: PrimExpr | None = None, *, whole: int = LANES) -> PrimExpr:
    """Elements ``at``, … of a row of ``size`` as float64; 0 behind its end.

    No vector crosses the end of a row whose size is a multiple of ``whole``.
    """
    where = None if also is None and is_multiple(size, whole) else inside(at, size, also)
    return BufferLoad(source, (*index, lanes(at)), where).astype(float64.vector(LANES))


def store_part(program: Program, target: Buffer, value: PrimExpr, index: Sequence[PrimExpr],
               at: PrimExpr, size: PrimExpr, *, whole: int = LANES) -> None:
    where = None if is_multiple(size, whole) else inside(at, size, None)
    program.store(target, value.astype(target.dtype.vector(LANES)), *index, lanes(at), where=where)


def is_multiple(size: PrimExpr, whole: int = LANES) -> bool:
    known = int_value(size)
    return known is not None and known % whole == 0


def inside(at: PrimExpr, size: PrimExpr, also: PrimExpr | None) -> PrimExpr:
    mask = lanes(at) < spread(size)
    return mask if also is None else all_of(mask, spread(also))


def transposed(program: Program, rows: Sequence[PrimExpr]) -> list[PrimExpr]:
    """The columns of a square of vectors: quadrants are exchanged at each scale."""
    size, current = len(rows), list(rows)
    distance = size // 2
    while distance:
        for i in (i for i in range(size) if not i & distance):
            pair = _quadrants(program, current[i], current[i + distance], distance)
            current[i], current[i + distance] = pair
        distance //= 2
    return current


def sum_rows(program: Program, rows: Sequence[PrimExpr]) -> PrimExpr:
    """The sum of the lanes of each of eight vectors, in a lane of its own."""
    current, distance = list(rows), len(rows) // 2
    while distance:
        pairs = [_quadrants(program, current[i], current[i + distance], distance)
                 for i in range(distance)]
        current = [program.let(low + high, "sum") for low, high in pairs]
        distance //= 2
    return current[0]


def _quadrants(program: Program, one: PrimExpr, other: PrimExpr, distance: int
               ) -> tuple[PrimExpr, PrimExpr]:
    low, high = exchange_quadrants(one, other, distance)
    return program.let(low, "low"), program.let(high, "high")


def read_columns(program: Program, source: Buffer, matrix: PrimExpr, target: Buffer) -> None:
    """Row ``j`` of ``target`` becomes column ``j`` of the matrix, 0 behind its end."""
    with program.loop(source.shape[2], step=LANES, name="j") as j:
        read_block(program, source, matrix, j, lambda c, i, column: program.store(
            target, column, j + c, lanes(i)))


def read_block(program: Program, source: Buffer, matrix: PrimExpr, j: PrimExpr,
               put: Callable[[int, PrimExpr, PrimExpr], None]) -> None:
    """``put(c, i, vector)`` for elements ``i``, … of the columns ``j + c``, 0 behind the end."""
    _, rows, columns = source.shape
    with program.loop(rows, step=LANES, name="i") as i:
        loaded = [program.let(load_part(
            source, (matrix, _last(i + r, rows)), j, columns, _exists(i, r, rows)), "row")
            for r in range(LANES)]
        for c, column in enumerate(transposed(program, loaded)):
            put(c, i, column)


def write_columns(program: Program, source: Buffer, target: Buffer, matrix: PrimExpr) -> None:
    """The inverse of ``read_columns``."""
    _, rows, columns = target.shape
    with program.loop(columns, step=LANES, name="j") as j, \
            program.loop(rows, step=LANES, name="i") as i:
        loaded = [program.let(source.load(j + c, lanes(i)), "column") for c in range(LANES)]
        for r, row in enumerate(transposed(program, loaded)):
            exists = _exists(i, r, rows)
            if exists is None:
                store_part(program, target, row, (matrix, i + r), j, columns)
            else:
                with program.when(exists):
                    store_part(program, target, row, (matrix, i + r), j, columns)


def _exists(start: PrimExpr, ahead: int, size: PrimExpr) -> PrimExpr | None:
    """Whether there is an element ``start + ahead``; ``None`` if it is certain."""
    return None if is_multiple(size) else start + ahead < size


def _last(position: PrimExpr, size: PrimExpr) -> PrimExpr:
    """The position, or the last one if there are fewer."""
    return position if is_multiple(size) else minimum(position, size - 1)
