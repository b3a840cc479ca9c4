"""``SimCall``: one call of a program on several workers.

A segment is given to its worker once all segments before it are done; the worker that finishes the
last one of them does so. No worker waits for another, so calls cannot block each other. Only the
thread of the caller waits: an interrupt there leaves nothing half done.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from typing import Protocol

from weft.runtime.devices.sim.segments import Block, Segment
from weft.runtime.devices.sim.workers import WORKERS, WorkerKey, worker_name
from weft.support.errors import WeftError

# How often a caller that was interrupted looks whether the work under way has ended.
_POLL_SECONDS = 0.05


class SegmentRunner(Protocol):
    """Runs segments and decides which block follows."""

    def run_segment(self, segment: Segment, call: SimCall) -> None:
        """Make the calls of a segment; ``call`` says whether to go on."""
        ...

    def next_block(self, after: int) -> int | None:
        """The number of the block that runs after block ``after`` (-1: first); ``None``: end."""
        ...


class SimCall:
    """The blocks of one call, run by ``runner`` in ``workers``. The first error ends it."""

    __slots__ = (
        "_at",
        "_blocks",
        "_done",
        "_error",
        "_has_started",
        "_left",
        "_lock",
        "_runner",
        "_stop",
        "_waiting",
        "_workers",
    )

    def __init__(self, blocks: Sequence[Block], runner: SegmentRunner,
                 workers: Iterable[WorkerKey] | None = None) -> None:
        self._blocks = blocks
        keys = workers_of(blocks) if workers is None else workers
        # All threads are there before the first segment runs: none fails to start half way.
        self._workers = {key: WORKERS.worker(key) for key in keys}
        self._runner = runner
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._has_started = False
        self._at = -1
        self._waiting: list[int] = []  # for each segment of the block: how many it waits for
        self._left = 0

    def run(self) -> None:
        """Run all blocks; raises the first error once no work is under way any more."""
        try:
            self._begin()
            self._done.wait()
        except BaseException as error:
            self.cancel(error)
            self._begin()  # if the interrupt came before; it does nothing twice
            self._drain()
            raise
        if self._error is not None:
            raise self._error

    def cancel(self, error: BaseException) -> None:
        """Let no further segment start; ``run`` raises ``error`` unless there was another one."""
        with self._lock:
            if self._error is None:
                self._error = error
        self._stop.set()

    def pause(self, until: float) -> None:
        """Wait until ``time.perf_counter()`` is ``until``, or the call has failed."""
        while (rest := until - time.perf_counter()) > 0:
            if self._stop.wait(rest):
                return

    def _begin(self) -> None:
        # In a worker, because an interrupt must not end it half way.
        first = self._blocks[0].segments[0].worker if self._blocks else None
        if first is None:
            self._done.set()
        else:
            self._workers[first].submit(self._start)

    def _drain(self) -> None:
        while not self._done.is_set():
            try:
                self._done.wait(_POLL_SECONDS)
            except KeyboardInterrupt:  # the first one ends the call
                continue

    def _start(self) -> None:
        if not self._has_started:
            self._has_started = True
            self._advance()

    def _advance(self) -> None:
        """Start the next block; all segments before it are done."""
        try:
            following = None if self._error is not None else self._runner.next_block(self._at)
        except BaseException as error:  # noqa: BLE001 - the caller raises it
            self.cancel(error)
            following = None
        if following is None:
            self._done.set()
            return
        self._at = following
        segments = self._blocks[following].segments
        self._left = len(segments)
        self._waiting = [one.num_before for one in segments]
        for segment in segments:
            if not segment.num_before:
                self._submit(segment)

    def _submit(self, segment: Segment) -> None:
        self._workers[segment.worker].submit(lambda: self._execute(segment))

    def _execute(self, segment: Segment) -> None:
        if self._error is None:
            try:
                self._runner.run_segment(segment, self)
            except BaseException as error:  # noqa: BLE001 - the caller raises it
                self.cancel(_located(error, segment))
        segments = self._blocks[self._at].segments
        ready = []
        with self._lock:
            self._left -= 1
            is_last = not self._left
            for after in segment.followers:
                self._waiting[after] -= 1
                if not self._waiting[after]:
                    ready.append(after)
        # After a failure the rest is passed through, without running anything.
        for after in ready:
            self._submit(segments[after])
        if is_last:
            self._advance()


def workers_of(blocks: Sequence[Block]) -> tuple[WorkerKey, ...]:
    """The workers of the segments, each once."""
    return tuple(dict.fromkeys(
        segment.worker for block in blocks for segment in block.segments))


def _located(error: BaseException, segment: Segment) -> BaseException:
    where = f"call {segment.calls[0]} on {worker_name(segment.worker)}"
    if isinstance(error, WeftError):
        return error.at(where)
    error.add_note(f"in {where}")
    return error
