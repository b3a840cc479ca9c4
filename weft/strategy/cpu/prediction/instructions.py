"""Counts what a straight-line block executes: instructions by kind, and its dependent chain.

Expressions are interned, so equal ones in a block count once, as after common subexpression
elimination. A buffer in registers costs nothing to access. Its first value in an iteration may be
that of the iteration before; the latencies from there to its last value are the carried chain,
which bounds a loop however many ports it has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from weft.codegen.ir_text.emit.load import SHUFFLED_STRIDES
from weft.strategy.cpu.prediction.affine import Digit, Forms
from weft.support.dataclass import dataclass
from weft.tir import expr as x
from weft.tir import stmt as s
from weft.tir.buffer import Buffer
from weft.tir.expr import PrimExpr, Var, int_value
from weft.tir.intrinsics import INTRINSICS
from weft.tir.visitor import children

LINE = 64  # bytes of a cache line


class UnpredictableError(Exception):
    """A kernel whose loops say too little: a symbolic extent, or a call of foreign code."""


# Instructions of an intrinsic on one vector.
_FMA, _ALU, _DIVIDE, _SHUFFLE = "fma", "alu", "divide", "shuffle"
_INTRINSICS = {"multiply_add": (_FMA, 1), "sqrt": (_DIVIDE, 1), "reinterpret": (_ALU, 0),
               "likely": (_ALU, 0), "times_power_of_two": (_ALU, 2)}
# A maximum or minimum that keeps NaNs: the instruction, a comparison with itself, and a blend.
_MAXIMUM_WITH_NAN = 3
# Bytes of the vectors of AVX-512, whose permutes read tables of two registers.
_TWO_REGISTERS = 64
# Latencies of other instructions, in those of a multiply-add.
_ALU_LATENCY, _MASK_LATENCY, _DIVIDE_LATENCY = 0.75, 1.25, 4.0
_COMPARISONS = (x.EQ, x.NE, x.LT, x.LE, x.GT, x.GE)
_NO_WORK = (x.IntImm, x.FloatImm, x.StringImm, Var, x.Broadcast, x.Ramp)


@dataclass(slots=True)
class Instructions:
    """Instructions on whole vectors by kind; ``load`` and ``store`` as passes through a port.

    ``products`` are the elements that multiply-adds compute. ``chain`` are the latencies, in those
    of a multiply-add, that one iteration adds to the one before, ``depth`` those from the first to
    the last instruction. ``carried`` are the buffers in registers whose values come from the
    iteration before, ``fresh`` those that get values which do not depend on it.
    """

    fma: float = 0.0
    alu: float = 0.0
    divide: float = 0.0
    shuffle: float = 0.0
    load: float = 0.0
    store: float = 0.0
    narrow_load: float = 0.0  # of ``load`` and of ``store``, those of at most half a vector
    narrow_store: float = 0.0
    gathered: float = 0.0  # elements that are loaded one by one
    scattered: float = 0.0
    scalar: float = 0.0
    products: float = 0.0
    chain: float = 0.0
    depth: float = 0.0
    carried: frozenset[Buffer] = frozenset()
    fresh: frozenset[Buffer] = frozenset()

    @property
    def vectors(self) -> float:
        """Those that compute on vectors."""
        return self.fma + self.alu + self.shuffle + self.divide

    @property
    def count(self) -> float:
        """All of them; an element that is gathered or scattered takes two."""
        return (self.vectors + self.load + self.store + 2 * (self.gathered + self.scattered)
                + self.scalar)


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """One load or store of memory: ``run`` bytes in a row, at a multiple of each digit."""

    buffer: Buffer
    run: float
    constant: float
    terms: Sequence[tuple[Digit, float]]  # in bytes
    is_store: bool
    lanes: int = 1


class Counter:
    """Counts the statements of one block."""

    def __init__(self, vector_bytes: int, forms: Forms, loop_var: Var | None = None,
                 stored: frozenset[Buffer] = frozenset()) -> None:
        """``loop_var`` is that of the loop whose body is the block alone: what does not depend on
        it, nor on the buffers that are ``stored``, is computed before the loop.
        """
        self.accesses: list[Access] = []
        self._vector_bytes, self._forms = vector_bytes, forms
        self._work = Instructions()
        self._seen: dict[PrimExpr, tuple[float, float]] = {}
        self._vars: dict[Var, tuple[float, float]] = {}
        # Registers: latencies from the value of the last iteration (-inf: none), and from nothing.
        self._registers: dict[object, tuple[float, float]] = {}
        self._carried: set[object] = set()
        self._carried_buffers: set[Buffer] = set()
        self._fresh: set[Buffer] = set()
        self._loaded: dict[Buffer, list[PrimExpr]] = {}
        self._loop_var, self._stored = loop_var, stored
        self._varies: dict[PrimExpr, bool] = {}
        self._definitions: dict[PrimExpr, PrimExpr] = {}
        self._strided: dict[tuple[Buffer, frozenset[tuple[Digit, float]]], set[float]] = {}

    def visit(self, stmt: s.Stmt) -> None:
        if isinstance(stmt, s.LetStmt):
            if stmt.var.dtype.lanes == 1 and stmt.var.dtype.is_int:
                self._work.scalar += 1
            else:
                self._vars[stmt.var] = self._value(stmt.value)
                self._definitions[stmt.var] = stmt.value
            self._varies[stmt.var] = self._is_varying(stmt.value)
        elif isinstance(stmt, s.BufferStore):
            self._store(stmt)
        elif isinstance(stmt, s.Evaluate):
            if not (isinstance(stmt.value, x.Call) and stmt.value.name.startswith("prefetch")):
                raise UnpredictableError(f"a call of {stmt.value}")
            self._work.load += 1

    def finish(self) -> Instructions:
        ends = [self._registers[key][0] for key in self._carried if key in self._registers]
        self._work.chain = max([0.0, *ends])
        self._work.carried = frozenset(self._carried_buffers)
        self._work.fresh = frozenset(self._fresh)
        return self._work

    def _store(self, stmt: s.BufferStore) -> None:
        value = self._value(stmt.value)
        if stmt.buffer.scope == "local":
            self._forget(stmt.buffer)
            self._registers[_register(stmt.buffer, stmt.indices)] = value
            if value[0] == -math.inf:
                self._fresh.add(stmt.buffer)
            return
        run, parts, lanes = self._access(stmt.buffer, stmt.indices, stmt.predicate, is_store=True)
        if run:
            self._work.store += parts
            if self._is_narrow(stmt.buffer, lanes):
                self._work.narrow_store += parts
        else:
            self._work.scattered += lanes

    def _forget(self, buffer: Buffer) -> None:
        """Loads of a register are different values after a store."""
        for e in self._loaded.pop(buffer, ()):
            self._seen.pop(e, None)

    def _value(self, e: PrimExpr) -> tuple[float, float]:
        """The latencies to a value, from the last iteration and from the start; counts its work."""
        found = self._seen.get(e)
        if found is None:
            hoisted = self._loop_var is not None and not self._is_varying(e)
            found = self._seen[e] = (-math.inf, 0.0) if hoisted else self._computed(e)
        return found

    def _is_varying(self, e: PrimExpr) -> bool:
        """Whether a value may differ between iterations of the loop around the block."""
        found = self._varies.get(e)
        if found is None:
            if isinstance(e, x.Let):
                self._varies[e.var] = self._is_varying(e.value)
            found = e is self._loop_var or (
                isinstance(e, x.BufferLoad) and e.buffer in self._stored
            ) or any(self._is_varying(child) for child in children(e))
            self._varies[e] = found
        return found

    def _computed(self, e: PrimExpr) -> tuple[float, float]:
        if isinstance(e, Var):
            return self._vars.get(e, (-math.inf, 0.0))
        if isinstance(e, x.Let):
            self._vars[e.var] = self._value(e.value)
            return self._value(e.body)
        if isinstance(e, x.BufferLoad):
            return self._load(e)
        if isinstance(e, x.Add) and isinstance(e.b, x.Mul) and not e.dtype.is_int:
            return self._instruction(e, (e.a, e.b.a, e.b.b), _FMA, 1)
        if isinstance(e, x.Add) and isinstance(e.a, x.Mul) and not e.dtype.is_int:
            return self._instruction(e, (e.b, e.a.a, e.a.b), _FMA, 1)
        if isinstance(e, _NO_WORK):
            return self._after(children(e))
        if e.dtype.lanes == 1 and (e.dtype.is_int or isinstance(e, _COMPARISONS)):
            self._work.scalar += 1
            return self._after(children(e))
        if isinstance(e, x.Call):
            if e.name == "table_lookup" and e.dtype.lanes > 1:
                return self._instruction(e, e.args[:1], _SHUFFLE, self._permutes(e))
            if e.name == "call_extern":
                raise UnpredictableError(f"a call of {e.args[0]}")
            other = (_ALU, 1) if e.name in INTRINSICS else (_FMA, 1)  # an instruction of a target
            kind, count = _INTRINSICS.get(e.name, other)
            return self._instruction(e, e.args, kind, count)
        if isinstance(e, x.Shuffle) and self._joins_halves(e):
            self._work.load += len(e.vectors) - 1
            return self._instruction(e, e.vectors, _ALU, 1)
        if isinstance(e, x.Shuffle):
            return self._instruction(e, e.vectors, _SHUFFLE, 1)
        if isinstance(e, (x.Max, x.Min)) and not (e.dtype.is_int or _has_constant(e)):
            return self._instruction(e, (e.a, e.b), _ALU, _MAXIMUM_WITH_NAN)
        return self._instruction(e, children(e), _DIVIDE if isinstance(e, x.Div) else
                                 _FMA if isinstance(e, x.Mul) else _ALU, 1)

    def _instruction(self, e: PrimExpr, operands: Sequence[PrimExpr], kind: str,
                     count: float) -> tuple[float, float]:
        carried, start = self._after(operands)
        setattr(self._work, kind, getattr(self._work, kind) + count * self._parts(e))
        if kind == _FMA and not isinstance(e, x.Mul):
            self._work.products += e.dtype.lanes
        latency = _latency(e, kind, count)
        self._work.depth = max(self._work.depth, start + latency)
        return carried + latency, start + latency

    def _joins_halves(self, e: x.Shuffle) -> bool:
        """Whether each half is that of a vector that is loaded: two loads and a blend."""
        half = e.dtype.lanes // 2
        starts = e.indices[0], e.indices[half]
        picks = [start + i for start in starts for i in range(half)]
        return (list(e.indices) == picks and not any(start % half for start in starts)
                and all(isinstance(self._definitions.get(v), x.BufferLoad) for v in e.vectors))

    def _permutes(self, e: x.Call) -> int:
        """Permutes of one register that look up a table, and the selections between them."""
        lanes = self._vector_bytes // e.dtype.itemsize
        found = math.ceil((len(e.args) - 1) / lanes)
        return max(1, found // 2 if self._vector_bytes == _TWO_REGISTERS else found)

    def _after(self, operands: Sequence[PrimExpr]) -> tuple[float, float]:
        values = [self._value(each) for each in operands]
        return (max((v[0] for v in values), default=-math.inf),
                max((v[1] for v in values), default=0.0))

    def _parts(self, e: PrimExpr) -> int:
        operand = e
        if isinstance(e, _COMPARISONS):
            operand = e.a
        return max(1, math.ceil(operand.dtype.lanes * operand.dtype.bits / 8 / self._vector_bytes))

    def _load(self, e: x.BufferLoad) -> tuple[float, float]:
        if e.buffer.scope == "local":
            self._loaded.setdefault(e.buffer, []).append(e)
            key = _register(e.buffer, e.indices)
            if key not in self._registers:
                self._carried.add(key)
                self._carried_buffers.add(e.buffer)
                self._registers[key] = (0.0, 0.0)
            return self._registers[key]
        run, parts, lanes = self._access(e.buffer, e.indices, e.predicate, is_store=False)
        if run:
            self._work.load += parts
            # A single element is broadcast to a whole vector, which takes as long as loading one.
            if lanes > 1 and self._is_narrow(e.buffer, lanes):
                self._work.narrow_load += parts
        else:
            self._work.gathered += lanes
        return -math.inf, 1.0

    def _is_narrow(self, buffer: Buffer, lanes: int) -> bool:
        return 2 * lanes * buffer.dtype.itemsize <= self._vector_bytes

    def _access(self, buffer: Buffer, indices: Sequence[PrimExpr], predicate: PrimExpr | None, *,
                is_store: bool) -> tuple[float, float, int]:
        """Note an access: its bytes in a row (0: scattered), passes through a port, lanes."""
        index, itemsize = indices[-1], buffer.dtype.itemsize
        lanes, stride = index.dtype.lanes, 1
        if isinstance(index, x.Ramp):
            stride = int_value(index.stride) or 0
        elif lanes > 1:
            self._value(index)
            stride = 0
        form = self._forms.of(index)
        terms = [(digit, k * itemsize) for digit, k in form.terms.items()]
        run = float(lanes * itemsize) if lanes == 1 or stride == 1 else (
            float(itemsize * (1 + abs(stride) * (lanes - 1))) if stride else float(itemsize))
        constant = form.constant * itemsize
        apart = abs(stride) * itemsize
        if lanes > 1 and apart > LINE:  # each in a line of its own
            self.accesses += [Access(buffer, float(itemsize), constant + lane * stride * itemsize,
                                     terms, is_store) for lane in range(lanes)]
        else:
            self.accesses.append(Access(buffer, run, constant, terms, is_store, lanes))
        if predicate is not None and not isinstance(predicate, x.Call):
            self._work.alu += 1
        vectors = math.ceil(lanes * itemsize / self._vector_bytes)
        if lanes == 1 or stride == 1:
            parts = vectors * self._passes(lanes * itemsize, constant, terms)
            return run, parts, lanes
        if stride in SHUFFLED_STRIDES:
            self._work.shuffle += vectors * (stride - 1)
            parts = self._new_vectors(buffer, constant, terms, stride, lanes)
            return run, parts * self._passes(self._vector_bytes, constant, terms), lanes
        return 0.0, 0.0, lanes

    def _new_vectors(self, buffer: Buffer, constant: float, terms: Sequence[tuple[Digit, float]],
                     stride: int, lanes: int) -> float:
        """Vectors that a strided access loads and that no other of the block has loaded."""
        itemsize = buffer.dtype.itemsize
        last = (lanes - 1) * stride - lanes + 1
        starts = {constant + min(number * lanes, last) * itemsize for number in range(stride)}
        key = (buffer, frozenset(terms))
        known = self._strided.setdefault(key, set())
        new = starts - known
        known |= starts
        return len(new) * math.ceil(lanes * itemsize / self._vector_bytes)

    def _passes(self, nbytes: int, constant: float, terms: Sequence[tuple[Digit, float]]) -> float:
        """1 for an access within a cache line; more for one that may straddle two."""
        width = min(nbytes, self._vector_bytes)
        step = math.gcd(int(constant), *(int(k) for _, k in terms), LINE)
        if step % width == 0 or width <= 1:
            return 1.0
        return 1.0 + (width - min(step, width)) / LINE if step else 1.0


def _has_constant(e: x.Max | x.Min) -> bool:
    """Whether one operand is known not to be a NaN, so that one instruction is enough."""
    return any(isinstance(each.value if isinstance(each, x.Broadcast) else each, x.FloatImm)
               for each in (e.a, e.b))


def _latency(e: PrimExpr, kind: str, count: float) -> float:
    """The latency of an instruction, in latencies of a multiply-add."""
    if kind == _FMA:
        return 1.0
    if kind == _DIVIDE:
        return _DIVIDE_LATENCY
    if isinstance(e, (x.Select, *_COMPARISONS)):
        return _MASK_LATENCY
    return _ALU_LATENCY * count


def _register(buffer: Buffer, indices: Sequence[PrimExpr]) -> object:
    return (buffer.uid, *indices)
