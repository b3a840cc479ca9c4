"""``RateLimiter``: slows down the clients that cause errors, and no others."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable

_MEMORY = 10.0  # seconds after an error in which its address may be slowed down
_REMEMBERED = 4096  # addresses; beyond them the one with the oldest last error is forgotten


class RateLimiter:
    """A leaky bucket of errors, which delays new connections of the addresses that cause them.

    All clients together may cause ``rate`` errors a second. Beyond that, new connections of
    addresses with a recent error enter one by one, ``rate`` a second, round-robin by address. A
    waiting connection costs neither parsing nor routing, so a flood leaves the event loop to valid
    requests.
    """

    def __init__(self, rate: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._count, self._counted = 0.0, clock()
        self._errors: OrderedDict[str, float] = OrderedDict()  # the time of the last one
        self._waiting: OrderedDict[str, dict[Callable[[], None], None]] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """How many connections wait."""
        return sum(map(len, self._waiting.values()))

    def error(self, address: str) -> None:
        """Count a failed request, or a connection without one."""
        self._count = min(self._level() + 1, _MEMORY * self._rate)
        self._counted = self._errors[address] = self._clock()
        self._errors.move_to_end(address)
        if len(self._errors) > _REMEMBERED:
            self._errors.popitem(last=False)

    def blocks(self, address: str) -> bool:
        """Whether new connections of this address wait."""
        last = self._errors.get(address)
        return (last is not None and self._clock() - last < _MEMORY
                and self._level() > self._rate)

    def wait(self, address: str, enter: Callable[[], None]) -> None:
        """Call ``enter`` when it is the turn of this address and of this connection."""
        self._waiting.setdefault(address, {})[enter] = None
        self._turn_later()

    def leave(self, address: str, enter: Callable[[], None]) -> None:
        """Wait no longer."""
        queue = self._waiting.get(address, {})
        queue.pop(enter, None)
        if not queue:
            self._waiting.pop(address, None)

    def _level(self) -> float:
        """The errors in the bucket, which ``rate`` a second leave."""
        return max(0.0, self._count - (self._clock() - self._counted) * self._rate)

    def _turn_later(self) -> None:
        if self._timer is None and self._waiting:
            self._timer = asyncio.get_running_loop().call_later(1 / self._rate, self._turn)

    def _turn(self) -> None:
        self._timer = None
        if self._waiting:
            address, queue = next(iter(self._waiting.items()))
            self._waiting.move_to_end(address)
            enter = next(iter(queue))
            self.leave(address, enter)
            enter()
        self._turn_later()
