"""``TextSchedulers``: the schedulers of the decoders that share the requests for one model."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from weft.serving.observer import Observer
from weft.serving.refusal import overloaded
from weft.serving.text_scheduler import TextJob, TextScheduler


class TextSchedulers:
    """Gives each request to the scheduler with the fewest; their decoders are of one model."""

    def __init__(self, name: str, schedulers: Sequence[TextScheduler]) -> None:
        self.name = name
        self._schedulers = tuple(schedulers)

    @property
    def waiting(self) -> int:
        """Number of requests that wait for a slot of a decoder."""
        return sum(scheduler.waiting for scheduler in self._schedulers)

    @property
    def load(self) -> int:
        """Number of requests without a whole reply."""
        return sum(scheduler.load for scheduler in self._schedulers)

    def observe(self, observer: Observer) -> None:
        """Report to ``observer`` from now on."""
        for scheduler in self._schedulers:
            scheduler.observer = observer

    def check_room(self, count: int = 1) -> None:
        """``RefusedError`` unless the queues have room for ``count`` more requests."""
        for scheduler in self._schedulers:
            scheduler.check_room(0)  # whether it is stopping
        if sum(scheduler.room for scheduler in self._schedulers) < count:
            raise overloaded(f"{self.waiting} requests wait for {self.name}", status=429)

    def submit(self, prompt: list[int], **options: Any) -> TextJob:
        """Begin to generate, as ``TextScheduler.submit`` does."""
        return min(self._schedulers, key=lambda s: s.load).submit(prompt, **options)

    async def close(self) -> None:
        """Finish all requests, and end the threads."""
        await asyncio.gather(*(scheduler.close() for scheduler in self._schedulers))
