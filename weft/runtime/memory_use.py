"""The memory that a module keeps between calls, and how much of it is in RAM."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from weft.runtime.arena import Region
from weft.runtime.profile import render_table
from weft.support.dataclass import dataclass

# Bits of an entry of /proc/self/pagemap: the page is in RAM, and no other process maps it.
_IN_RAM, _EXCLUSIVE = np.uint64(1 << 63), np.uint64(1 << 56)
_PAGEMAP, _MAPS = Path("/proc/self/pagemap"), Path("/proc/self/maps")


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """Memory for one purpose, in bytes.

    ``resident`` is what is in RAM, and ``shared`` what other processes map, too; both count whole
    pages, and are ``None`` where the system does not say. ``file`` is mapped there: the system may
    drop its pages and read them again.
    """

    name: str
    nbytes: int
    resident: int | None
    shared: int | None
    file: str | None

    @staticmethod
    def of(name: str, regions: Iterable[Region]) -> MemoryRow:
        """The row of regions, each of which counts once."""
        known = sorted({region for region in regions if region[1]})
        in_ram, shared = _pages(known)
        return MemoryRow(name, sum(nbytes for _, nbytes in known), in_ram, shared,
                         next(filter(None, (_file_at(address) for address, _ in known)), None))


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """The result of ``Executable.memory()``; ``str`` gives the table."""

    rows: tuple[MemoryRow, ...]

    @staticmethod
    def of(regions: Mapping[str, Sequence[Region]]) -> MemoryUse:
        """The memory in these regions, by purpose."""
        return MemoryUse(tuple(MemoryRow.of(name, found) for name, found in regions.items()
                               if any(nbytes for _, nbytes in found)))

    def __getitem__(self, name: str) -> MemoryRow:
        """The row of that name; ``KeyError`` if there is none."""
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(name)

    @property
    def nbytes(self) -> int:
        """The bytes of all rows."""
        return sum(row.nbytes for row in self.rows)

    def table(self) -> str:
        """The rows as a text table, in MB."""
        rows = [(row.name, _mb(row.nbytes), _mb(row.resident), _mb(row.shared), row.file or "")
                for row in self.rows]
        total = (None if any(row.resident is None for row in self.rows)
                 else sum(row.resident or 0 for row in self.rows))
        rows.append(("all", _mb(self.nbytes), _mb(total), "", ""))
        return render_table(("memory", "MB", "in RAM", "shared", "mapped from"), rows,
                            left=("memory", "mapped from"))

    __str__ = table


def process_memory(process: int) -> int | None:
    """The bytes in RAM of a process; of pages that several map, each counts its share.

    ``None`` where the system does not say.
    """
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:")), None)


def _mb(nbytes: int | None) -> str:
    return "?" if nbytes is None else f"{nbytes / 1e6:.2f}"


def _pages(regions: Iterable[Region]) -> tuple[int | None, int | None]:
    """The bytes of the pages of these regions that are in RAM, and that others map, too."""
    in_ram = shared = 0
    try:
        with _PAGEMAP.open("rb", buffering=0) as file:
            for address, nbytes in regions:
                first, last = address // mmap.PAGESIZE, -(-(address + nbytes) // mmap.PAGESIZE)
                entries = np.frombuffer(os.pread(file.fileno(), 8 * (last - first), 8 * first),
                                        np.uint64)
                present = entries[entries & _IN_RAM != 0]
                in_ram += present.size
                shared += int(np.count_nonzero(present & _EXCLUSIVE == 0))
    except OSError:
        return None, None
    return in_ram * mmap.PAGESIZE, shared * mmap.PAGESIZE


def _file_at(address: int) -> str | None:
    """The file that is mapped at an address; ``None`` for memory without one."""
    try:
        lines = _MAPS.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        bounds, _, _, _, inode, *path = line.split(maxsplit=5)
        low, high = (int(bound, 16) for bound in bounds.split("-"))
        if low <= address < high:
            return path[0] if int(inode) and path else None
    return None
