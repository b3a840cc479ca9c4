"""The file from which Linux perf names functions of code that was generated at run time."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class NamedCode(NamedTuple):
    """A function or variable in memory; ``size`` is in bytes."""

    name: str
    address: int
    size: int


def write_perf_map(symbols: Iterable[NamedCode]) -> None:
    """Add ``symbols`` to /tmp/perf-PID.map."""
    with Path(f"/tmp/perf-{os.getpid()}.map").open("a", encoding="ascii") as file:  # noqa: S108
        file.writelines(f"{s.address:x} {s.size:x} {s.name}\n" for s in symbols)
