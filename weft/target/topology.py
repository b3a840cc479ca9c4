"""The CPUs of a system: cores, hyper-threads, caches and who shares them, NUMA nodes, quota.

All is read from ``/sys`` and ``/proc``, below any root, so that other machines can be described by
a folder. What a system hides is ``None`` or empty; nothing here raises for a missing file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from weft.runtime.devices.cpu.host import cpu_quota
from weft.support.dataclass import dataclass
from weft.target.machine import Level, Machine


@dataclass(frozen=True, slots=True)
class Cache:
    """A data or unified cache. Sizes are bytes; ``ways`` and ``line`` are 0 if unknown.

    ``cpus`` are the logical CPUs that share it, as far as the system lists them.
    """

    level: int
    bytes: int
    ways: int
    line: int
    cpus: frozenset[int]


@dataclass(frozen=True, slots=True)
class Topology:
    """``cpus`` are the logical CPUs that this process may use, and ``cores`` those of each core.

    ``online`` are all of the system. ``caches`` are those of one usable CPU of each kind. ``quota``
    is the limit of the control group in CPUs. ``kinds`` counts the kinds of usable CPUs: hybrid
    processors have several.
    """

    online: frozenset[int]
    cpus: frozenset[int]
    cores: tuple[frozenset[int], ...]
    caches: tuple[Cache, ...]
    nodes: int
    quota: float | None
    kinds: int
    is_virtual: bool

    @property
    def threads_per_core(self) -> int:
        """The most hyper-threads that a core has."""
        return max((len(core) for core in self.cores), default=1)

    def cores_of(self, cache: Cache) -> int:
        """The number of cores that share a cache."""
        return max(1, sum(bool(core & cache.cpus) for core in self.cores))

    def per_core(self, level: int) -> int:
        """Bytes of a private level that every usable core has; 0 if the system does not say.

        A cache of several cores counts by the share of one. Of the kinds of cores of a hybrid
        processor the smallest counts, as a parallel loop runs on all of them.
        """
        return min((c.bytes // self.cores_of(c) for c in self.caches if c.level == level),
                   default=0)

    def largest(self, level: int) -> Cache | None:
        """The largest cache of a level."""
        return max((c for c in self.caches if c.level == level), key=lambda c: c.bytes,
                   default=None)


# A size that no cache has: some hypervisors report garbage.
_LEAST, _MOST = 4 << 10, 4 << 30


def read_topology(root: Path = Path("/"), usable: Iterable[int] | None = None) -> Topology:
    """The topology of the system whose files are below ``root``.

    ``usable`` are the CPUs of the affinity mask: those of this process for the real root, and all
    that are online for others.
    """
    base = root / "sys/devices/system/cpu"
    online = _cpu_list(_text(base / "online")) or _present(base) or frozenset(
        range(os.cpu_count() or 1))
    if usable is None:
        has_mask = root == Path("/") and hasattr(os, "sched_getaffinity")
        usable = os.sched_getaffinity(0) if has_mask else online
    cpus = (frozenset(usable) & online) or online
    siblings = {_siblings(base, cpu) for cpu in online}
    examples = _one_of_each_kind(root, cpus)
    caches = {cache for cpu in examples for cache in _caches(base / f"cpu{cpu}/cache", cpu, online)}
    nodes = list((root / "sys/devices/system/node").glob("node[0-9]*"))
    flags = _text(root / "proc/cpuinfo").split()
    return Topology(
        online, cpus, tuple(sorted(siblings, key=min)),
        tuple(sorted(caches, key=lambda c: (c.level, min(c.cpus)))), max(1, len(nodes)),
        cpu_quota(root / "sys/fs/cgroup"), len(examples), "hypervisor" in flags)


def _one_of_each_kind(root: Path, cpus: frozenset[int]) -> list[int]:
    """The first CPU of each kind, so that a system with hundreds of CPUs costs few reads.

    Kinds differ in capacity or part number on Arm; Intel's efficiency cores are ``cpu_atom``.
    """
    small = _cpu_list(_text(root / "sys/devices/cpu_atom/cpus"))
    first: dict[object, int] = {}
    for cpu in sorted(cpus):
        folder = root / f"sys/devices/system/cpu/cpu{cpu}"
        kind = (cpu in small, _text(folder / "cpu_capacity"),
                _text(folder / "regs/identification/midr_el1"))
        first.setdefault(kind, cpu)
    return sorted(first.values())


def _siblings(base: Path, cpu: int) -> frozenset[int]:
    """The logical CPUs of one core."""
    folder = base / f"cpu{cpu}/topology"
    for name in ("core_cpus_list", "thread_siblings_list"):
        found = _cpu_list(_text(folder / name))
        if cpu in found:
            return found
    return frozenset((cpu,))


def _caches(folder: Path, cpu: int, online: frozenset[int]) -> Iterable[Cache]:
    for index in sorted(folder.glob("index[0-9]*")):
        if _text(index / "type") == "Instruction":
            continue
        size, level = _size(_text(index / "size")), _number(_text(index / "level"))
        if level and _LEAST <= size <= _MOST:
            shared = (_cpu_list(_text(index / "shared_cpu_list")) & online) or {cpu}
            yield Cache(level, size, _number(_text(index / "ways_of_associativity")),
                        _number(_text(index / "coherency_line_size")), frozenset(shared))


def _present(base: Path) -> frozenset[int]:
    return frozenset(_number(path.name[3:]) for path in base.glob("cpu[0-9]*"))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _size(text: str) -> int:
    scale = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
    return _number(text.rstrip("KMG")) * scale


def _cpu_list(text: str) -> frozenset[int]:
    """``0-3,8``: the list format of the Linux kernel; empty for anything else."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        if not (first.isdecimal() and (last or first).isdecimal()):
            return frozenset()
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def cache_sizes(topology: Topology, machine: Machine, *, is_known: bool) -> tuple[int, int, int]:
    """Bytes of L1, of L2 and of the part of L3 that a program of one core can count on.

    What the system hides comes from ``machine``. If that describes this very CPU (``is_known``),
    it overrules private caches of an absurd size. L3 is 0 where there is none; a virtual machine
    sees the whole L3 of a socket whose other cores serve others, so it may count on
    ``FAIR_SHARES`` of the shares of its own cores.
    """
    l1 = _private(topology.per_core(1), machine.l1.bytes_per_core, is_known=is_known)
    l2 = _private(topology.per_core(2), machine.l2.bytes_per_core, is_known=is_known)
    return l1, max(l1, l2), _l3_bytes(topology, machine, is_known=is_known)


# Neighbours do not use all of a shared cache all the time.
FAIR_SHARES = 4


def useful_l3(l3: Level | None, stated: int, cores: int) -> int:
    """The bytes of an L3 of ``stated`` bytes that ``cores`` of those that share it count on."""
    if l3 is None:
        return stated
    return min(stated, FAIR_SHARES * l3.bytes_per_core * cores)


def _private(found: int, expected: int, *, is_known: bool) -> int:
    is_absurd = is_known and not expected // 2 <= found <= expected * 2
    return expected if not found or is_absurd else found


def _l3_bytes(topology: Topology, machine: Machine, *, is_known: bool) -> int:
    found = topology.largest(3)
    if found is not None:
        return useful_l3(machine.l3, found.bytes, topology.cores_of(found))
    is_hidden = is_known or topology.largest(2) is None
    if machine.l3 is None or not is_hidden:
        return 0
    return useful_l3(machine.l3, machine.l3.bytes, len(topology.cores))
