"""``calibrate``: the machine of this process, measured in about a second.

What cannot be measured (who shares a cache, pages) is read from the system. Measurements that
contradict each other are corrected: a level is no faster than the one before it, and no slower for
one core than for many.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from weft.codegen.calibration.meter import Meter
from weft.runtime.devices.cpu.host import usable_cpus
from weft.support.dataclass import dataclass
from weft.support.errors import TargetError
from weft.target import CpuTarget
from weft.target.host_machine import host_topology
from weft.target.machine import VECTOR_BITS, Level, Machine
from weft.target.machine_tables import machine_of
from weft.target.topology import Topology

MEASURED, SYSTEM, DERIVED, TABLE = "measured", "system", "derived", "table"
# Prefetching must gain so much over the hardware's, and a shorter distance is preferred to one that
# is better by less.
_PREFETCH_GAIN, _PREFETCH_TIE = 1.05, 1.02
_DISTANCES = (0, 256, 512, 1024, 2048, 4096, 8192)
_MAX_BUFFER, _MIN_BUFFER = 256 << 20, 32 << 20
_TRIES = 6
# A new pass starts while fewer seconds than this have passed; a pass takes at most two.
_PASSES, _SECONDS = 3, 0.8
NOISY = 0.2  # rounds of an idle machine differ by less
_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size")
_MOST_THREADS = 16  # more threads give the same rate, and take longer to start


@dataclass(frozen=True, slots=True)
class Calibration:
    """A measured machine, and where each of its values comes from, by ``"l1.latency"``.

    ``measured`` has the values before rounding and ``machine`` after it; ``threads`` ran together.
    ``noise`` is how much longer half of the rounds took than the best of them, which counts.
    """

    measured: Machine
    machine: Machine
    sources: Mapping[str, str]
    threads: int
    seconds: float
    noise: float = 0.0

    @property
    def is_noisy(self) -> bool:
        """Whether other programs ran beside it; the best rounds may then be too slow."""
        return self.noise > NOISY


def calibrate(target: CpuTarget | None = None) -> Calibration:
    """Measure this machine for code of ``target``, the host by default.

    The time is bounded, however busy the machine is. Values that confirm what the target says about
    the machine, which an earlier run may have measured, leave it as it is.

    Raises ``TargetError`` for a target whose code this machine cannot run.
    """
    cpu = CpuTarget.host() if target is None else target
    if cpu.arch != CpuTarget.host().arch:
        raise TargetError("calibration runs code of the target", got=cpu.arch,
                          expected=CpuTarget.host().arch)
    start, threads = time.perf_counter(), min(usable_cpus(), _MOST_THREADS)
    known, topology = machine_of(cpu.machine), host_topology()
    largest = max(cpu.l2_bytes, cpu.l3_bytes)
    meter = Meter(cpu, min(_MAX_BUFFER, max(_MIN_BUFFER, 4 * largest)))
    # What other programs disturbed in one pass is undisturbed in another.
    passes, fork_joins = [], []
    while len(passes) < _PASSES and (not passes or time.perf_counter() - start < _SECONDS):
        passes.append((_core(meter), _levels(meter, cpu, topology, known, threads)))
        fork_joins.append(meter.fork_join_seconds(threads) if threads > 1 else None)
    levels = _consistent({name: best_level([found[name] for _, found in passes])
                          for name in passes[0][1]})
    fork_join = min((seconds for seconds in fork_joins if seconds is not None), default=None)
    machine = replace(
        known, **_best_core([core for core, _ in passes]),
        # A single thread forks nothing; another process of the same user may have more.
        fork_join_seconds=fork_join or known.fork_join_seconds, l1=levels["l1"], l2=levels["l2"],
        l3=levels.get("l3"), memory=levels["memory"],
        prefetch_distance_bytes=best_distance(_DISTANCES, meter.prefetch_rates(_DISTANCES)),
        page_bytes=mmap.PAGESIZE, huge_page_bytes=_huge_page_bytes() or known.huge_page_bytes)
    return Calibration(machine, machine.settled(known),
                       _sources(topology, levels, threads, has_fork_join=fork_join is not None),
                       threads, time.perf_counter() - start, meter.noise)


def _huge_page_bytes() -> int:
    """The size of transparent huge pages; 0 if the system does not say."""
    try:
        return int(_HUGE_PAGES.read_text())
    except (OSError, ValueError):
        return 0


def _core(meter: Meter) -> dict[str, Any]:
    """The fields of ``Machine`` that belong to the core."""
    fma = [meter.fma_rate(width) if width in meter.widths else 0.0 for width in VECTOR_BITS]
    narrow, wide, some = meter.widths[0], meter.widths[-1], 4096
    loads = max(meter.load_rate(some, width) * 8 / width for width in (narrow, wide))
    stores = max(meter.store_rate(some, width) * 8 / width for width in (narrow, wide))
    return {"frequency": meter.vector_clock(), "fma_per_cycle": tuple(fma),
            "fma_latency": meter.fma_latency(), "loads_per_cycle": loads,
            "stores_per_cycle": stores, "vector_ops_per_cycle": meter.vector_rate("mixed"),
            "shuffles_per_cycle": meter.vector_rate("shuffle"),
            "divide_cycles": 1 / meter.vector_rate("divide"),
            "gather_cycles": meter.gather_cycles()}


def _best_core(passes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The best value of each field: the highest rate, the lowest latency."""
    found = {name: max(one[name] for one in passes) for name in passes[0]}
    found |= {name: min(one[name] for one in passes)
              for name in ("fma_latency", "divide_cycles", "gather_cycles")}
    rates = zip(*(one["fma_per_cycle"] for one in passes), strict=True)
    return found | {"fma_per_cycle": tuple(max(each) for each in rates)}


def best_level(passes: Sequence[Level]) -> Level:
    """The highest rates and the lowest latency of one level."""
    return replace(passes[0], load_bytes_per_cycle=max(one.load_bytes_per_cycle for one in passes),
                   load_bytes_per_cycle_all=max(one.load_bytes_per_cycle_all for one in passes),
                   store_bytes_per_cycle=max(one.store_bytes_per_cycle for one in passes),
                   latency_cycles=min(one.latency_cycles for one in passes))


def _levels(meter: Meter, cpu: CpuTarget, topology: Topology, known: Machine, threads: int
            ) -> dict[str, Level]:
    """Every level that exists. Working sets leave room for what else is in a cache."""
    l3 = topology.largest(3)
    shared_by = topology.cores_of(l3) if l3 is not None else known.l3.shared_by if known.l3 else 1
    ways = next((cache.ways for cache in topology.caches if cache.level == 2), 0)
    found = {"l1": _cache(meter, cpu.l1_bytes, 1, cpu.l1_bytes // 2, threads),
             "l2": replace(_cache(meter, cpu.l2_bytes, 1, cpu.l2_bytes // 2, threads),
                           ways=ways or known.l2.ways)}
    if cpu.l3_bytes:
        # Other programs use the L3 too. The less of it is measured, the less of it they evict in
        # the time between two loads of a line.
        sample = min(cpu.l3_bytes // 2, 2 * cpu.l2_bytes)
        found["l3"] = _cache(meter, cpu.l3_bytes, shared_by, sample, threads)
    beyond = max(2 * max(cpu.l3_bytes, cpu.l2_bytes), 16 << 20)
    rates = meter.memory_rate("load"), meter.memory_rate("store")
    every = meter.shared_load_rate(beyond, threads) if threads > 1 else rates[0]
    found["memory"] = Level(0, len(topology.cores), rates[0], every, rates[1],
                            meter.latency(beyond))
    return found


def _cache(meter: Meter, size: int, shared_by: int, sample: int, threads: int) -> Level:
    """One level, measured on ``sample`` bytes, which all threads divide if the level is shared."""
    load = meter.load_rate(sample)
    # Cores do not disturb each other in private caches, unless they are hyper-threads of one.
    is_private = shared_by == 1 and host_topology().threads_per_core == 1
    own = sample // threads if shared_by > 1 else sample
    every = load if is_private else meter.shared_load_rate(own, threads)
    # Other programs evict a shared cache between two rounds, and seldom three times.
    latency = min(meter.latency(sample) for _ in range(_TRIES if shared_by > 1 else 1))
    return Level(size, shared_by, load, every, meter.store_rate(sample), latency)


def _consistent(levels: Mapping[str, Level]) -> dict[str, Level]:
    """The levels, nearest first, of which none is faster than the one before."""
    found: dict[str, Level] = {}
    last: Level | None = None
    for name, level in levels.items():
        load, store = level.load_bytes_per_cycle, level.store_bytes_per_cycle
        shared, latency = level.load_bytes_per_cycle_all, level.latency_cycles
        if last is not None:
            load = min(load, last.load_bytes_per_cycle)
            store = min(store, last.store_bytes_per_cycle)
            latency = max(latency, last.latency_cycles)
        last = Level(level.bytes, level.shared_by, load, min(shared, load), min(store, load),
                     latency, level.ways)
        found[name] = last
    return found


def best_distance(distances: tuple[int, ...], rates: list[float]) -> int:
    """The shortest distance next to the best; 0 where prefetching gains little.

    ``distances`` start with 0, which stands for the hardware alone.
    """
    best = max(rates)
    if best < rates[0] * _PREFETCH_GAIN:
        return 0
    return next(d for d, rate in zip(distances, rates, strict=True)
                if rate * _PREFETCH_TIE >= best)


def _sources(topology: Topology, levels: Mapping[str, Level], threads: int, *,
             has_fork_join: bool) -> dict[str, str]:
    names = ["frequency", "fma_128", "fma_256", "fma_512", "fma_latency", "loads_per_cycle",
             "stores_per_cycle", "fork_join_seconds", "prefetch_distance_bytes",
             "vector_ops_per_cycle", "shuffles_per_cycle", "divide_cycles", "gather_cycles"]
    found = {f"core.{name}": MEASURED for name in names}
    found |= {"core.page_bytes": SYSTEM, "core.reorder_window": TABLE}
    found["core.huge_page_bytes"] = SYSTEM if _huge_page_bytes() else TABLE
    if not has_fork_join:
        found["core.fork_join_seconds"] = TABLE
    for number, name in enumerate(levels, 1):
        has_size = name != "memory" and topology.largest(number) is not None
        size = SYSTEM if has_size or name == "memory" else TABLE
        found |= {f"{name}.bytes": size, f"{name}.shared_by": size}
        found |= {f"{name}.{value}": MEASURED for value in ("load", "load_all", "store", "latency")}
        if threads == 1:
            found[f"{name}.load_all"] = DERIVED
    return found
