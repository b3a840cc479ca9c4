"""The functions that weft runs on a worker of Dask."""

from __future__ import annotations

import pickle
import threading
from dataclasses import replace
from typing import Any

import weft
from weft.runtime.executors.base import MEASURE, Call, Shared, Worker
from weft.runtime.executors.process_worker import SharedValues, result_of
from weft.runtime.executors.processes import Processes
from weft.support.errors import WorkerError

_isolated: list[Processes] = []
_lock = threading.Lock()
_values = SharedValues()


def facts(dask_worker: Any) -> Worker:
    """A worker of Dask, which Dask passes. One thread runs one call at a time."""
    state = dask_worker.state
    alone = {MEASURE: 1} if state.nthreads == 1 else {}
    return replace(Worker.here(str(dask_worker.name), dask_worker.address, state.nthreads),
                   resources={**alone, **state.total_resources})


def run_message(version: str, label: str, timeout: float | None, message: bytes,
                digests: list[str], *pickled: bytes) -> Any:
    """Run a call; its shared arguments are unpickled once. One with a timeout gets a process."""
    if version != weft.__version__:
        raise WorkerError(f"a worker has another version of weft than the call {label}",
                          expected=version, got=weft.__version__)
    if timeout is None:
        return _apply(message, digests, *pickled)
    shared = [Shared(f"bytes of {digest}", pickle.dumps(data))  # unpickled twice, there
              for digest, data in zip(digests, pickled, strict=True)]
    call = Call(_apply, (message, digests, *shared), timeout=timeout, label=label)
    with _lock:
        if not _isolated:
            _isolated.append(Processes(1, pin=False))
    return _isolated[0].run(call).result()


def _apply(message: bytes, digests: list[str], *pickled: bytes) -> Any:
    for digest, data in zip(digests, pickled, strict=True):
        _values.add(digest, data)
    return result_of(message, _values)
