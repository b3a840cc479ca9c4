"""Ranks that are threads of one process."""

from __future__ import annotations

import queue
import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from weft.distributed.communicator.base import REDUCTIONS, Communicator
from weft.distributed.communicator.current import CURRENT
from weft.distributed.communicator.health import TIMEOUT, Health
from weft.eager.functions.random import get_rng_state, own_generator
from weft.support.errors import DistributedError


class _Meeting:
    """Where the ranks of one group leave arrays for each other."""

    def __init__(self, members: list[int]) -> None:
        self.members = members
        self.boxes: defaultdict[tuple[int, int, int], queue.SimpleQueue[np.ndarray]] = \
            defaultdict(queue.SimpleQueue)


class _World:
    """The state that the threads of one world share; it is their board."""

    beats = False

    def __init__(self, size: int) -> None:
        self.lines: dict[int, str] = {}
        self.meetings: dict[str, _Meeting] = {"": _Meeting(list(range(size)))}
        self.lock = threading.Lock()

    def meeting(self, name: str, members: list[int]) -> _Meeting:
        with self.lock:
            return self.meetings.setdefault(name, _Meeting(members))

    def box(self, meeting: _Meeting, key: tuple[int, int, int]) -> queue.SimpleQueue[np.ndarray]:
        with self.lock:
            return meeting.boxes[key]


class _Board:
    """The board as one rank writes it."""

    beats = False

    def __init__(self, world: _World, rank: int) -> None:
        self._world, self._rank = world, rank

    def publish(self, line: str) -> None:
        self._world.lines[self._rank] = line

    def read(self) -> dict[int, str]:
        return dict(self._world.lines)


class LocalCommunicator(Communicator):
    """A rank that is a thread. Arrays pass through queues in memory."""

    backend = "local"
    _COLLECTIVE = -1  # the tag of collectives

    def __init__(self, world: _World, name: str, rank: int, health: Health, *,
                 deterministic: bool) -> None:
        self._world, self._name = world, name
        self._meeting = world.meetings[name]
        super().__init__(rank, len(self._meeting.members), health, deterministic=deterministic)

    def _send(self, array: np.ndarray, peer: int, tag: int) -> None:
        self._world.box(self._meeting, (self.rank, peer, tag)).put(array.copy())

    def _receive(self, array: np.ndarray, peer: int, tag: int) -> None:
        found = self._world.box(self._meeting, (peer, self.rank, tag)).get()
        if found.nbytes != array.nbytes:
            raise DistributedError(f"rank {peer} sent an array of another size",
                                   where=f"receive on rank {self.rank}",
                                   expected=f"{array.nbytes} bytes", got=f"{found.nbytes} bytes")
        array[...] = found

    def _exchange(self, parts: list[np.ndarray]) -> list[np.ndarray]:
        for peer, part in enumerate(parts):
            self._send(part, peer, self._COLLECTIVE)
        found = [np.empty_like(parts[0]) for _ in parts]
        for peer, array in enumerate(found):
            self._receive(array, peer, self._COLLECTIVE)
        return found

    def _gather(self, array: np.ndarray) -> list[np.ndarray]:
        return self._exchange([array] * self.size)

    def _all_reduce(self, array: np.ndarray, op: str) -> None:
        total, *others = [b.view(array.dtype) for b in self._gather(array.view(np.uint8))]
        for other in others:
            REDUCTIONS[op](total, other, out=total)
        array[...] = total

    def _broadcast(self, array: np.ndarray, root: int) -> None:
        if self.rank == root:
            for peer in range(self.size):
                if peer != root:
                    self._send(array, peer, self._COLLECTIVE)
        else:
            self._receive(array, root, self._COLLECTIVE)

    def _subgroup(self, members: list[int], name: str) -> Communicator:
        full = f"{self._name}/{name}"
        self._world.meeting(full, [self._meeting.members[m] for m in members])
        return LocalCommunicator(self._world, full, members.index(self.rank), self.health,
                                 deterministic=self.deterministic)


def alone(*, deterministic: bool = False) -> Communicator:
    """The communicator of a world of one rank."""
    world = _World(1)
    return LocalCommunicator(world, "", 0, Health(_Board(world, 0), 0, 1),
                             deterministic=deterministic)


def run_local(size: int, function: Callable[..., Any], *args: Any, deterministic: bool = False,
              timeout: float = TIMEOUT) -> list[Any]:
    """Run ``function(communicator, *args)`` on ``size`` ranks that are threads; their results.

    Each rank draws from a generator of its own, which starts from the caller's state.

    Raises ``DistributedError`` with the first error of a rank.
    """
    world, drawn = _World(size), get_rng_state()

    def one(rank: int) -> Any:
        health = Health(_Board(world, rank), rank, size, timeout)
        made = LocalCommunicator(world, "", rank, health, deterministic=deterministic)
        with CURRENT.use(made), own_generator(drawn):
            try:
                found = function(made, *args)
            except BaseException as error:
                if not isinstance(error, DistributedError):
                    what = f"rank {rank} failed: {type(error).__name__}: {error}"
                    health.end(what, rank)
                    raise DistributedError(what, where=f"rank {rank}") from error
                health.end(error.what, rank)
                raise
            health.end()
            return found

    with ThreadPoolExecutor(size, thread_name_prefix="weft rank") as pool:
        futures = [pool.submit(one, rank) for rank in range(size)]
    errors = [e for f in futures if (e := f.exception()) is not None]
    if errors:
        raise next((e for e in errors if e.__cause__ is not None), errors[0])
    return [future.result() for future in futures]
