"""Ranks that are processes, with the transport of ``torch.distributed``: gloo."""

from __future__ import annotations

import functools
import ipaddress
import itertools
import os
import socket
from datetime import timedelta
from typing import Any

import numpy as np

from weft.distributed.communicator.base import Communicator
from weft.distributed.communicator.health import SILENCE, TIMEOUT, Health
from weft.support.errors import DistributedError, MissingToolError, OptionError

_JOIN = 60.0  # seconds in which all ranks start


def _torch_distributed() -> Any:
    try:
        import torch.distributed as found
    except ImportError:
        raise MissingToolError("the back end gloo needs torch",
                               help="install weft[torch], or use the back end mpi") from None
    return found


class _Board:
    """A line of each rank in the key-value store of rank 0 or of torchrun."""

    beats = True

    def __init__(self, store: Any, rank: int, size: int) -> None:
        self._store, self._rank, self._size = store, rank, size
        store.set_timeout(timedelta(seconds=SILENCE / 2))

    def publish(self, line: str) -> None:
        self._store.set(f"weft/life/{self._rank}", line)

    def read(self) -> dict[int, str]:
        found = self._store.multi_get([f"weft/life/{r}" for r in range(self._size)])
        return {rank: line.decode() for rank, line in enumerate(found)}


class GlooCommunicator(Communicator):
    """A rank that is a process. Tensors of torch share the memory of the arrays."""

    backend = "gloo"

    def __init__(self, store: Any, rank: int, size: int, health: Health, *,
                 deterministic: bool, timeout: float) -> None:
        super().__init__(rank, size, health, deterministic=deterministic)
        dist = _torch_distributed()
        self._store, self._timeout = store, timeout
        options = dist.ProcessGroupGloo._Options()  # noqa: SLF001 - torch has no other
        options._timeout = timedelta(seconds=timeout)  # noqa: SLF001
        options._devices = [_device(dist)]  # noqa: SLF001
        self._group = dist.ProcessGroupGloo(store, rank, size, options)
        self._ops = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX,
                     "min": dist.ReduceOp.MIN, "prod": dist.ReduceOp.PRODUCT}
        self._dist = dist

    def _all_reduce(self, array: np.ndarray, op: str) -> None:
        options = self._dist.AllreduceOptions()
        options.reduceOp = self._ops[op]
        self._group.allreduce([_tensor(array)], options).wait()

    def _gather(self, array: np.ndarray) -> list[np.ndarray]:
        found = [np.empty_like(array) for _ in range(self.size)]
        if array.size:
            self._group.allgather([[_tensor(a) for a in found]], [_tensor(array)]).wait()
        return found

    def _exchange(self, parts: list[np.ndarray]) -> list[np.ndarray]:
        given = np.stack(parts)
        found = np.empty_like(given)
        if given.size:
            self._group.alltoall_base(_tensor(found.reshape(-1)), _tensor(given.reshape(-1)),
                                      [], []).wait()
        return list(found)

    def _broadcast(self, array: np.ndarray, root: int) -> None:
        if array.size:
            options = self._dist.BroadcastOptions()
            options.rootRank, options.rootTensor = root, 0
            self._group.broadcast([_tensor(array)], options).wait()

    def _send(self, array: np.ndarray, peer: int, tag: int) -> None:
        if array.size:
            self._group.send([_tensor(array)], peer, tag).wait()

    def _receive(self, array: np.ndarray, peer: int, tag: int) -> None:
        if array.size:
            self._group.recv([_tensor(array)], peer, tag).wait()

    def _subgroup(self, members: list[int], name: str) -> Communicator:
        store = self._dist.PrefixStore(f"split/{name}", self._store)
        return GlooCommunicator(store, members.index(self.rank), len(members), self.health,
                                deterministic=self.deterministic, timeout=self._timeout)


def connect(rank: int, size: int, address: str, port: int, *, deterministic: bool,
            timeout: float = TIMEOUT) -> Communicator:
    """Join the world whose rank 0 (or torchrun) keeps the store at ``address``."""
    dist = _torch_distributed()
    number = next(_WORLDS)
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    own, lines = (dist.PrefixStore(f"weft/{restarts}/{number}", store)
                  for store in _stores(rank, address, port))
    board = _Board(lines, rank, size)
    board.publish("{}")
    _join(own, rank, size)
    health = Health(board, rank, size, timeout)
    own.set(f"live/{rank}", b"1")
    own.wait([f"live/{r}" for r in range(size)])
    return GlooCommunicator(own, rank, size, health, deterministic=deterministic, timeout=timeout)


_WORLDS = itertools.count()  # of this process, one after the other


@functools.cache
def _stores(rank: int, address: str, port: int) -> tuple[Any, Any]:
    """Two connections to the store: operations, and heartbeats that do not wait for them."""
    dist = _torch_distributed()
    agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    hosts = rank == 0 and not agent
    try:
        return tuple(dist.TCPStore(address, port, None, first and hosts,  # type: ignore[return-value]
                                   timedelta(seconds=_JOIN), wait_for_workers=False)
                     for first in (True, False))
    except (RuntimeError, ValueError) as error:  # DistNetworkError is a RuntimeError
        raise DistributedError(
            "rank 0 cannot open its port" if hosts else "rank 0 does not answer",
            where=f"rank {rank}", expected=f"rank 0 at {address}:{port}",
            got=str(error).splitlines()[0],
            help="MASTER_ADDR and MASTER_PORT name the host of rank 0") from None


def _join(store: Any, rank: int, size: int) -> None:
    """Wait for all ranks; name those that do not come."""
    store.set(f"joined/{rank}", b"1")
    try:
        store.wait([f"joined/{r}" for r in range(size)], timedelta(seconds=_JOIN))
    except RuntimeError as error:
        missing = [r for r in range(size) if not store.check([f"joined/{r}"])]
        raise DistributedError(f"rank {', '.join(map(str, missing))} did not start",
                               where=f"rank {rank}", got=f"waited for {_JOIN:.0f} s",
                               notes=[str(error).splitlines()[0]]) from None


def _device(dist: Any) -> Any:
    """The network interface: loopback if rank 0 is there."""
    address = os.environ.get("MASTER_ADDR", "127.0.0.1")
    try:
        resolved = socket.gethostbyname(address)
    except OSError as error:
        raise OptionError("MASTER_ADDR names an unknown host", got=f"{address} ({error})") from None
    if ipaddress.ip_address(resolved).is_loopback:
        return dist.ProcessGroupGloo.create_device(hostname="127.0.0.1")
    return dist.ProcessGroupGloo.create_default_device()


def _tensor(array: np.ndarray) -> Any:
    import torch

    # Torch warns of arrays that are read-only, as views of constants and of results are.
    return torch.from_numpy(array if array.flags.writeable else array.copy())
