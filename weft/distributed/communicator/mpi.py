"""Ranks that ``mpiexec`` starts, with mpi4py."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any

import numpy as np

from weft.distributed.communicator.base import Communicator
from weft.distributed.communicator.health import TIMEOUT, Health
from weft.support.errors import MissingToolError


def _mpi() -> Any:
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # a missing library of MPI is a RuntimeError
        raise MissingToolError("the back end mpi needs mpi4py and a library of MPI",
                               got=str(error).splitlines()[0],
                               help="pip install mpi4py mpich") from None
    return MPI


class _Board:
    """Lines that ranks send each other; the last one of each counts."""

    beats = True
    _MOST = 4  # lines under way to a rank that does not read them

    def __init__(self, world: Any) -> None:
        self._world = world
        self._lines: dict[int, str] = {}
        self._sent: defaultdict[int, list[Any]] = defaultdict(list)

    def publish(self, line: str) -> None:
        self._lines[self._world.rank] = line
        for peer in range(self._world.size):
            if peer != self._world.rank:
                under_way = self._sent[peer] = [r for r in self._sent[peer] if not r.Test()]
                if len(under_way) < self._MOST:
                    under_way.append(self._world.isend(line, peer))
        self._take()

    def read(self) -> dict[int, str]:
        self._take()
        return dict(self._lines)

    def _take(self) -> None:
        mpi = _mpi()
        while True:
            message = self._world.improbe(mpi.ANY_SOURCE)
            if message is None:
                return
            status = mpi.Status()
            line = message.recv(status=status)
            self._lines[status.Get_source()] = line


class MPICommunicator(Communicator):
    """A rank of MPI. Operations are polled, so that ranks that wait use no CPU."""

    backend = "mpi"

    def __init__(self, world: Any, health: Health, *, deterministic: bool) -> None:
        super().__init__(world.rank, world.size, health, deterministic=deterministic)
        self._world = world
        mpi = _mpi()
        self._ops = {"sum": mpi.SUM, "max": mpi.MAX, "min": mpi.MIN, "prod": mpi.PROD}
        self._in_place = mpi.IN_PLACE

    def _all_reduce(self, array: np.ndarray, op: str) -> None:
        _complete(self._world.Iallreduce(self._in_place, array, self._ops[op]))

    def _gather(self, array: np.ndarray) -> list[np.ndarray]:
        found = np.empty((self.size, *array.shape), array.dtype)
        _complete(self._world.Iallgather(array, found))
        return list(found)

    def _exchange(self, parts: list[np.ndarray]) -> list[np.ndarray]:
        given = np.stack(parts)
        found = np.empty_like(given)
        _complete(self._world.Ialltoall(given, found))
        return list(found)

    def _broadcast(self, array: np.ndarray, root: int) -> None:
        _complete(self._world.Ibcast(array, root))

    def _send(self, array: np.ndarray, peer: int, tag: int) -> None:
        _complete(self._world.Isend(array, peer, tag))

    def _receive(self, array: np.ndarray, peer: int, tag: int) -> None:
        _complete(self._world.Irecv(array, peer, tag))

    def _subgroup(self, members: list[int], name: str) -> Communicator:  # noqa: ARG002 - gloo's
        made = self._world.Split(members[0], self.rank)
        return MPICommunicator(made, self.health, deterministic=self.deterministic)


def _complete(request: Any) -> None:
    pause = 2e-5
    while not request.Test():
        time.sleep(pause)
        pause = min(pause * 1.5, 2e-3)


def connect(*, deterministic: bool, timeout: float = TIMEOUT) -> Communicator:
    """The world of MPI, with communicators of its own."""
    world = _mpi().COMM_WORLD
    health = Health(_Board(world.Dup()), world.rank, world.size, timeout)
    return MPICommunicator(world.Dup(), health, deterministic=deterministic)
