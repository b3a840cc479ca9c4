"""``Executor``: an executor of the standard library that knows its workers and may lose them."""

from __future__ import annotations

import concurrent.futures
import hashlib
import pickle
import platform
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import field
from typing import Any

from weft.runtime.devices.cpu import host
from weft.support.dataclass import dataclass
from weft.support.errors import OptionError, RunTimeoutError, WorkerError

# A resource of which a worker has one: a call that asks for it runs alone on its worker.
MEASURE = "measure"


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker: the model and the instruction sets of its CPU, and its versions.

    ``Call.worker`` refers to its ``name``. ``cores`` are the CPUs that it is pinned to; empty for a
    worker that may use all. ``Call.resources`` may ask for its ``resources``.
    """

    name: str
    address: str
    cpu: str
    features: frozenset[str]
    threads: int
    python: str
    weft: str
    cores: tuple[int, ...] = ()
    resources: Mapping[str, float] = field(default_factory=lambda: {MEASURE: 1})

    @classmethod
    def here(cls, name: str, address: str = "", threads: int = 0,
             cores: tuple[int, ...] = ()) -> Worker:
        """The worker of this process."""
        import weft

        return cls(name, address, host.model_name(), frozenset(host.host_features()),
                   threads or host.usable_cpus(), platform.python_version(), weft.__version__,
                   cores)


@dataclass(frozen=True, slots=True)
class Shared:
    """A value that many calls take as an argument, and that each worker gets once."""

    digest: str
    pickled: bytes

    @classmethod
    def of(cls, value: Any) -> Shared:
        """A shared value; equal bytes are the same value."""
        data = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
        return cls(hashlib.sha256(data).hexdigest(), data)

    def value(self) -> Any:
        """A copy of the value."""
        return pickle.loads(self.pickled)  # noqa: S301 - ``of`` pickled it


@dataclass(frozen=True, slots=True)
class Call:
    """A call to run. The function is found by the name of its module, also where that is remote.

    Those ``args`` that are ``Shared`` are sent to each worker once. ``timeout`` is in seconds from
    the start of the call; a call that takes longer is killed with its process. ``worker`` names the
    worker that runs it; ``None`` means any. ``resources`` are those of the worker that the call
    uses while it runs, such as ``{"measure": 1}``. Errors name the call by its ``label``.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    timeout: float | None = None
    worker: str | None = None
    resources: Mapping[str, float] = field(default_factory=dict)
    label: str = ""

    @property
    def shared(self) -> tuple[Shared, ...]:
        """The shared arguments."""
        return tuple(arg for arg in self.args if isinstance(arg, Shared))

    def check(self, workers: Iterable[Worker]) -> None:
        """Raise ``WorkerError`` unless one of these workers can run the call."""
        found = list(workers)
        named = [w for w in found if self.worker in (None, w.name)]
        if not named:
            names = ", ".join(worker.name for worker in found)
            raise WorkerError(f"no worker {self.worker!r}" if self.worker else "no workers",
                              expected=names or None)
        if not any(all(worker.resources.get(name, 0) >= amount
                       for name, amount in self.resources.items()) for worker in named):
            raise WorkerError(f"no worker has the resources of the call {self}",
                              expected=dict(self.resources),
                              got=", ".join(f"{w.name}: {dict(w.resources)}" for w in named))

    def __str__(self) -> str:
        return self.label or getattr(self.function, "__qualname__", repr(self.function))


def worker_count(workers: int | None, threads: int) -> int:
    """``workers``, or as many as this process has CPUs for; raises ``OptionError`` below 1."""
    if threads < 1 or (workers is not None and workers < 1):
        raise OptionError("an executor needs a worker and a thread", expected="at least 1",
                          got=f"workers={workers}, threads={threads}")
    return max(1, host.usable_cpus() // threads) if workers is None else workers


class Executor(concurrent.futures.Executor, ABC):
    """Runs calls and gives futures of the standard library.

    ``submit``, ``map``, ``shutdown`` and ``with`` are those of the standard library; ``run`` takes
    a ``Call`` with a timeout and a worker. A future raises what its call raised,
    ``RunTimeoutError`` for a call that took too long, ``RunCancelledError`` for one that ``cancel``
    stopped, and ``WorkerError`` for one whose worker was lost more often than the executor allows.
    """

    @abstractmethod
    def run(self, call: Call) -> Future[Any]:
        """Start a call as soon as a worker is free."""

    @abstractmethod
    def workers(self) -> tuple[Worker, ...]:
        """The present workers."""

    @abstractmethod
    def cancel(self, futures: Iterable[Future[Any]]) -> None:
        """Stop calls, also running ones."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Start a call without a timeout on any worker."""
        return self.run(Call(fn, args, kwargs))

    def as_completed(self, futures: Iterable[Future[Any]], timeout: float | None = None
                     ) -> Iterator[Future[Any]]:
        """The futures in the order in which they end; ``RunTimeoutError`` after ``timeout`` s."""
        try:
            yield from concurrent.futures.as_completed(futures, timeout)
        except TimeoutError:
            raise RunTimeoutError("calls of an executor did not end in time",
                                  expected=f"all within {timeout} s") from None
