"""What workers run in these tests; they import it by its name."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any


def square(x: int) -> int:
    return x * x


def after(seconds: float, value: Any) -> Any:
    time.sleep(seconds)
    return value


def fail(text: str) -> None:
    raise ValueError(text)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_once(mark: Path, value: Any) -> Any:
    """Die at the first call, wherever it runs."""
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return value
    return die()


def process() -> int:
    return os.getpid()


def cores() -> set[int]:
    return os.sched_getaffinity(0)


def threads() -> str | None:
    return os.environ.get("WEFT_THREADS")


def unsendable() -> Any:
    return lambda: None


def size_of(values: dict[str, bytes], name: str) -> int:
    return len(values[name])


def total(batch: Any) -> int:
    return int(sum(batch))


def work_and_die(folder: Path, log: Path, x: int) -> int:
    """Squares; the first worker that gets 3, 17 or 31 is killed."""
    if x in (3, 17, 31):
        die_once(folder / f"died-{x}", None)
    time.sleep(0.01)
    return x * x


def slow_once(mark: Path, x: int, y: int | None = None) -> int:
    """Hang for a minute at 5, the first time; with ``y`` at every 1."""
    if y is not None:
        return after(60, y) if y == x else y
    if x == 5:
        try:
            mark.touch(exist_ok=False)
        except FileExistsError:
            return x
        time.sleep(60)
    return x


def refuse_seven(x: int) -> int:
    if x == 7:
        raise ValueError("an odd one")
    return x


def die_of(_batch: Any) -> None:
    die()
