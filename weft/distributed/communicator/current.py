"""The communicator of this process, and those of threads that are ranks."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from weft.distributed.communicator.base import Communicator


class Current:
    """The communicator of the process, which ``communicator()`` returns."""

    def __init__(self) -> None:
        self.of_process: Communicator | None = None
        self._threads = threading.local()

    @property
    def of_thread(self) -> Communicator | None:
        return getattr(self._threads, "made", None)

    @contextlib.contextmanager
    def use(self, made: Communicator) -> Iterator[None]:
        """Let ``made`` be the communicator of this thread."""
        before, self._threads.made = self.of_thread, made
        try:
            yield
        finally:
            self._threads.made = before


CURRENT = Current()
