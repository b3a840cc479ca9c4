"""Folders that look like the ``/sys`` and ``/proc`` of other machines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from weft.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class CacheFile:
    """One ``index*`` folder: ``size`` as the kernel writes it, shared by ``cpus`` (a list text)."""

    level: int
    size: str
    cpus: str
    type: str = "Unified"
    ways: int = 8


class FakeSystem:
    """Writes the files of a system below a folder."""

    def __init__(self, root: Path, cpus: int) -> None:
        self.root = root
        self.base = root / "sys/devices/system/cpu"
        self.write("sys/devices/system/cpu/online", f"0-{cpus - 1}")

    def write(self, path: str, text: str) -> None:
        """One file; folders are made."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n", encoding="ascii")

    def cpu(self, cpu: int, siblings: str, caches: Sequence[CacheFile],
            files: Mapping[str, str] | None = None) -> None:
        """One logical CPU: its hyper-threads, caches, and other files of its folder."""
        at = f"sys/devices/system/cpu/cpu{cpu}"
        self.write(f"{at}/topology/thread_siblings_list", siblings)
        for number, cache in enumerate(caches):
            index = f"{at}/cache/index{number}"
            for name, value in (("level", cache.level), ("size", cache.size),
                                ("type", cache.type), ("shared_cpu_list", cache.cpus),
                                ("ways_of_associativity", cache.ways),
                                ("coherency_line_size", 64)):
                self.write(f"{index}/{name}", str(value))
        for name, value in (files or {}).items():
            self.write(f"{at}/{name}", value)

    def uniform(self, cores: int, threads: int, l1: str, l2: str, l3: str = "",
                l3_cores: int = 0, l2_cores: int = 1) -> None:
        """Equal cores whose hyper-threads are ``core`` and ``core + cores``."""
        for cpu in range(cores * threads):
            core = cpu % cores
            caches = [CacheFile(1, l1, _threads([core], cores, threads), "Data"),
                      CacheFile(1, "32K", _threads([core], cores, threads), "Instruction"),
                      CacheFile(2, l2, _threads(_group(core, l2_cores), cores, threads))]
            if l3:
                shared = _group(core, min(l3_cores or cores, cores))
                caches.append(CacheFile(3, l3, _threads(shared, cores, threads)))
            self.cpu(cpu, _threads([core], cores, threads), caches)


def _group(core: int, size: int) -> Iterable[int]:
    return range(core // size * size, core // size * size + size)


def _threads(group: Iterable[int], cores: int, threads: int) -> str:
    found = list(group)
    parts = [f"{found[0] + t * cores}-{found[-1] + t * cores}" for t in range(threads)]
    return ",".join(parts)
