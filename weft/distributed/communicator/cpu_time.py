"""The CPU time of a process with that of its children."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


def cpu_seconds() -> float:
    """Seconds of this process, of its children, and of theirs; those of Linux count from the start.

    Elsewhere a child counts once it has ended.
    """
    times = os.times()
    ended = times.children_user + times.children_system
    return time.process_time() + ended + sum(map(_seconds, _children(os.getpid())))


def _children(process: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):  # there is no /proc, or the process has ended
        for task in Path(f"/proc/{process}/task").iterdir():
            with suppress(OSError):
                found += map(int, (task / "children").read_bytes().split())
    return found


def _seconds(process: int) -> float:
    """Those of a process, of its children that have ended, and of those that run."""
    try:
        fields = Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / _TICKS + sum(map(_seconds, _children(process)))
