"""Matches a loop nest against the semantics of a tensor instruction, and builds its call.

The store in the nest must have the form of the instruction's store, up to commutativity. Accesses
must be affine in the loop variables, with the strides of the instruction's compact operands: 1
along the contiguous axis, and 0 where an operand is invariant.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import field

from weft.support.dataclass import dataclass
from weft.tir import expr as x
from weft.tir.buffer import Buffer
from weft.tir.expr import Broadcast, BufferLoad, PrimExpr, Ramp, Var, const, int_value
from weft.tir.instruction import Instruction, call_of, lanes_of
from weft.tir.simplify import Analyzer
from weft.tir.stmt import BufferStore
from weft.tir.visitor import children, substitute

Indices = tuple[PrimExpr, ...]
_COMMUTATIVE = (x.Add, x.Mul, x.Min, x.Max)


class NoMatchError(Exception):
    """The reason why a nest does not match; callers report it as an error or annotation."""


def match_instruction(loops: Sequence[tuple[Var, int]], store: BufferStore,
                      instruction: Instruction, analyzer: Analyzer) -> BufferStore:
    """The store of the instruction's call that is equivalent to ``loops`` around ``store``.

    ``loops`` are (variable, extent) from zero, outermost first; ``analyzer`` knows their ranges.
    Raises ``NoMatchError`` with the reason.
    """
    if store.predicate is not None:
        raise NoMatchError("its store is masked")
    inner = [(var, extent) for var, extent in loops if extent != 1]
    reason: NoMatchError | None = None
    for order in itertools.permutations(inner):
        if [n for _, n in order] != [n for _, n in instruction.loops]:
            continue
        try:
            return _Matcher(instruction, [var for var, _ in order], analyzer).replace(store)
        except NoMatchError as error:
            reason = error
    if reason is not None:
        raise reason
    raise NoMatchError(f"its loops run {_times(inner)}, those of the instruction "
                       f"{_times(instruction.loops)}")


def _times(loops: Sequence[tuple[Var, int]]) -> str:
    return " x ".join(str(extent) for _, extent in loops) or "once"


@dataclass(slots=True)
class _Matcher:
    """``variables`` are those of the nest, in the order of the instruction's loops.

    ``bound`` maps buffers of the instruction to the accesses of the nest.
    """

    instruction: Instruction
    variables: Sequence[Var]
    analyzer: Analyzer
    bound: dict[Buffer, BufferLoad] = field(default_factory=dict)

    def replace(self, store: BufferStore) -> BufferStore:
        pattern = self.instruction.store
        written = BufferLoad(store.buffer, store.indices)
        self._access(BufferLoad(pattern.buffer, pattern.indices), written)
        self._expr(pattern.value, store.value)
        for buffer in self.instruction.operands:
            if self.bound[buffer].buffer is store.buffer:
                raise NoMatchError(f"it reads {store.buffer.name}, which it writes, as operand "
                                   f"{buffer.name}")
        operands = [self._vector(b, self.bound[b]) for b in self.instruction.buffers]
        indices = self._lanes(self.instruction.result, written)
        return store.replace(value=call_of(self.instruction, operands), indices=indices)

    # structure

    def _expr(self, pattern: PrimExpr, e: PrimExpr) -> None:
        if type(pattern) is BufferLoad:
            self._access(pattern, e)
            return
        same = type(pattern) is type(e) and pattern.dtype is e.dtype
        if not same or (type(pattern) is x.Call and pattern.name != e.name):  # type: ignore[attr-defined]
            raise NoMatchError(f"it computes {e} where the instruction computes {pattern}")
        operands = children(pattern)
        if not operands and pattern is not e:
            raise NoMatchError(f"it has {e} where the instruction has {pattern}")
        before = dict(self.bound)
        try:
            self._all(operands, children(e))
        except NoMatchError as reason:
            self.bound = before
            if type(pattern) not in _COMMUTATIVE or not self._matches(operands, children(e)[::-1]):
                raise reason from None

    def _matches(self, patterns: Sequence[PrimExpr], exprs: Sequence[PrimExpr]) -> bool:
        try:
            self._all(patterns, exprs)
        except NoMatchError:
            return False
        return True

    def _all(self, patterns: Sequence[PrimExpr], exprs: Sequence[PrimExpr]) -> None:
        for pattern, e in zip(patterns, exprs, strict=True):
            self._expr(pattern, e)

    # accesses

    def _access(self, pattern: BufferLoad, e: PrimExpr) -> None:
        if not isinstance(e, BufferLoad) or e.predicate is not None:
            raise NoMatchError(f"it has {e} where the instruction reads {pattern.buffer.name}")
        if e.buffer.dtype is not pattern.buffer.dtype:
            raise NoMatchError(f"{e.buffer.name} is {e.buffer.dtype}, operand "
                               f"{pattern.buffer.name} is {pattern.buffer.dtype}")
        if self.bound.setdefault(pattern.buffer, e) is not e:
            raise NoMatchError(f"{e} and {self.bound[pattern.buffer]} are both operand "
                               f"{pattern.buffer.name}")
        wanted = self._strides(pattern, [var for var, _ in self.instruction.loops])
        found = self._strides(e, self.variables)
        if wanted != found:
            raise NoMatchError(
                f"{e} moves by {_named(found, self.variables)} elements a step, operand "
                f"{pattern.buffer.name} by {_named(wanted, self.variables)}")

    def _strides(self, load: BufferLoad, variables: Sequence[Var]) -> list[int | None]:
        """The stride in elements along each variable; ``None`` where it is not constant."""
        total: dict[Var, PrimExpr] = {var: const(0) for var in variables}
        step: PrimExpr = const(1)
        for index, size in reversed(list(zip(load.indices, load.buffer.shape, strict=True))):
            for var, coefficient in self._affine(index, variables)[1].items():
                total[var] = total[var] + coefficient * step
            step = step * size
        return [int_value(self.analyzer.simplify(total[var])) for var in variables]

    def _affine(self, e: PrimExpr, variables: Sequence[Var]) -> tuple[PrimExpr, Mapping[Var, int]]:
        """``e`` as a base plus a coefficient per variable; ``NoMatchError`` if it is not affine."""
        simplify = self.analyzer.simplify
        base = simplify(substitute(e, {var: const(0) for var in variables}))
        rest, coefficients = base, dict[Var, int]()
        for var in variables:
            first = {v: const(int(v is var)) for v in variables}
            coefficient = int_value(simplify(substitute(e, first) - base))
            if coefficient is None:
                raise NoMatchError(f"the index {e} is not affine in {var.name}")
            coefficients[var] = coefficient
            rest = rest + var * coefficient
        if int_value(simplify(e - rest)) != 0:
            raise NoMatchError(f"the index {e} is not affine")
        return base, coefficients

    # replacement

    def _vector(self, buffer: Buffer, load: BufferLoad) -> PrimExpr:
        return BufferLoad(load.buffer, self._lanes(buffer, load))

    def _lanes(self, buffer: Buffer, load: BufferLoad) -> Indices:
        """Vector indices of all elements of operand ``buffer``, of which ``load`` accesses one."""
        lanes = lanes_of(buffer)
        if lanes == 1:
            return tuple(self._affine(i, self.variables)[0] for i in load.indices)
        at_lane = self._variables_of_lanes(buffer)
        return tuple(self._lanes_of_index(i, at_lane, lanes) for i in load.indices)

    def _variables_of_lanes(self, buffer: Buffer) -> dict[Var, tuple[int, int]]:
        """The (stride, extent) with which each variable contributes to the lane number."""
        pattern = self._pattern_access(buffer)
        ours = [var for var, _ in self.instruction.loops]
        strides = self._strides(pattern, ours)
        extents = [extent for _, extent in self.instruction.loops]
        return {var: (stride, extent)
                for var, stride, extent in zip(self.variables, strides, extents, strict=True)
                if stride}

    def _pattern_access(self, buffer: Buffer) -> BufferLoad:
        store = self.instruction.store
        if buffer is store.buffer:
            return BufferLoad(store.buffer, store.indices)
        stack = [store.value]
        while stack:
            e = stack.pop()
            if isinstance(e, BufferLoad) and e.buffer is buffer:
                return e
            stack.extend(children(e))
        raise NoMatchError(f"the instruction does not read its operand {buffer.name}")

    def _lanes_of_index(
        self, index: PrimExpr, at_lane: Mapping[Var, tuple[int, int]], lanes: int
    ) -> PrimExpr:
        base, coefficients = self._affine(index, self.variables)
        moving = {v: c for v, c in coefficients.items() if c and v in at_lane}
        if not moving:
            return base
        if len(moving) == len(at_lane) and all(at_lane[v][0] == c for v, c in moving.items()):
            return Ramp(base, const(1), lanes)
        total: PrimExpr = Broadcast(base, lanes)
        for var, coefficient in moving.items():
            stride, extent = at_lane[var]
            lane: PrimExpr = Ramp(const(0), const(1), lanes)
            if stride != 1:
                lane = x.FloorDiv(lane, Broadcast(const(stride), lanes))
            if stride * extent != lanes:
                lane = x.FloorMod(lane, Broadcast(const(extent), lanes))
            total = total + lane * Broadcast(const(coefficient), lanes)
        return total


def _named(strides: Sequence[int | None], variables: Sequence[Var]) -> str:
    steps = zip(strides, variables, strict=True)
    return ", ".join(f"{'?' if n is None else n} along {v.name}" for n, v in steps)
