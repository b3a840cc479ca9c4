"""Heartbeats: each rank publishes its own, and a rank that waits reads those of the others."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any, NoReturn, Protocol

from weft.distributed.communicator.cpu_time import cpu_seconds
from weft.support.errors import DistributedError

BEAT_EVERY = 1.0   # seconds between two heartbeats
SILENCE = 10.0     # a rank without a heartbeat for so long is dead or stopped
IDLE = 20.0        # a rank outside of any operation that used no CPU for so long hangs
IDLE_CPU = 0.2     # seconds of CPU time, also of its children, that count as none
_MOST_FAILURES = 2  # of the board one after the other: a busy machine may answer late once
TIMEOUT = 600.0    # a rank that computes for so long while others wait is late


class Board(Protocol):
    """Where ranks publish a line each that all can read."""

    beats: bool  # whether a rank changes its line every second

    def publish(self, line: str) -> None: ...

    def read(self) -> dict[int, str]: ...


class Health:
    """Heartbeats of this rank and the others of the world."""

    def __init__(self, board: Board, rank: int, size: int, timeout: float = TIMEOUT) -> None:
        self.rank, self.size, self.timeout = rank, size, timeout
        self._board = board
        self._started = self._count = 0
        self._inside: list[str] = []
        self._end: dict[str, Any] = {}
        self._lines: dict[int, tuple[str, float]] = {}  # the last line, and since when
        self._idle: dict[int, tuple[float, float]] = {}  # CPU seconds, and since when
        self._read = time.monotonic(), board.read()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self.publish()
        # The board may be a connection that blocks: only this thread waits for it.
        self._thread = threading.Thread(target=self._beat, daemon=True, name="weft heartbeat")
        if board.beats and size > 1:
            self._thread.start()

    # -- what this rank says ------------------------------------------------------------------

    def publish(self) -> None:
        with self._lock:
            self._count += 1
            inside = self._inside[-1:]  # the program may leave an operation meanwhile
            self._board.publish(json.dumps({
                "beat": self._count, "cpu": cpu_seconds(), "operation": self._started,
                "in": inside[0] if inside else None,
                "at": f"{socket.gethostname()}, process {os.getpid()}", **self._end}))

    def _beat(self) -> None:
        failed = 0
        while failed < _MOST_FAILURES and not self._stop.wait(BEAT_EVERY):
            try:
                self.publish()
                self._read = time.monotonic(), self._board.read()
                failed = 0
            except Exception:  # noqa: BLE001 - of any library; ``check`` sees that lines grow old
                failed += 1

    @contextlib.contextmanager
    def waiting(self, name: str) -> Iterator[None]:
        """Say that this rank waits in an operation."""
        self._inside.append(name)
        if not self._board.beats:
            self.publish()
        try:
            yield
        finally:
            self._inside.remove(name)

    def count(self) -> int:
        """The number of the operation that starts now."""
        self._started += 1
        return self._started

    def end(self, why: str | None = None, culprit: int | None = None) -> None:
        """Say that this rank has ended, or failed because of ``why``."""
        if not self._end:
            self._end = {"end": "failed" if why else "ended", "why": why, "culprit": culprit}
            if not self._board.beats or time.monotonic() - self._read[0] < 3 * BEAT_EVERY:
                with contextlib.suppress(Exception):
                    self.publish()
            if why is None:
                self._stop.set()
                self._wait_for_ends()

    def stop(self) -> None:
        """Publish nothing any more.

        A thread that the end of the interpreter meets inside a transport ends the process.
        """
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(SILENCE / 2)

    def _wait_for_ends(self) -> None:
        """Let rank 0 be the last, which keeps the list of ranks."""
        end = time.monotonic() + SILENCE / 2
        while self._board.beats and self.rank == 0 and time.monotonic() < end:
            try:
                lines = self._board.read()
            except Exception:  # noqa: BLE001 - of any library
                return
            if all("end" in json.loads(line) for r, line in lines.items() if r):
                return
            time.sleep(0.02)

    # -- what the others say ------------------------------------------------------------------

    def check(self, name: str, waited: float) -> None:
        """Raise ``DistributedError`` if a rank that this one may wait for will not come."""
        now = time.monotonic()
        if not self._board.beats:
            self._read = now, self._board.read()
        read, lines = self._read
        if now - read > SILENCE:
            self._fail(0, "rank 0 is dead or stopped", name,
                       got=f"the list of ranks, which it keeps, is {now - read:.0f} s old")
        states = {r: json.loads(line) for r, line in lines.items()
                  if r != self.rank and line != "{}"}  # a rank that is about to start
        for rank, state in states.items():
            if state.get("end") == "failed":
                culprit = state["culprit"]
                if culprit != self.rank:
                    self._fail(rank if culprit is None else culprit, state["why"], name,
                               got=f"reported by rank {rank}", passes_on=True)
        for rank, state in states.items():
            if state.get("end") == "ended" and waited > SILENCE / 2:
                self._fail(rank, f"rank {rank} has ended while others wait for it", name,
                           got=state["at"])
            if self._board.beats:
                self._check_life(rank, lines[rank], state, name, now)
        if waited > self.timeout:
            self._fail_late(states, name, waited)

    def _check_life(self, rank: int, line: str, state: dict[str, Any], name: str,
                    now: float) -> None:
        before, since = self._lines.get(rank, ("", now))
        if line != before:
            self._lines[rank] = line, now
        elif now - since > SILENCE and "end" not in state:
            self._fail(rank, f"rank {rank} is dead or stopped", name,
                       got=f"no heartbeat for {now - since:.0f} s from {state['at']}")
        cpu, idle_since = self._idle.get(rank, (state["cpu"], now))
        if state["in"] is not None or abs(state["cpu"] - cpu) > IDLE_CPU:
            cpu, idle_since = state["cpu"], now
        self._idle[rank] = cpu, idle_since
        if now - idle_since > IDLE:
            self._fail(rank, f"rank {rank} hangs", name,
                       got=f"it has computed nothing for {now - idle_since:.0f} s after operation "
                           f"{state['operation']} ({state['at']})")

    def _fail_late(self, states: dict[int, dict[str, Any]], name: str, waited: float) -> NoReturn:
        """Name the ranks that have not come: those outside of operations, or in earlier ones."""
        late = [r for r, s in states.items() if s["in"] is None] or sorted(
            states, key=lambda r: states[r]["operation"])[:1]
        notes = [f"rank {r}: in {s['in'] or 'the program'}, {s['operation']} operations started"
                 for r, s in states.items()]
        self._fail(late[0] if late else self.rank,
                   f"rank {', '.join(map(str, late))} did not come", name, notes=notes,
                   got=f"waited for {waited:.0f} s")

    def explain(self, name: str, error: BaseException) -> NoReturn:
        """Raise the ``DistributedError`` behind what the transport says."""
        end = time.monotonic() + (SILENCE + 3 if self.size > 1 else 0)
        with self.waiting(name):
            while time.monotonic() < end:
                self.check(name, SILENCE)
                time.sleep(0.2)
        text = (str(error).splitlines() or [type(error).__name__])[0]
        self._fail(self.rank, f"{name} failed on rank {self.rank}", name, got=text)

    def _fail(self, rank: int, what: str, name: str, *, got: str, notes: list[str] | None = None,
              passes_on: bool = False) -> NoReturn:
        if not passes_on:
            self.end(what, rank)
        raise DistributedError(
            what, where=f"{name} on rank {self.rank}", got=got, notes=notes or (),
            help="the state before this step is whole: start again from the last checkpoint")
