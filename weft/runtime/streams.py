"""``Streams``: calls of a module in threads of their own, with futures."""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from weft.runtime.devices.cpu.thread_pool import MAX_THREADS
from weft.runtime.devices.cpu.threads import checked_count, num_threads
from weft.runtime.launchers import Launch, Launcher
from weft.runtime.signature import Signature
from weft.support.dataclass import dataclass
from weft.support.errors import InvalidInputError, OptionError

if TYPE_CHECKING:
    from weft.runtime.executable import Executable

# The CPUs that all streams may use, or those of each.
CpuSets: TypeAlias = "AbstractSet[int] | Sequence[AbstractSet[int]]"

# How many calls wait for each stream by default.
_WAITING_PER_STREAM = 2


class Streams:
    """Threads that run calls of a module at the same time, over one copy of its weights.

    Each stream has code, arenas and a pool of ``threads`` threads of its own, pinned to its CPUs if
    ``cpus`` are given. ``submit`` gives a future of the result, which has the bits of a call; an
    error of the call is raised by ``Future.result``, and ``Future.cancel`` cancels a call that has
    not begun. Arguments are read when the call runs: do not write to them before its future is
    done. While ``max_queue`` calls wait, ``submit`` blocks, except in a callback of a future.

    A module with state has one stream, which runs calls in the order of ``submit``. A single stream
    without ``threads`` and ``cpus`` calls the module itself. A forked child starts streams of its
    own; what was submitted before runs in the parent alone.

    A context: its end waits for all calls, and cancels those that have not begun if an exception
    ends it. Any thread may use it.
    """

    def __init__(self, module: Executable, count: int | None = None, *,
                 threads: int | None = None, cpus: CpuSets | None = None,
                 max_queue: int | None = None) -> None:
        sets = _sets_of(cpus)
        self.count, self.threads = _counts(module, count, threads, sets)
        if self.count > 1 and module.state:
            raise OptionError("a module with state has one stream", got=f"count={self.count}",
                              help="use one: its calls run in the order of submit")
        if max_queue is None:
            max_queue = _WAITING_PER_STREAM * self.count
        if not isinstance(max_queue, int) or isinstance(max_queue, bool) or max_queue < 0:
            raise OptionError("invalid max_queue", expected="0 or more", got=repr(max_queue))
        self.module = module
        self._limit = self.count + max_queue
        self._signature = Signature(module.manifest)
        is_plain = self.count == 1 and threads is None and not sets
        self._owners = [] if is_plain else _taken(
            [sets[number % len(sets)] if sets else None for number in range(self.count)])
        self._finalizer = weakref.finalize(self, _give_back, self._owners)
        self._is_closed = False
        self._start()
        _all.add(self)

    def _start(self) -> None:
        """Make the executor, whose threads start with the first calls."""
        streams: deque[_Stream] = deque([_Stream(owner, self.threads) for owner in self._owners]
                                        or [_Stream(None, self.threads)])
        self._slots = threading.Semaphore(self._limit)
        # The threads refer neither to this object nor to the module: both may be collected.
        self._executor = ThreadPoolExecutor(self.count, "weft-stream", _become, (streams,))
        if self._is_closed:
            self._executor.shutdown()

    def submit(self, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """A future of the result of a call with these arguments, ``out`` included.

        Raises ``InvalidInputError`` after ``close``.
        """
        slots = self._slots
        is_held = slots.acquire(blocking=not hasattr(_here, "stream"))
        try:
            future = self._executor.submit(_call, self.module, self._signature, args, kwargs)
        except RuntimeError as error:
            if is_held:
                slots.release()
            raise InvalidInputError("the streams are closed", got=error,
                                    help="make new ones by mod.streams()") from None
        if is_held:
            future.add_done_callback(lambda _: slots.release())
        return future

    def map(self, *inputs: Iterable[Any]) -> Iterator[Any]:
        """The results in order, for one iterable for each input.

        Iterables are read as far ahead as calls may wait.
        """
        waiting: deque[Future[Any]] = deque()
        try:
            for args in zip(*inputs, strict=False):
                if len(waiting) >= self._limit:
                    yield waiting.popleft().result()
                waiting.append(self.submit(*args))
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()

    def close(self, *, cancel: bool = False) -> None:
        """Wait for all calls; with ``cancel``, cancel those that have not begun."""
        self._is_closed = True
        # A callback of a future cannot wait for the thread that it runs in.
        self._executor.shutdown(wait=not hasattr(_here, "stream"), cancel_futures=cancel)
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(cancel=kind is not None)

    def __repr__(self) -> str:
        return (f"<{type(self).__name__} {self.count} x {self.threads} threads of "
                f"{self.module.manifest.signature()}>")


@dataclass(frozen=True, slots=True)
class _Owner:
    """The owner of a pool of threads on some CPUs (``None``: any); one stream at a time."""

    cpus: frozenset[int] | None
    number: int


class _Stream:
    """What a thread runs calls with; without an owner, the launches of the module."""

    def __init__(self, owner: _Owner | None, num_threads: int) -> None:
        self._owner = owner
        self._num_threads = num_threads
        # By those of the module, which improvement, eviction and collection replace or end.
        self._launchers: weakref.WeakKeyDictionary[Launcher, Launcher]
        self._launchers = weakref.WeakKeyDictionary()
        self._launches: weakref.WeakKeyDictionary[Launch, Launch] = weakref.WeakKeyDictionary()

    def pin(self) -> None:
        """Let this thread, and those that it starts, run on the CPUs of the stream alone."""
        if self._owner is not None and self._owner.cpus is not None:
            os.sched_setaffinity(0, self._owner.cpus)

    def own(self, launch: Launch) -> Launch:
        """The launch of this stream for a launch of the module."""
        if self._owner is None:
            return launch
        found = self._launches.get(launch)
        if found is None:
            launcher = self._launchers.get(launch.launcher)
            if launcher is None:
                launcher = launch.launcher.reopened(self._num_threads, self._owner)
                self._launchers[launch.launcher] = launcher
            found = self._launches[launch] = launch.on(launcher)
        return found


_here = threading.local()
_all: weakref.WeakSet[Streams] = weakref.WeakSet()
_owners: set[_Owner] = set()
_owners_lock = threading.Lock()


def _become(streams: deque[_Stream]) -> None:
    """Make this thread the next of the streams."""
    _here.stream = streams.popleft()
    _here.stream.pin()


def _call(module: Executable, signature: Signature, args: Sequence[Any], kwargs: dict[str, Any]
          ) -> Any:
    out = None if signature.takes("out") else kwargs.pop("out", None)
    values = signature.bind(args, kwargs)
    launch = _here.stream.own(module.launch_for(values))
    if out is not None:
        return launch.execute_into(values, out)
    results = launch.execute(values)
    return tuple(results) if launch.returns_tuple else results[0]


def _counts(module: Executable, count: int | None, threads: int | None,
            sets: Sequence[frozenset[int]]) -> tuple[int, int]:
    """The number of streams, and of the threads of each."""
    total = len(frozenset().union(*sets)) if sets else num_threads(module.threads)
    threads = checked_count(threads)
    if count is None:
        count = len(sets) if len(sets) > 1 else max(1, total // (threads or 1))
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MAX_THREADS:
        raise OptionError("invalid number of streams", expected=f"1 to {MAX_THREADS}",
                          got=repr(count))
    if len(sets) > 1 and len(sets) != count:
        raise OptionError("invalid CPU sets of streams", expected=f"one set, or {count}",
                          got=f"{len(sets)} sets")
    return count, threads or max(1, total // count)


def _sets_of(cpus: CpuSets | None) -> list[frozenset[int]]:
    """The CPU sets; ``OptionError`` for CPUs that this process may not use."""
    if cpus is None:
        return []
    if not hasattr(os, "sched_setaffinity"):
        raise OptionError("this system does not pin threads to CPUs", got=f"cpus={cpus!r}")
    usable = os.sched_getaffinity(0)
    try:
        sets = [frozenset(cpus)] if isinstance(cpus, AbstractSet) else [*map(frozenset, cpus)]
    except TypeError:
        sets = []
    if not sets or not all(one and one <= usable for one in sets):
        raise OptionError("invalid CPU sets of streams", got=f"cpus={cpus!r}",
                          expected=f"a set, or a sequence of sets, of {sorted(usable)}")
    return sets


def _taken(sets: Iterable[frozenset[int] | None]) -> list[_Owner]:
    """An owner for each stream that no other stream has: pools outlive streams and are reused."""
    owners = []
    with _owners_lock:
        for cpus in sets:
            owner = next(one for one in map(_Owner, itertools.repeat(cpus), itertools.count())
                         if one not in _owners)
            _owners.add(owner)
            owners.append(owner)
    return owners


def _give_back(owners: Iterable[_Owner]) -> None:
    _owners.difference_update(owners)


def _after_fork() -> None:
    """Start all streams of a forked child anew: the threads are those of the parent."""
    global _owners_lock  # noqa: PLW0603 - another thread may have held the old one
    _owners_lock = threading.Lock()
    vars(_here).clear()
    for streams in list(_all):
        streams._start()  # noqa: SLF001 - of this module


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
