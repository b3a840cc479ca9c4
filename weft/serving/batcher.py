"""``Batcher``: groups requests of equal shapes, runs them as one batch, and splits the results."""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeAlias

import numpy as np

from weft.serving.limits import Limits
from weft.serving.observer import SILENT, Observer
from weft.serving.refusal import RefusedError, overloaded
from weft.support.errors import InternalError

Arrays: TypeAlias = "Sequence[np.ndarray]"
Run: TypeAlias = "Callable[[Arrays], Arrays]"
Outcome: TypeAlias = "Arrays | Exception"


class _Job:
    """A request: arrays whose first axis counts rows, and the future of its results."""

    __slots__ = ("arrays", "future", "key", "queued", "rows")

    def __init__(self, arrays: Arrays, *, batched: bool, now: float) -> None:
        self.arrays = arrays
        self.rows = len(arrays[0]) if batched else 1
        self.key = tuple((array.shape[1:], array.dtype) for array in arrays) if batched else None
        self.future: asyncio.Future[Arrays] = asyncio.get_running_loop().create_future()
        self.queued = now


class Batcher:
    """Runs requests in worker threads, one batch at a time in each, in the order of their arrival.

    With ``batched`` the rows of requests whose shapes agree in all axes but the first run together:
    up to ``limits.max_batch`` of them, once the oldest has waited ``limits.max_delay`` seconds.
    Requests that arrive while a batch runs wait for its end anyway. Without ``batched`` each
    request runs alone. If a batch fails, its requests run one by one, so that one of them cannot
    spoil the others.

    All methods belong to one event loop at a time; ``run`` is called in the worker threads.
    """

    def __init__(self, run: Run, *, batched: bool, limits: Limits | None = None, name: str = "",
                 observer: Observer = SILENT, workers: int = 1) -> None:
        self.batched = batched
        self.limits = limits or Limits()
        self._run = run
        self._name = name
        self._observer = observer
        self._waiting: deque[_Job] = deque()
        self._changed = asyncio.Event()
        self._closing = False
        self._scheduler: asyncio.Task[None] | None = None
        self._workers = workers
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix=f"weft-serve-{name}")
        self._context = contextvars.copy_context()  # settings of the process, for the thread

    @property
    def waiting(self) -> int:
        """Number of requests in the queue."""
        return len(self._waiting)

    async def submit(self, arrays: Arrays) -> Arrays:
        """The results for ``arrays``; cancelling the call takes the request out of the queue.

        Raises ``RefusedError`` if the queue is full, and what the module raises for this request.
        """
        if self._closing:
            raise RefusedError("the server is stopping", status=503, retry_after=1)
        if len(self._waiting) >= self.limits.max_queue:
            raise overloaded(f"{len(self._waiting)} requests wait for {self._name}", status=429)
        if self._scheduler is None or self._scheduler.done():  # the first call, or of a new loop
            self._changed = asyncio.Event()
            self._scheduler = asyncio.create_task(self._schedule())
        job = _Job(arrays, batched=self.batched, now=asyncio.get_running_loop().time())
        self._waiting.append(job)
        self._changed.set()
        try:
            return await job.future
        except asyncio.CancelledError:
            if job in self._waiting:
                self._waiting.remove(job)
                self._changed.set()
            raise

    async def close(self) -> None:
        """Finish the requests in the queue, and end the worker threads."""
        self._closing = True
        self._changed.set()
        if self._scheduler is not None and not self._scheduler.done():
            await self._scheduler
        self._threads.shutdown(wait=True)

    async def _schedule(self) -> None:
        idle = asyncio.Semaphore(self._workers)
        async with asyncio.TaskGroup() as running:
            while self._waiting or not self._closing:
                if not self._waiting:
                    self._changed.clear()
                    await self._changed.wait()
                    continue
                await idle.acquire()
                if self._waiting and (not self.batched or await self._filled(self._waiting[0])):
                    execution = running.create_task(self._execute(self._next_batch()))
                    execution.add_done_callback(lambda _: idle.release())
                else:
                    idle.release()

    async def _filled(self, first: _Job) -> bool:
        """Wait until the batch of ``first`` may run; False if the request was cancelled."""
        until = first.queued + self.limits.max_delay
        while not self._closing and self._rows_like(first) < self.limits.max_batch:
            self._changed.clear()
            try:
                async with asyncio.timeout_at(until):
                    await self._changed.wait()
            except TimeoutError:
                break
            if first not in self._waiting:
                break
        return first in self._waiting  # it may have been cancelled at the end of its delay

    def _rows_like(self, first: _Job) -> int:
        return sum(job.rows for job in self._waiting if job.key == first.key)

    def _next_batch(self) -> list[_Job]:
        """The oldest request and those that run with it, taken out of the queue."""
        first = self._waiting.popleft()
        batch, rows = [first], first.rows
        if self.batched:
            for job in [job for job in self._waiting if job.key == first.key]:
                rows += job.rows
                if rows > self.limits.max_batch:
                    break
                batch.append(job)
                self._waiting.remove(job)
        return batch

    async def _execute(self, batch: list[_Job]) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for job in batch:
            self._observer.waited(self._name, now - job.queued)
        self._observer.batch(self._name, len(batch), sum(job.rows for job in batch))
        requests = [job.arrays for job in batch]
        outcomes = await loop.run_in_executor(
            self._threads, lambda: self._context.copy().run(self._outcomes, requests))
        for job, outcome in zip(batch, outcomes, strict=True):
            if job.future.done():
                continue  # cancelled in the meantime
            if isinstance(outcome, Exception):
                job.future.set_exception(outcome)
            else:
                job.future.set_result(outcome)

    def _outcomes(self, requests: Sequence[Arrays]) -> list[Outcome]:
        """The results or the error of each request; in a worker thread."""
        if len(requests) > 1:
            with suppress(Exception):  # each request gets its own error below
                return [*self._together(requests)]
        return [self._alone(arrays) for arrays in requests]

    def _together(self, requests: Sequence[Arrays]) -> list[Arrays]:
        counts = [len(arrays[0]) for arrays in requests]
        joined = [np.concatenate(arrays) for arrays in zip(*requests, strict=True)]
        results = self._run(joined)
        for result in results:
            if result.shape[:1] != (sum(counts),):
                raise InternalError("a result does not have the rows of the batch",
                                    where=self._name, expected=sum(counts), got=result.shape)
        ends = np.cumsum(counts)
        return [[result[end - count:end] for result in results]
                for end, count in zip(ends, counts, strict=True)]

    def _alone(self, arrays: Arrays) -> Outcome:
        try:
            return self._run(arrays)
        except Exception as error:  # noqa: BLE001 - the future carries it to the caller
            return error
