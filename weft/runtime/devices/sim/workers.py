"""Workers: threads that run the work of a device or of a link, one piece after the other.

A worker is one of the process: the modules and calls of the process share its device, as they would
share a real one. Its thread starts with the first piece of work and waits without using the CPU.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from typing import TypeAlias

from weft.runtime.device import Device

# From a memory to a memory; the kernels of a device work within one.
WorkerKey: TypeAlias = "tuple[Device, Device]"
Work: TypeAlias = "Callable[[], None]"


class Worker:
    """A thread that runs what it is given, in order. The work raises nothing."""

    __slots__ = ("_work",)

    def __init__(self, name: str) -> None:
        self._work: queue.SimpleQueue[Work] = queue.SimpleQueue()
        # The thread must not keep the process alive, and runs compiled code without Python's lock.
        threading.Thread(target=_serve, args=(self._work,), name=name, daemon=True).start()

    def submit(self, work: Work) -> None:
        """Run ``work`` after what was submitted before."""
        self._work.put(work)


def _serve(work: queue.SimpleQueue[Work]) -> None:
    while True:
        work.get()()


class Workers:
    """The workers of a process, made when they are first used."""

    def __init__(self) -> None:
        self._workers: dict[WorkerKey, Worker] = {}
        self._lock = threading.Lock()

    def worker(self, key: WorkerKey) -> Worker:
        """The worker of a device, or of a link."""
        found = self._workers.get(key)
        if found is None:
            with self._lock:
                found = self._workers.get(key) or self._workers.setdefault(
                    key, Worker(worker_name(key)))
        return found

    def forget(self) -> None:
        """Start anew in a forked child, which has no threads."""
        self._workers = {}
        self._lock = threading.Lock()


def worker_name(key: WorkerKey) -> str:
    """``sim:0`` for its kernels, ``sim:0 -> sim:1`` for copies."""
    source, destination = key
    return str(destination) if source == destination else f"{source} -> {destination}"


WORKERS = Workers()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=WORKERS.forget)
