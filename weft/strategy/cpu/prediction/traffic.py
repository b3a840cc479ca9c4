"""The bytes that a kernel moves between the levels of the memory hierarchy.

What a part of the loops touches is its footprint. A cache that holds the footprint of a body keeps
its data from one iteration to the next, so that a loop brings each byte once; otherwise every
iteration brings its own. Calls repeat: a cache that holds all data of a kernel is not filled again.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from weft.strategy.cpu.prediction.affine import Digit
from weft.strategy.cpu.prediction.instructions import LINE, Access
from weft.strategy.cpu.prediction.tree import Block, Loop
from weft.support.dataclass import dataclass
from weft.tir.buffer import Buffer

# The mean length of the inner of two loops below which offsets count as one irregular loop.
_LEAST_INNER = 1.5


@dataclass(frozen=True, slots=True)
class Moved:
    """Bytes of a buffer that are loaded and stored, and the longest run that they form."""

    load: float = 0.0
    store: float = 0.0
    run: float = 0.0

    def times(self, count: float) -> Moved:
        return Moved(self.load * count, self.store * count, self.run)

    def plus(self, other: Moved) -> Moved:
        return Moved(self.load + other.load, self.store + other.store, max(self.run, other.run))

    def joined(self, other: Moved) -> Moved:
        """Both, if one holds the bytes of the other."""
        return Moved(max(self.load, other.load), max(self.store, other.store),
                     max(self.run, other.run))

    def minus(self, other: Moved) -> Moved:
        return Moved(self.load - other.load, self.store - other.store, self.run)

    def least(self, other: Moved) -> Moved:
        return Moved(min(self.load, other.load), min(self.store, other.store), self.run)


Charges: TypeAlias = "dict[tuple[Block, Buffer], Moved]"


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Accesses of one buffer that differ in their constants: those are digits of their own."""

    buffer: Buffer
    run: float
    terms: Sequence[tuple[float, Digit]]
    own: Sequence[tuple[float, float]]  # step and extent
    is_store: bool
    start: float = 0.0  # a multiple of what all starts are multiples of, but for steps

    def footprint(self, varying: frozenset[Digit]) -> tuple[float, float]:
        """Bytes of the lines touched while ``varying`` change, and of one run of them."""
        steps = [(step, digit.extent) for step, digit in self.terms if digit in varying]
        run, count, apart = self.run, 1.0, math.gcd(LINE, int(self.start))
        for step, extent in sorted((*steps, *self.own)):
            if extent <= 1 or not step:
                continue
            if step <= run + LINE:
                run += step * (extent - 1)
            else:
                count *= extent
                apart = math.gcd(apart, int(step))
        if count == 1:
            return run, run
        for step, digit in self.terms:
            if digit not in varying:
                apart = math.gcd(apart, int(step))
        return count * _lines(run, apart), run


class Traffic:
    """The footprints and the traffic of a tree of loops."""

    def __init__(self, roots: Sequence[Loop | Block],
                 parents: Mapping[Digit, frozenset[Digit]]) -> None:
        self._roots, self._parents = roots, parents
        self._groups: dict[Block, list[Group]] = {}
        self._blocks: dict[int, list[Block]] = {}
        self._digits: dict[int, frozenset[Digit]] = {}
        self._touched: dict[int, Charges] = {}
        for root in roots:
            self._prepare(root)
        self._whole = self._union(roots)
        self.nbytes = size_of(self._whole)

    def _prepare(self, node: Loop | Block) -> None:
        if isinstance(node, Block):
            self._groups[node] = grouped(node.accesses)
            self._blocks[id(node)], self._digits[id(node)] = [node], frozenset()
            return
        for each in node.body:
            self._prepare(each)
        inside = frozenset({node.digit}).union(*(self._digits[id(each)] for each in node.body))
        parts = frozenset(d for d, of in self._parents.items() if of & inside)
        self._digits[id(node)] = inside | parts
        self._blocks[id(node)] = [b for each in node.body for b in self._blocks[id(each)]]

    def blocks(self, node: Loop | Block) -> list[Block]:
        """The blocks of a node, in order."""
        return self._blocks[id(node)]

    def touched(self, node: Loop | Block) -> Charges:
        """What one execution of a node touches, each byte charged to the first block of it."""
        found = self._touched.get(id(node))
        if found is None:
            varying, found = self._digits[id(node)], {}
            seen: dict[Buffer, Moved] = {}
            for block in self._blocks[id(node)]:
                for buffer, moved in _footprint(self._groups[block], varying).items():
                    before = seen.get(buffer, Moved())
                    after = before.joined(moved)
                    seen[buffer] = after
                    found[block, buffer] = after.minus(before)
            self._touched[id(node)] = found
        return found

    def beyond(self, capacity: float, lost: Callable[[float], float]) -> Charges:
        """What a call moves through a cache of ``capacity`` bytes, by block and buffer.

        ``lost`` says which share of so many bytes the cache no longer holds when the next call
        needs them.
        """
        share = lost(self.nbytes)
        if not share:
            return {}
        moved = self._sequence(self._roots, capacity)
        return {key: _in_runs(one, self._whole[key[1]]).times(share) for key, one in moved.items()}

    def _union(self, nodes: Iterable[Loop | Block]) -> dict[Buffer, Moved]:
        found: dict[Buffer, Moved] = {}
        for node in nodes:
            own: dict[Buffer, Moved] = {}
            for (_, buffer), moved in self.touched(node).items():
                own[buffer] = own.get(buffer, Moved()).plus(moved)
            for buffer, moved in own.items():
                found[buffer] = found.get(buffer, Moved()).joined(moved)
        return found

    def _sequence(self, nodes: Sequence[Loop | Block], capacity: float) -> Charges:
        found: Charges = {}
        if size_of(self._union(nodes)) > capacity:
            for node in nodes:
                found |= self._node(node, capacity)
            return found
        seen: dict[Buffer, Moved] = {}
        for node in nodes:
            for (block, buffer), moved in self.touched(node).items():
                before = seen.get(buffer, Moved())
                seen[buffer] = before.joined(moved)
                found[block, buffer] = seen[buffer].minus(before)
        return found

    def _node(self, node: Loop | Block, capacity: float) -> Charges:
        if isinstance(node, Block):
            return {key: moved.times(node.share) for key, moved in self.touched(node).items()}
        body = self._sequence(node.body, capacity)
        extent, whole = node.digit.extent, self.touched(node)
        keeps = size_of(self._union(node.body)) <= capacity
        found: Charges = {}
        for key, moved in body.items():
            again = moved.times(extent)
            found[key] = (whole[key].least(again) if keeps else again).times(node.share)
        return found


def _footprint(groups: Iterable[Group], varying: frozenset[Digit]) -> dict[Buffer, Moved]:
    found: dict[Buffer, Moved] = {}
    for group in groups:
        nbytes, run = group.footprint(varying)
        moved = Moved(0, nbytes, run) if group.is_store else Moved(nbytes, 0, run)
        found[group.buffer] = found.get(group.buffer, Moved()).plus(moved)
    return {buffer: _capped(buffer, moved) for buffer, moved in found.items()}


def _in_runs(moved: Moved, whole: Moved) -> Moved:
    return Moved(moved.load, moved.store, whole.run)


def grouped(accesses: Iterable[Access]) -> list[Group]:
    """Accesses with equal terms together, their constants as regular steps.

    Those that touch or overlap are one run, as the vectors of a row and of its remainder.
    """
    same: dict[tuple[object, ...], list[Access]] = {}
    for one in accesses:
        key = (one.buffer.uid, one.is_store, frozenset((d, k) for d, k in one.terms))
        same.setdefault(key, []).append(one)
    found = []
    for group in same.values():
        first = group[0]
        terms = [(abs(k), d) for d, k in first.terms]
        starts: dict[float, list[float]] = {}
        for start, run in _runs(group):
            starts.setdefault(run, []).append(start)
        found += [Group(first.buffer, run, terms, steps_of(at), first.is_store, at[0])
                  for run, at in starts.items()]
    return found


def _runs(accesses: Iterable[Access]) -> list[tuple[float, float]]:
    """Start and length of each run of bytes, in order."""
    found: list[tuple[float, float]] = []
    for start, run in sorted({(one.constant, one.run) for one in accesses}):
        begin, length = found[-1] if found else (start, -1.0)
        if start <= begin + length:
            found[-1] = begin, max(length, start + run - begin)
        else:
            found.append((start, run))
    return found


def _lines(run: float, apart: int) -> float:
    """Bytes of the lines that ``run`` bytes touch, on average over starts ``apart`` in a line."""
    whole = math.ceil(run / LINE) * LINE
    inside = (whole - run) // apart + 1  # starts in a line from which no further one is touched
    return whole + LINE * max(0.0, 1 - inside * apart / LINE)


def steps_of(offsets: Sequence[float]) -> list[tuple[float, float]]:
    """Sorted offsets as one or two nested loops: pairs of step and extent."""
    if len(offsets) < 2:
        return []
    gaps = [b - a for a, b in itertools.pairwise(offsets)]
    least = min(gaps)
    starts = [offsets[0], *(b for b, gap in zip(offsets[1:], gaps, strict=True) if gap != least)]
    inner = len(offsets) / len(starts)
    if len(starts) == 1 or inner < _LEAST_INNER:
        return [((offsets[-1] - offsets[0]) / (len(offsets) - 1), len(offsets))]
    outer = (starts[-1] - starts[0]) / (len(starts) - 1)
    return [(least, inner), (outer, len(starts))]


def size_of(moved: Mapping[Buffer, Moved]) -> float:
    """The bytes that a cache needs to hold it; what is loaded and stored counts once."""
    return sum(max(m.load, m.store) for m in moved.values())


def _capped(buffer: Buffer, moved: Moved) -> Moved:
    size = buffer.static_bytes
    if size is None:
        return moved
    return Moved(min(moved.load, size), min(moved.store, size), min(moved.run, size))
