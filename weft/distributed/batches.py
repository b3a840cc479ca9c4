"""``map_batches``: a model on many batches, by the workers of an executor."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import ExitStack
from statistics import median
from typing import Any

import numpy as np

from weft.data import ArrayDataset, DataLoader
from weft.distributed.executors.opening import open_executor
from weft.distributed.worker_module import call_maker
from weft.runtime.executors import Call, Executor
from weft.support.dataclass import dataclass
from weft.support.errors import OptionError, WeftError

# A batch is late when it takes this many times as long as others, and this many seconds at least.
LATE_FACTOR, LATE_SECONDS = 4.0, 2.0
_KNOWN = 3  # so many times of other batches must be known
_POLL = 0.25
_AHEAD = 4  # batches in flight for each worker, unless a number is given


def map_batches(model: Any, dataset: Any, *, batch_size: int | None = None,
                executor: Executor | str = "dask", in_flight: int | None = None,
                timeout: float | None = None, speculate: bool = True,
                allowed_failures: int = 3, **options: Any) -> BatchResults:
    """The outputs of a model for all batches of a dataset, computed by the workers of an executor.

    ``model`` is what ``weft.compile`` takes, with its ``options``, a compiled module, the path of
    an artifact, or a function of a batch. A model is compiled for the CPUs of the workers, and each
    worker gets the artifact once. ``dataset`` is arrays (one, a tuple, or a mapping by the names of
    inputs) or a dataset of ``weft.data``, which are cut into batches of ``batch_size``; without a
    ``batch_size`` it yields batches itself, as a ``DataLoader`` does.

    ``executor`` is an executor or its name (``weft.distributed.executors.open_executor``). At most
    ``in_flight`` batches are read and not yet taken by the caller. A batch whose worker is lost
    runs again; one that takes much longer than others also runs on another worker, and the first
    result counts (``speculate``). ``timeout`` limits each batch. An exception names its batch.
    """
    if in_flight is not None and in_flight < 1:
        raise OptionError("in_flight is not positive", got=in_flight)
    return BatchResults(_Plan(model, dataset, batch_size, executor, in_flight, timeout, speculate,
                              allowed_failures, options))


@dataclass(frozen=True)
class _Plan:
    model: Any
    dataset: Any
    batch_size: int | None
    executor: Executor | str
    in_flight: int | None
    timeout: float | None
    speculate: bool
    allowed_failures: int
    options: Mapping[str, Any]


class BatchResults:
    """The outputs of all batches: in order when iterated, or ``as_completed``.

    Each iteration reads the dataset and runs the batches anew.
    """

    def __init__(self, plan: _Plan) -> None:
        self._plan = plan

    def __iter__(self) -> Iterator[Any]:
        for _, outputs in self._run(ordered=True):
            yield outputs

    def as_completed(self) -> Iterator[tuple[int, Any]]:
        """The number of each batch and its outputs, in the order in which they are ready."""
        return self._run(ordered=False)

    def _run(self, *, ordered: bool) -> Iterator[tuple[int, Any]]:
        plan = self._plan
        with ExitStack() as stack:
            executor = open_executor(plan.executor, allowed_failures=plan.allowed_failures)
            if executor is not plan.executor:
                # A caller that stops early leaves no calls that the end would wait for.
                stack.callback(executor.shutdown, cancel_futures=True)
            make = call_maker(plan.model, executor, plan.timeout, plan.options)
            flights = _Flights(executor, make, plan.speculate)
            stack.callback(flights.cancel)
            window = plan.in_flight or _AHEAD * flights.workers
            yield from _in_window(flights, batches_of(plan.dataset, plan.batch_size), window,
                                  ordered=ordered)


def _in_window(flights: _Flights, source: Iterator[Any], window: int, *, ordered: bool
               ) -> Iterator[tuple[int, Any]]:
    """Submit batches and yield results; at most ``window`` batches are on their way or kept."""
    ready: dict[int, Any] = {}
    read = taken = 0
    is_open = True
    while is_open or flights.count:
        while is_open and flights.count + len(ready) < window:
            is_open = _submit_next(flights, source, read)
            read += is_open
        ready.update(flights.landed())
        while ready and (not ordered or taken in ready):
            number = taken if ordered else next(iter(ready))
            outputs = ready.pop(number)
            taken += 1
            yield number, outputs


def _submit_next(flights: _Flights, source: Iterator[Any], number: int) -> bool:
    """Submit the next batch; whether there was one."""
    try:
        batch = next(source)
    except StopIteration:
        return False
    except Exception as error:
        raise _located(error, f"while reading batch {number} of the dataset") from error
    flights.submit(number, batch)
    return True


@dataclass(eq=False)
class _Flight:
    number: int
    call: Call
    started: float
    futures: list[Future[Any]]


class _Flights:
    """Batches that workers have; a late one has a copy."""

    def __init__(self, executor: Executor, make: Callable[[int, Any], Call], speculate: bool
                 ) -> None:
        self._executor, self._make, self._speculate = executor, make, speculate
        self._pending: dict[Future[Any], _Flight] = {}
        self._seconds: list[float] = []
        self._landed_at = time.monotonic()  # when the last result came
        self._free_since = self._landed_at  # since when a worker may have had nothing to do
        self.workers = max(1, len(executor.workers()))

    @property
    def count(self) -> int:
        """How many batches are on their way."""
        return len({flight.number for flight in self._pending.values()})

    def submit(self, number: int, batch: Any) -> None:
        call = self._make(number, batch)
        flight = _Flight(number, call, time.monotonic(), [])
        self._start(flight)

    def landed(self) -> Iterator[tuple[int, Any]]:
        """Wait a little for results; raises what a batch raised in all of its copies."""
        done, _ = wait(self._pending, _POLL, FIRST_COMPLETED)
        for future in done:
            flight = self._pending.pop(future, None)
            if flight is None:  # the copy of one that has landed
                continue
            flight.futures.remove(future)
            error = future.exception()
            if error is not None and flight.futures:
                continue  # its copy may succeed
            if error is not None:
                raise _located(error, f"batch {flight.number}") from error
            seconds, outputs = future.result()
            self._seconds.append(seconds)
            self._landed_at = time.monotonic()
            for other in flight.futures:
                self._pending.pop(other)
            self._executor.cancel(flight.futures)
            yield flight.number, outputs
        if self._speculate:
            self._copy_late()

    def cancel(self) -> None:
        """Stop all that are on their way."""
        futures, self._pending = list(self._pending), {}
        self._executor.cancel(futures)

    def _start(self, flight: _Flight) -> None:
        future = self._executor.run(flight.call)
        flight.futures.append(future)
        self._pending[future] = flight

    def _copy_late(self) -> None:
        """Start copies of late batches where a worker is free, or where all seem to be stuck.

        Dask gives batches to workers ahead, so that one may wait behind another that hangs.
        """
        now = time.monotonic()
        if len(self._pending) >= self.workers:
            self._free_since = self._landed_at
        if len(self._seconds) < _KNOWN:
            return
        limit = max(LATE_SECONDS, LATE_FACTOR * median(self._seconds[-100:]))
        for flight in list(self._pending.values()):
            began = max(flight.started, self._free_since)
            if len(flight.futures) == 1 and now - began > limit:
                self._start(flight)


def batches_of(dataset: Any, batch_size: int | None) -> Iterator[Any]:
    """The batches of a dataset, as ``map_batches`` reads it."""
    if batch_size is None:
        if isinstance(dataset, np.ndarray) or not isinstance(dataset, Iterable):
            raise OptionError("a dataset that is no iterable of batches needs batch_size=",
                              got=type(dataset).__name__)
        return iter(dataset)
    if isinstance(dataset, Mapping):
        names = tuple(dataset)
        loader = DataLoader(ArrayDataset(*dataset.values()), batch_size)
        return (dict(zip(names, batch if len(names) > 1 else (batch,), strict=True))
                for batch in loader)
    if isinstance(dataset, np.ndarray):
        dataset = ArrayDataset(dataset)
    elif isinstance(dataset, tuple) and all(isinstance(x, np.ndarray) for x in dataset):
        dataset = ArrayDataset(*dataset)
    return iter(DataLoader(dataset, batch_size))


def _located(error: BaseException, where: str) -> BaseException:
    if isinstance(error, WeftError):
        return error.at(where, *(() if error.where is None else (where,)))
    error.add_note(where)
    return error
