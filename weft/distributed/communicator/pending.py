"""Operations that run while the program goes on, and the threads that run them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from weft.support.errors import DistributedError

if TYPE_CHECKING:
    from weft.distributed.communicator.health import Health

_CHECK_EVERY = 0.25  # seconds
_SETTLES_IN = 1.0


class Pending:
    """An operation that was started; ``wait`` returns its result."""

    def __init__(self, name: str, health: Health, work: Callable[[], Any]) -> None:
        self.name = name
        self._health = health
        self._work = work
        self._ended = threading.Event()
        self._result: Any = None
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._result = self._work()
        except BaseException as error:  # noqa: BLE001 - raised by ``wait``
            self._error = error
        del self._work
        self._ended.set()

    def done(self) -> bool:
        """Whether ``wait`` returns at once."""
        return self._ended.is_set()

    def wait(self) -> Any:
        """The result. Raises ``DistributedError`` that names a rank which is dead or late."""
        health = self._health
        if not self._ended.wait(0.002):
            start = time.monotonic()
            with health.waiting(self.name):
                while not self._ended.wait(_CHECK_EVERY):
                    health.check(self.name, time.monotonic() - start)
        if self._error is not None:
            if not isinstance(self._error, DistributedError):
                health.explain(self.name, self._error)
            raise self._error
        return self._result


class Lanes:
    """Threads that run operations. Those of one lane run one after the other, as they were started.

    A lane has a thread only while it has operations.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: dict[Hashable, deque[Pending]] = {}

    def start(self, lane: Hashable, pending: Pending) -> Pending:
        with self._lock:
            queue = self._queues.get(lane)
            if queue is not None:
                queue.append(pending)
                return pending
            self._queues[lane] = deque([pending])
        threading.Thread(target=self._run, args=(lane,), daemon=True,
                         name=f"weft communicator {lane}").start()
        return pending

    def settle(self) -> None:
        """Wait a moment for operations that end by themselves."""
        end = time.monotonic() + _SETTLES_IN
        while self._queues and time.monotonic() < end:
            time.sleep(0.001)

    def _run(self, lane: Hashable) -> None:
        while True:
            with self._lock:
                queue = self._queues[lane]
                if not queue:
                    del self._queues[lane]
                    return
                pending = queue.popleft()
            pending.run()
