"""``Machine``: what one core of a CPU does per cycle, and each level of its memory hierarchy.

A machine is a value: cost models read it, and it is part of a target's text form. Rates are rounded
to coarse steps, so that noise of a measurement does not change a decision and one text gives the
same code everywhere. Shipped machines have a name (``weft.target.machine_tables``); the text of a
measured one holds its values: ``clock=3.3e9,fma=2/2/2,…,l1=49152/1/128/128/64/4,…``.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from dataclasses import fields

from weft.support.dataclass import dataclass
from weft.support.errors import TargetError

VECTOR_BITS = (128, 256, 512)
LEVELS = ("l1", "l2", "l3", "memory")


@dataclass(frozen=True, slots=True)
class Level:
    """One level of the memory hierarchy, as vector loads and stores of one core see it.

    ``bytes`` is the capacity that ``shared_by`` cores share, 0 for memory. Rates are bytes per
    cycle of one core: for sequential loads while the others idle, and while all run; and for
    sequential stores. ``latency_cycles`` is that of a load whose address depends on the one before.
    ``ways`` is the number of lines in a set, 0 if it is unknown.
    """

    bytes: int
    shared_by: int
    load_bytes_per_cycle: float
    load_bytes_per_cycle_all: float
    store_bytes_per_cycle: float
    latency_cycles: float
    ways: int = 0

    @property
    def bytes_per_core(self) -> int:
        """The share of one core."""
        return self.bytes // max(1, self.shared_by)

    def coarse(self) -> Level:
        """The level with its rates and its latency rounded."""
        rates = (self.load_bytes_per_cycle, self.load_bytes_per_cycle_all,
                 self.store_bytes_per_cycle, self.latency_cycles)
        return Level(self.bytes, self.shared_by, *map(coarse, rates), ways=self.ways)

    def settled(self, measured: Level, known: Level) -> Level:
        """The rounded level; rates of ``known`` where those before rounding agree with them."""
        names = ("load_bytes_per_cycle", "load_bytes_per_cycle_all", "store_bytes_per_cycle",
                 "latency_cycles")
        return dataclasses.replace(self, **{name: _settled(*(
            getattr(level, name) for level in (self, measured, known))) for name in names})

    def __str__(self) -> str:
        values = [getattr(self, field.name) for field in fields(self)]
        return "/".join(map(_text, values if self.ways else values[:-1]))

    @staticmethod
    def parse(text: str) -> Level:
        """Read the text form; ``ValueError`` if it is none."""
        size, shared, load, load_all, store, latency, *ways = text.split("/")
        if len(ways) > 1:
            raise ValueError(text)
        rates = map(_positive, (load, load_all, store, latency))
        return Level(int(size), int(shared), *rates, ways=int(ways[0]) if ways else 0)


@dataclass(frozen=True, slots=True)
class Machine:
    """A core and its memory hierarchy.

    ``frequency`` is in Hz, with all cores running vector code. ``fma_per_cycle`` are the
    multiply-adds per cycle for vectors of 128, 256 and 512 bits, 0 for a width that does not exist;
    ``fma_latency`` is in cycles. ``loads_per_cycle`` and ``stores_per_cycle`` count instructions on
    vectors of the width of which most are issued; the rates of L1 bound those of wider ones.
    ``fork_join_seconds`` is one parallel region of weft's thread pool.
    ``prefetch_distance_bytes`` is how far ahead of its use data in memory should be fetched, 0 if
    the hardware does it well enough. ``l3`` is ``None`` for a CPU without it.

    The last values are 0 where they are unknown. All are for the widest vectors: instructions per
    cycle where half are multiply-adds and half operate on integers; shuffles of two registers;
    cycles of a division of vectors, and of each element that a vector gathers from a place of its
    own. ``reorder_window`` is how many instructions wait for others at a time.
    """

    frequency: float
    fma_per_cycle: tuple[float, float, float]
    fma_latency: float
    loads_per_cycle: float
    stores_per_cycle: float
    fork_join_seconds: float
    prefetch_distance_bytes: int
    page_bytes: int
    huge_page_bytes: int
    l1: Level
    l2: Level
    l3: Level | None
    memory: Level
    vector_ops_per_cycle: float = 0.0
    shuffles_per_cycle: float = 0.0
    divide_cycles: float = 0.0
    gather_cycles: float = 0.0
    reorder_window: float = 0.0

    def fma_rate(self, bits: int) -> float:
        """Multiply-adds per cycle for vectors of ``bits``.

        Vectors wider than those that the CPU has are executed in parts.
        """
        width = max(w for w in VECTOR_BITS if w <= max(bits, VECTOR_BITS[0]))
        while width > VECTOR_BITS[0] and not self.fma_per_cycle[VECTOR_BITS.index(width)]:
            width //= 2
        return self.fma_per_cycle[VECTOR_BITS.index(width)] * width / max(bits, width)

    @property
    def widest_bits(self) -> int:
        """The widest vectors with an FMA."""
        return max(bits for bits, rate in zip(VECTOR_BITS, self.fma_per_cycle, strict=True) if rate)

    @property
    def levels(self) -> Mapping[str, Level]:
        """The levels that exist, nearest first."""
        found = {name: getattr(self, name) for name in LEVELS}
        return {name: level for name, level in found.items() if level is not None}

    def coarse(self) -> Machine:
        """The machine with every measured value rounded; rounding twice changes nothing."""
        return Machine(
            round(self.frequency, -8),
            (_ports(self.fma_per_cycle[0]), _ports(self.fma_per_cycle[1]),
             _ports(self.fma_per_cycle[2])),
            float(round(self.fma_latency)), _ports(self.loads_per_cycle),
            _ports(self.stores_per_cycle), coarse(self.fork_join_seconds * 1e9) / 1e9,
            self.prefetch_distance_bytes, self.page_bytes, self.huge_page_bytes,
            self.l1.coarse(), self.l2.coarse(),
            None if self.l3 is None else self.l3.coarse(), self.memory.coarse(),
            *(coarse(getattr(self, name)) for name in OPTIONAL_NUMBERS))

    def settled(self, known: Machine) -> Machine:
        """The machine with measured values rounded, or those of ``known`` where both agree.

        Two runs that measure a little less and a little more than a border between two steps would
        round to different values, and decide otherwise: what is already known stays, unless a
        measurement contradicts it.
        """
        rounded, old = self.coarse(), known.coarse()
        narrow, middle, wide = (_settled(*each) for each in zip(
            rounded.fma_per_cycle, self.fma_per_cycle, old.fma_per_cycle, strict=True))

        def kept(name: str) -> float:
            return _settled(*(getattr(one, name) for one in (rounded, self, old)))

        l3 = rounded.l3
        if l3 is not None and self.l3 is not None and old.l3 is not None:
            l3 = l3.settled(self.l3, old.l3)
        return dataclasses.replace(
            rounded, frequency=kept("frequency"), fma_per_cycle=(narrow, middle, wide),
            fma_latency=kept("fma_latency"), loads_per_cycle=kept("loads_per_cycle"),
            stores_per_cycle=kept("stores_per_cycle"),
            fork_join_seconds=kept("fork_join_seconds"),
            vector_ops_per_cycle=kept("vector_ops_per_cycle"),
            shuffles_per_cycle=kept("shuffles_per_cycle"), divide_cycles=kept("divide_cycles"),
            gather_cycles=kept("gather_cycles"), l1=rounded.l1.settled(self.l1, old.l1),
            l2=rounded.l2.settled(self.l2, old.l2), l3=l3,
            memory=rounded.memory.settled(self.memory, old.memory))

    def __str__(self) -> str:
        fma = "/".join(map(_text, self.fma_per_cycle))
        values: dict[str, object] = {"clock": _text(self.frequency), "fma": fma}
        values |= {key: _text(getattr(self, name)) for key, name in _NUMBERS.items()}
        values |= {name: level or "none" for name, level in zip(
            LEVELS, (self.l1, self.l2, self.l3, self.memory), strict=True)}
        values |= {key: _text(value) for key, name in _OPTIONAL.items()
                   if (value := getattr(self, name))}
        return ",".join(f"{key}={value}" for key, value in values.items())

    @staticmethod
    @functools.lru_cache(maxsize=64)
    def parse(text: str) -> Machine:
        """Read the text form of a machine with values; ``TargetError`` if it is none."""
        try:
            return _parse(dict(_pair(word) for word in text.split(",")))
        except (ValueError, KeyError) as error:
            raise TargetError(f"not a machine: {text!r}", got=str(error),
                              expected="the name of a shipped machine, or clock=…,fma=…,…",
                              help="weft targets --machines lists the shipped ones") from None


# How far a measurement may be from a known value that it confirms: half a step of rounding, and the
# boost of a clock.
_AGREES = 0.15


def _settled(rounded: float, measured: float, known: float) -> float:
    return known if known and abs(measured / known - 1) <= _AGREES else rounded


# Keys of the text form for the numbers of a machine.
_NUMBERS = {
    "fma-latency": "fma_latency", "loads": "loads_per_cycle", "stores": "stores_per_cycle",
    "fork-join": "fork_join_seconds", "prefetch": "prefetch_distance_bytes", "page": "page_bytes",
    "huge-page": "huge_page_bytes",
}
# Keys of the numbers that a machine may not have.
_OPTIONAL = {
    "vector-ops": "vector_ops_per_cycle", "shuffles": "shuffles_per_cycle",
    "divide": "divide_cycles", "gather": "gather_cycles", "window": "reorder_window",
}
OPTIONAL_NUMBERS = tuple(_OPTIONAL.values())


def coarse(value: float) -> float:
    """``value`` rounded to four steps per power of two: 8, 10, 12, 14, 16, 20, 24, 28, 32, …"""
    if value <= 0:
        return 0.0
    step = 2.0 ** (math.floor(math.log2(value)) - 2)
    return round(value / step) * step


def _ports(rate: float) -> float:
    """Instructions per cycle: whole numbers from 1 on."""
    return float(round(rate)) if rate >= 1 else coarse(rate)


def _text(value: float) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _pair(word: str) -> tuple[str, str]:
    key, equals, value = word.partition("=")
    if not equals:
        raise ValueError(word)
    return key, value


def _parse(values: dict[str, str]) -> Machine:
    known = {"clock", "fma", *_NUMBERS, *LEVELS}
    odd = known.symmetric_difference(values) - set(_OPTIONAL)
    if odd:
        raise ValueError(", ".join(sorted(odd)))
    narrow, middle, wide = (float(word) for word in values["fma"].split("/"))
    number = {name: values[key] for key, name in _NUMBERS.items()}
    return Machine(
        _positive(values["clock"]), (_positive(str(narrow)), middle, wide),
        _positive(number["fma_latency"]), _positive(number["loads_per_cycle"]),
        _positive(number["stores_per_cycle"]), _positive(number["fork_join_seconds"]),
        int(number["prefetch_distance_bytes"]), int(number["page_bytes"]),
        int(number["huge_page_bytes"]), Level.parse(values["l1"]), Level.parse(values["l2"]),
        None if values["l3"] == "none" else Level.parse(values["l3"]),
        Level.parse(values["memory"]),
        *(_positive(values[key]) if key in values else 0.0 for key in _OPTIONAL))


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise ValueError(f"{text} is not positive")
    return value
