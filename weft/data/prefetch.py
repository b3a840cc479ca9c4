"""A thread that reads batches ahead of their use."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import Any


class Prefetcher:
    """An iterator over ``source`` that keeps up to ``depth`` items ready, made by a thread.

    An exception of the source is raised where its item would have been. ``close`` ends the thread
    after the item that it is reading.
    """

    def __init__(self, source: Iterator[Any], depth: int) -> None:
        self._source = source
        self._depth = depth
        self._items: deque[Any] = deque()
        self._error: BaseException | None = None
        self._finished = False
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._read, name="weft data prefetch", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        error: BaseException | None = None
        try:
            for item in self._source:
                if not self._put(item):
                    break
        except BaseException as raised:  # noqa: BLE001 - handed to the reader of the items
            error = raised
        with self._changed:
            self._error, self._finished = error, True
            self._changed.notify_all()

    def _put(self, item: Any) -> bool:
        """Add an item once there is room; False if the reader has closed."""
        with self._changed:
            while len(self._items) >= self._depth and not self._closed:
                self._changed.wait()
            self._items.append(item)
            self._changed.notify_all()
            return not self._closed

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        with self._changed:
            while not self._items and not self._finished:
                self._changed.wait()
            if self._items:
                item = self._items.popleft()
                self._changed.notify_all()
                return item
            error, self._error = self._error, None
        if error is not None:
            raise error
        raise StopIteration

    def close(self) -> None:
        """End the thread; items that are ready are dropped."""
        with self._changed:
            self._closed = True
            self._items.clear()
            self._changed.notify_all()
        self._thread.join()
