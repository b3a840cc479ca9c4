"""``TextScheduler``: continuous batching of the requests of an event loop by one ``Session``."""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeAlias

import numpy as np

from weft.generation.constraint import MakeConstraint
from weft.generation.request import Request, new_request
from weft.generation.sampling import RandomStream, Sampling
from weft.generation.session import Session
from weft.generation.stopping import Stopping
from weft.models.decoder import Decoder
from weft.serving.limits import Limits
from weft.serving.observer import SILENT, Observer
from weft.serving.refusal import RefusedError, overloaded

# Tokens of a prompt that one step reads, so that a long prompt does not hold up other requests.
PREFILL_CHUNK = 256

_Event: TypeAlias = "int | Exception | None"  # a token, the error of the request, or its end


class TextJob:
    """A request that is generated: an iterator over its tokens, in the event loop."""

    def __init__(self, scheduler: TextScheduler, request: Request) -> None:
        self.request = request
        self._scheduler = scheduler
        self._events: asyncio.Queue[_Event] = asyncio.Queue()
        self._open = True
        self.loop = asyncio.get_running_loop()
        self._began = self.loop.time()
        self._count = 0

    @property
    def finish_reason(self) -> str | None:
        """Why the generation ended."""
        return self.request.finish_reason

    async def tokens(self) -> AsyncIterator[int]:
        """The tokens as they are generated; raises the error that ended the generation."""
        while True:
            event = await self._events.get()
            if isinstance(event, Exception):
                raise event
            if event is None:
                return
            yield event

    def cancel(self) -> None:
        """End the generation, and give its slot to another request."""
        if self._open:
            self._scheduler.cancel(self)
            self.deliver(None)

    def deliver(self, event: _Event) -> None:
        """Pass an event on; the end and an error are the last one."""
        if not self._open:
            return
        observer, name = self._scheduler.observer, self._scheduler.name
        if isinstance(event, int):
            if not self._count:
                observer.first_token(name, self.loop.time() - self._began)
            self._count += 1
        else:
            self._open = False
            self._scheduler.closed(self)
            observer.tokens(name, len(self.request.prompt), self._count)
        self._events.put_nowait(event)


class TextScheduler:
    """Generates for many requests at once, in one thread that owns the decoder.

    Requests join and leave between the steps of the decoder; more than it has slots wait, up to
    ``limits.max_queue``. The first slots hold ``cached_prompts`` already. All methods belong to
    one event loop.
    """

    def __init__(self, decoder: Decoder, *, limits: Limits | None = None, name: str = "",
                 observer: Observer = SILENT, prefill_chunk: int = PREFILL_CHUNK,
                 cached_prompts: Sequence[np.ndarray] = ()) -> None:
        self.decoder = decoder
        self.name = name
        self.observer = observer
        self._limits = limits or Limits()
        self._session = Session(decoder, prefill_chunk=prefill_chunk)
        for slot, tokens in enumerate(cached_prompts):
            self._session.adopt(slot, tokens)
        self._inbox: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._jobs: set[TextJob] = set()
        self._active: dict[Request, TextJob] = {}  # of the thread
        self._events: list[tuple[TextJob, _Event]] = []  # of the present step
        self._thread: threading.Thread | None = None
        self._closing = False

    @property
    def waiting(self) -> int:
        """Number of requests that wait for a slot of the decoder."""
        return max(0, self.load - self.decoder.slots)

    @property
    def load(self) -> int:
        """Number of requests without a whole reply."""
        return len(self._jobs)

    @property
    def room(self) -> int:
        """Number of requests that it would still take."""
        return self.decoder.slots + self._limits.max_queue - self.load

    def check_room(self, count: int = 1) -> None:
        """``RefusedError`` unless the queue has room for ``count`` more requests."""
        if self._closing:
            raise RefusedError("the server is stopping", status=503, retry_after=1)
        if self.room < count:
            raise overloaded(f"{self.waiting} requests wait for {self.name}", status=429)

    def submit(self, prompt: list[int], *, sampling: Sampling, stopping: Stopping,
               stream: RandomStream, constraint: MakeConstraint | None = None) -> TextJob:
        """Begin to generate. Raises ``RefusedError`` if too many requests wait, and
        ``InvalidInputError`` and ``OptionError`` for requests that the decoder cannot serve.
        """
        self.check_room()
        request = new_request(self.decoder, prompt, sampling=sampling, stopping=stopping,
                              stream=stream,
                              constraint=None if constraint is None else constraint())
        job = TextJob(self, request)
        request.on_token = partial(self._on_token, job)
        self._jobs.add(job)
        self._inbox.put(partial(self._add, job))
        if self._thread is None:
            context = contextvars.copy_context()  # settings of the process, for the thread
            self._thread = threading.Thread(target=context.run, args=(self._work,),
                                            name=f"weft-serve-{self.name}", daemon=True)
            self._thread.start()
        return job

    def cancel(self, job: TextJob) -> None:
        """Take a request out of the session; ``TextJob.cancel`` calls it."""
        self._inbox.put(partial(self._drop, job))

    def closed(self, job: TextJob) -> None:
        """Forget a request whose last event was delivered."""
        self._jobs.discard(job)

    async def close(self) -> None:
        """Finish all requests, and end the thread."""
        self._closing = True
        if self._thread is not None:
            self._inbox.put(None)
            await asyncio.to_thread(self._thread.join)

    # The thread.

    def _work(self) -> None:
        session, stopping = self._session, False
        while not stopping or session.running or session.waiting:
            idle = not (session.running or session.waiting)
            while not self._inbox.empty() or (idle and not stopping):
                command = self._inbox.get()
                idle = False
                if command is None:
                    stopping = True
                else:
                    command()
            if session.running or session.waiting:
                self._step()
        session.clear()

    def _step(self) -> None:
        try:
            self._session.step()
        except Exception as error:  # noqa: BLE001 - each request gets it, and the thread goes on
            for request, job in list(self._active.items()):
                self._session.cancel(request)
                self._events.append((job, error))
            self._active.clear()
        self._deliver()

    def _deliver(self) -> None:
        """Wake each event loop once for all events of a step: switches of threads are slow."""
        events, self._events = self._events, []
        for loop in {job.loop for job, _ in events}:
            with suppress(RuntimeError):  # the loop has ended without waiting for its requests
                loop.call_soon_threadsafe(
                    _deliver_all, [event for event in events if event[0].loop is loop])

    def _add(self, job: TextJob) -> None:
        self._active[job.request] = job
        self._session.add(job.request)

    def _drop(self, job: TextJob) -> None:
        if self._active.pop(job.request, None) is not None:
            self._session.cancel(job.request)

    def _on_token(self, job: TextJob, token: int) -> None:
        self._events.append((job, token))
        if job.request.finished and self._active.pop(job.request, None) is not None:
            self._events.append((job, None))


def _deliver_all(events: Iterable[tuple[TextJob, _Event]]) -> None:
    for job, event in events:
        job.deliver(event)
