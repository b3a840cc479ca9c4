"""The interface through which ranks exchange NumPy arrays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from weft.distributed.communicator.health import Health
from weft.distributed.communicator.pending import Lanes, Pending
from weft.support.errors import InvalidInputError

# The operation of each reduction on two arrays. The transports know the same four names.
REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}
_NATIVE = frozenset(["float32", "float64", "int8", "uint8", "int32", "int64"])
_PERMUTE_TAG = 1 << 16
_NARROW = frozenset(("float16", "bfloat16"))


class Communicator(ABC):
    """A group of ranks that exchange arrays.

    All ranks of a group call the same operations in the same order. ``start_X`` returns a
    ``Pending`` and lets the operation run while the program goes on; ``X`` waits for it. An array
    that was handed over must not be changed before ``wait``. With ``deterministic`` all sums are
    taken in the order of ranks, so that results have the same bits whatever the transport.

    Each operation raises ``DistributedError`` that names a rank that is dead, stopped or late.
    """

    backend: str

    def __init__(self, rank: int, size: int, health: Health, *, deterministic: bool) -> None:
        self.rank, self.size = rank, size
        self.deterministic = deterministic
        self.health = health
        self._lanes = Lanes()
        self._splits = 0

    # -- what a back end defines: blocking, on contiguous arrays --------------------------------

    @abstractmethod
    def _all_reduce(self, array: np.ndarray, op: str) -> None:
        """Reduce in place; ``array`` has a dtype of ``_NATIVE``."""

    @abstractmethod
    def _exchange(self, parts: list[np.ndarray]) -> list[np.ndarray]:
        """The part that each rank has for this one; all parts are bytes of one length."""

    @abstractmethod
    def _gather(self, array: np.ndarray) -> list[np.ndarray]:
        """The bytes of each rank."""

    @abstractmethod
    def _broadcast(self, array: np.ndarray, root: int) -> None:
        """Fill the bytes with those of ``root``."""

    @abstractmethod
    def _send(self, array: np.ndarray, peer: int, tag: int) -> None: ...

    @abstractmethod
    def _receive(self, array: np.ndarray, peer: int, tag: int) -> None: ...

    @abstractmethod
    def _subgroup(self, members: list[int], name: str) -> Communicator:
        """The communicator of ``members``, of which this rank is one."""

    def close(self) -> None:
        """Leave the group: ranks that wait for this one raise an error."""
        self.health.end()
        self._lanes.settle()
        self.health.stop()

    # -- collectives --------------------------------------------------------------------------

    def start_all_reduce(self, array: np.ndarray, op: str = "sum") -> Pending:
        """Combine the arrays of all ranks, in place; the result is ``array``."""
        _check_op(op)

        def work() -> np.ndarray:
            flat = np.ascontiguousarray(array).reshape(-1)
            if self.size == 1:
                return array
            if array.dtype.name in _NATIVE and (
                    not self.deterministic or op != "sum" or array.dtype.kind in "iu"):
                self._all_reduce(flat, op)
                total = flat
            else:
                total = self._ordered_all_reduce(flat, op)
            if total is not array:
                array[...] = total.reshape(array.shape)
            return array

        return self._start("all_reduce", work)

    def _ordered_all_reduce(self, flat: np.ndarray, op: str) -> np.ndarray:
        """Each rank reduces one part in the order of ranks; then all gather the parts."""
        length = -(-flat.size // self.size)
        padded = np.zeros(length * self.size, flat.dtype)
        padded[:flat.size] = flat
        own = self._reduced(padded.reshape(self.size, length), op)
        return np.concatenate([_typed(b, flat.dtype, (length,))
                               for b in self._gather(_bytes(own))])[:flat.size]

    def _reduced(self, parts: np.ndarray, op: str) -> np.ndarray:
        """The part of this rank, of what all ranks have, reduced in the order of ranks."""
        found = self._exchange([_bytes(part) for part in parts])
        arrays = [_typed(b, parts.dtype, parts.shape[1:]) for b in found]
        dtype = np.dtype(np.float32) if parts.dtype.name in _NARROW else parts.dtype
        total = arrays[0].astype(dtype)
        for one in arrays[1:]:
            REDUCTIONS[op](total, one.astype(dtype, copy=False), out=total)
        return total.astype(parts.dtype, copy=False)

    def start_all_gather(self, array: np.ndarray, axis: int = 0) -> Pending:
        """The arrays of all ranks, joined along ``axis``. All have one shape."""
        def work() -> np.ndarray:
            found = self._gather(_bytes(array))
            return np.concatenate([_typed(b, array.dtype, array.shape) for b in found], axis)

        return self._start("all_gather", work)

    def start_reduce_scatter(self, array: np.ndarray, op: str = "sum", axis: int = 0) -> Pending:
        """Combine all arrays in the order of ranks; the result is a part of it along ``axis``."""
        _check_op(op)
        parts = self._cut(array, axis)
        return self._start("reduce_scatter", lambda: self._reduced(np.stack(parts), op))

    def start_all_to_all(self, array: np.ndarray, split: int = 0, join: int = 0) -> Pending:
        """Part i along ``split`` goes to rank i; parts that arrive are joined along ``join``."""
        parts = self._cut(array, split)

        def work() -> np.ndarray:
            found = self._exchange([_bytes(part) for part in parts])
            return np.concatenate([_typed(b, array.dtype, parts[0].shape) for b in found], join)

        return self._start("all_to_all", work)

    def start_broadcast(self, array: np.ndarray, root: int = 0) -> Pending:
        """Fill ``array`` with that of ``root``; the result is ``array``."""
        self._check_peer(root)

        def work() -> np.ndarray:
            sent = np.ascontiguousarray(array)
            self._broadcast(_bytes(sent), root)
            if sent is not array:
                array[...] = sent
            return array

        return self._start("broadcast", work)

    def start_permute(self, array: np.ndarray, pairs: Sequence[tuple[int, int]]) -> Pending:
        """Send along ``pairs`` of (source, destination); zeros where none arrives."""
        sources = [s for s, d in pairs if d == self.rank]
        if len(sources) > 1:
            raise InvalidInputError("permute: a rank receives from several", got=sources)
        sent = [self.start_send(array, d, _PERMUTE_TAG) for s, d in pairs
                if s == self.rank and d != self.rank]
        found = np.zeros_like(array)
        if sources == [self.rank]:
            found[...] = array
        elif sources:
            sent.append(self.start_receive(found, sources[0], _PERMUTE_TAG))

        def work() -> np.ndarray:
            for pending in sent:
                pending.wait()
            return found

        return self._start("permute", work)

    def start_send(self, array: np.ndarray, peer: int, tag: int = 0) -> Pending:
        """Send to ``peer``, which receives an array of the same shape and dtype."""
        self._check_peer(peer)
        sent = _bytes(array)
        return self._start(f"send to rank {peer}", lambda: self._send(sent, peer, tag),
                           ("send", peer, tag))

    def start_receive(self, array: np.ndarray, peer: int, tag: int = 0) -> Pending:
        """Fill ``array`` with what ``peer`` sends; the result is ``array``."""
        self._check_peer(peer)

        def work() -> np.ndarray:
            found = np.empty(array.nbytes, np.uint8)
            self._receive(found, peer, tag)
            array[...] = _typed(found, array.dtype, array.shape)
            return array

        return self._start(f"receive from rank {peer}", work, ("receive", peer, tag))

    # -- the same, waited for -----------------------------------------------------------------

    def all_reduce(self, array: np.ndarray, op: str = "sum") -> np.ndarray:
        """Combine the arrays of all ranks, in place, and return ``array``."""
        return self.start_all_reduce(array, op).wait()  # type: ignore[no-any-return]

    def all_gather(self, array: np.ndarray, axis: int = 0) -> np.ndarray:
        """The arrays of all ranks, joined along ``axis``. All have one shape."""
        return self.start_all_gather(array, axis).wait()  # type: ignore[no-any-return]

    def reduce_scatter(self, array: np.ndarray, op: str = "sum", axis: int = 0) -> np.ndarray:
        """Combine all arrays and return the part of this rank along ``axis``."""
        return self.start_reduce_scatter(array, op, axis).wait()  # type: ignore[no-any-return]

    def all_to_all(self, array: np.ndarray, split: int = 0, join: int = 0) -> np.ndarray:
        """Part i along ``split`` goes to rank i; parts that arrive are joined along ``join``."""
        return self.start_all_to_all(array, split, join).wait()  # type: ignore[no-any-return]

    def permute(self, array: np.ndarray, pairs: Sequence[tuple[int, int]]) -> np.ndarray:
        """Send along ``pairs`` of (source, destination); zeros where none arrives."""
        return self.start_permute(array, pairs).wait()  # type: ignore[no-any-return]

    def broadcast(self, array: np.ndarray, root: int = 0) -> np.ndarray:
        """Fill ``array`` with that of ``root``, and return it."""
        return self.start_broadcast(array, root).wait()  # type: ignore[no-any-return]

    def send(self, array: np.ndarray, peer: int, tag: int = 0) -> None:
        """Send to ``peer``, which receives an array of the same shape and dtype."""
        self.start_send(array, peer, tag).wait()

    def receive(self, array: np.ndarray, peer: int, tag: int = 0) -> np.ndarray:
        """Fill ``array`` with what ``peer`` sends, and return it."""
        return self.start_receive(array, peer, tag).wait()  # type: ignore[no-any-return]

    def gather_bytes(self, data: bytes) -> list[bytes]:
        """The bytes of each rank, of any length."""
        lengths = self.all_gather(np.array([len(data)], np.int64))
        padded = np.zeros(max(int(lengths.max()), 1), np.uint8)
        padded[:len(data)] = np.frombuffer(data, np.uint8)
        found = self.all_gather(padded[None])
        return [row[:n].tobytes() for row, n in zip(found, lengths, strict=True)]

    def barrier(self) -> None:
        """Wait until all ranks have come here."""
        self._start("barrier", lambda: self._gather(np.zeros(1, np.uint8))).wait()

    def split(self, colour: Hashable) -> Communicator:
        """The communicator of the ranks that pass the same ``colour``, in the order of ranks."""
        found = self.gather_bytes(repr(colour).encode())
        members = [r for r, c in enumerate(found) if c == found[self.rank]]
        self._splits += 1
        name = f"{self._splits}/{found.index(found[self.rank])}"
        return self._start("split", lambda: self._subgroup(members, name)).wait()  # type: ignore[no-any-return]

    # -- common -------------------------------------------------------------------------------

    def _start(self, name: str, work: Callable[[], Any], lane: Hashable = "collectives") -> Pending:
        number = self.health.count()
        return self._lanes.start(lane, Pending(f"{name} (operation {number})", self.health, work))

    def _check_peer(self, peer: int) -> None:
        if not 0 <= peer < self.size:
            raise InvalidInputError("unknown rank", got=peer,
                                    expected=f"0 to {self.size - 1}")

    def _cut(self, array: np.ndarray, axis: int) -> list[np.ndarray]:
        if array.ndim == 0 or array.shape[axis] % self.size:
            raise InvalidInputError("the ranks do not divide the array", got=array.shape,
                                    expected=f"a multiple of {self.size} along axis {axis}")
        return [np.ascontiguousarray(part) for part in np.split(array, self.size, axis)]

    def __repr__(self) -> str:
        return f"<{self.backend} communicator, rank {self.rank} of {self.size}>"


def _check_op(op: str) -> None:
    if op not in REDUCTIONS:
        raise InvalidInputError("an unknown reduction", got=op, expected=", ".join(REDUCTIONS))


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _typed(data: np.ndarray, dtype: np.dtype, shape: Sequence[int]) -> np.ndarray:
    return np.ascontiguousarray(data).view(dtype).reshape(shape)
