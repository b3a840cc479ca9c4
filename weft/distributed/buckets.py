"""Gradients in buckets, which are reduced over the ranks while the backward pass goes on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from weft.distributed.communicator import Communicator, Pending
from weft.eager.cell import MODE, node_of
from weft.eager.evaluate import flush, value_of
from weft.eager.node import Node
from weft.eager.tensor import Tensor
from weft.nn.parameter import Parameter
from weft.support.dataclass import dataclass


def array_of(tensor: Tensor) -> np.ndarray:
    """The value of a tensor in host memory."""
    return tensor.detach().cpu().numpy()


class Bucket:
    """Parameters whose gradients are one array, which is cut into equal parts.

    The array has a row per part. Behind the gradients of a part is a number per parameter, which
    counts the ranks that used it.
    """

    def __init__(self, parameters: Sequence[Tensor], members: Sequence[int], parts: int) -> None:
        self.parameters = parameters
        self.members = list(members)
        self.dtype = parameters[self.members[0]].dtype.numpy
        self.parts = parts
        self.length = -(-sum(parameters[i].numel() for i in self.members) // parts)
        self.missing = 0
        self.pending: Pending | None = None

    def ranges(self) -> Iterator[tuple[int, slice]]:
        """Where each parameter is in the flat array of all parts."""
        at = 0
        for i in self.members:
            yield i, slice(at, at := at + self.parameters[i].numel())

    def chunks(self, part: int) -> Iterator[tuple[int, slice, slice]]:
        """The parameters in a part: which of their elements, and where they are in it."""
        first, last = part * self.length, (part + 1) * self.length
        for i, where in self.ranges():
            start, stop = max(where.start, first), min(where.stop, last)
            if start < stop:
                yield (i, slice(start - where.start, stop - where.start),
                       slice(start - first, stop - first))

    def packed(self, arrays: Callable[[int], np.ndarray | None]) -> np.ndarray:
        """The array."""
        flat = np.zeros(self.parts * self.length, self.dtype)
        used = np.zeros(len(self.members), self.dtype)
        for number, (i, where) in enumerate(self.ranges()):
            array = arrays(i)
            if array is not None:
                flat[where], used[number] = array.reshape(-1), 1
        return np.concatenate([flat.reshape(self.parts, -1),
                               np.broadcast_to(used, (self.parts, len(used)))], axis=1)

    def unpack(self, found: np.ndarray) -> Iterator[tuple[int, np.ndarray | None]]:
        """The array of each parameter, ``None`` for unused ones."""
        flat, used = found[:, :self.length].reshape(-1), found[0, self.length:]
        for number, (i, where) in enumerate(self.ranges()):
            shape = tuple(self.parameters[i].shape)
            yield i, flat[where].reshape(shape) if used[number] else None

    def unpack_part(self, row: np.ndarray, part: int
                    ) -> Iterator[tuple[int, np.ndarray | None]]:
        """The elements of each parameter in a part, ``None`` for unused ones."""
        used = dict(zip(self.members, row[self.length:], strict=True))
        for i, _, inside in self.chunks(part):
            yield i, row[inside] if used[i] else None


@dataclass(eq=False)
class Part:
    """The elements ``where`` of a flattened parameter that a rank updates: ``tensor`` has them."""

    index: int
    where: slice
    tensor: Parameter


class Reducer:
    """Averages gradients over the ranks: buckets in the order in which backward fills them.

    The first backward pass takes the parameters in reverse order; the next ones in the order of
    that of rank 0. With ``owned``, the elements that this rank updates (``own_parts``), these get
    their gradients; ``keep_all`` says whether parameters keep theirs, too.
    """

    def __init__(self, parameters: Sequence[Tensor], group: Communicator,
                 bucket_bytes: int) -> None:
        self.parameters, self.group = list(parameters), group
        self.bucket_bytes = bucket_bytes
        self.enabled = True
        self.keep_all = True
        self.owned: list[Part] = []
        self._is_ordered = False
        self._found: dict[int, Node] = {}
        self._arrived: list[int] = []
        self._next = 0
        self._runs = False
        self._make(range(len(self.parameters) - 1, -1, -1), 1)
        for i, parameter in enumerate(self.parameters):
            parameter.register_hook(self._hook(i))

    # -- buckets ------------------------------------------------------------------------------

    def _make(self, order: Sequence[int], parts: int) -> None:
        groups: list[list[int]] = []
        filled = 0
        for i in order:
            p = self.parameters[i]
            if not groups or filled >= self.bucket_bytes \
                    or self.parameters[groups[-1][0]].dtype != p.dtype:
                groups.append([])
                filled = 0
            groups[-1].append(i)
            filled += p.nbytes
        self.buckets = [Bucket(self.parameters, g, parts) for g in groups]
        self.where = {i: bucket for bucket in self.buckets for i in bucket.members}

    def own_parts(self, *, keep_all: bool) -> list[Part]:
        """Cut each bucket into a part per rank; the chunks of parameters in this rank's parts."""
        self.keep_all, self._is_ordered = keep_all, True
        self._make(range(len(self.parameters) - 1, -1, -1), self.group.size)
        self.owned = [Part(i, where, Parameter(array_of(self.parameters[i]).reshape(-1)[where]))
                      for bucket in self.buckets
                      for i, where, _ in bucket.chunks(self.group.rank)]
        return self.owned

    # -- a backward pass ----------------------------------------------------------------------

    def _hook(self, index: int) -> Callable[[Tensor], None]:
        def arrived(gradient: Tensor) -> None:
            sweep = MODE.sweep
            if sweep is None or MODE.trace is not None:
                return
            if not self._runs:
                self._begin()
                sweep.at_end.append(self._finish if self.enabled else self._pause)
            self._found[index] = node_of(gradient)
            self._arrived.append(index)
            bucket = self.where[index]
            bucket.missing -= 1
            if not bucket.missing:
                # Also without exchange: the same programs give the same bits.
                sweep.when_evaluated = self._start_complete if self.enabled else _nothing

        return arrived

    def _begin(self) -> None:
        self._runs, self._next = True, 0
        self._found, self._arrived = {}, []
        for bucket in self.buckets:
            bucket.missing, bucket.pending = len(bucket.members), None

    def _pause(self) -> None:
        self._runs, self._found = False, {}

    def _start_complete(self) -> None:
        """Start the buckets whose gradients are there, in the order that all ranks have."""
        while self._next < len(self.buckets) and not self.buckets[self._next].missing:
            self._start(self.buckets[self._next])
            self._next += 1

    def _start(self, bucket: Bucket) -> None:
        array = bucket.packed(self._gradient)
        bucket.pending = self.group.start_all_reduce(array) if self.keep_all \
            else self.group.start_reduce_scatter(array)
        for i in bucket.members:
            self._found.pop(i, None)

    def _gradient(self, i: int) -> np.ndarray | None:
        """The gradient of this pass and those before it that were not averaged."""
        found = self._found.get(i)
        new = None if found is None else np.asarray(value_of(found))
        old = self.parameters[i].grad
        if old is None:
            return new
        return array_of(old) if new is None else array_of(old) + new

    def _finish(self) -> None:
        # The gradients of this pass are in ``grad`` by now.
        self._found = {}
        for bucket in self.buckets[self._next:]:
            self._start(bucket)
        self._take()
        self._runs = False
        if not self._is_ordered:
            self._reorder()

    def _take(self) -> None:
        gradients: dict[int, np.ndarray | None] = {}
        for bucket in self.buckets:
            assert bucket.pending is not None
            found = bucket.pending.wait()
            bucket.pending = None
            for i, array in bucket.unpack(found) if self.keep_all else ():
                self._store(self.parameters[i], array)
            if self.owned:
                row = found[self.group.rank if self.keep_all else 0]
                gradients |= bucket.unpack_part(row, self.group.rank)
            for i in bucket.members if not self.keep_all else ():
                self.parameters[i].grad = None
        for part in self.owned:
            self._store(part.tensor, gradients[part.index], adds=not self.keep_all)

    def _store(self, tensor: Tensor, array: np.ndarray | None, *, adds: bool = False) -> None:
        """Set the gradient to the mean over the ranks; with ``adds``, add the mean to it."""
        if array is None:
            if not adds:
                tensor.grad = None
            return
        mean = array / np.asarray(self.group.size, array.dtype)
        if adds and tensor.grad is not None:
            mean = array_of(tensor.grad) + mean
        tensor.grad = Tensor(mean).to(tensor.device)

    def _reorder(self) -> None:
        """Take the order of the first pass of rank 0."""
        self._is_ordered = True
        rest = [i for i in range(len(self.parameters) - 1, -1, -1) if i not in set(self._arrived)]
        order = np.array([*self._arrived, *rest], np.int64)
        self._make(self.group.broadcast(order).tolist(), 1)

    def reduce(self) -> None:
        """Average the gradients that a compiled program left in ``grad``."""
        flush(*[node_of(p.grad) for p in self.parameters if p.grad is not None])
        self._begin()
        for bucket in self.buckets:
            self._start(bucket)
        self._take()
        self._runs = False

    def refresh(self) -> None:
        """Copy the parameters to the owned parts: a checkpoint may have been loaded."""
        for part in self.owned:
            parameter = self.parameters[part.index]
            part.tensor.data = Tensor(array_of(parameter).reshape(-1)[part.where]).to(
                parameter.device)

    def gather(self) -> None:
        """Send the owned parts to all ranks."""
        own = {part.index: array_of(part.tensor) for part in self.owned}
        started = []
        for bucket in self.buckets:
            row = np.zeros((1, bucket.length), bucket.dtype)
            for i, _, inside in bucket.chunks(self.group.rank):
                row[0, inside] = own[i]
            started.append(self.group.start_all_gather(row))
        for bucket, pending in zip(self.buckets, started, strict=True):
            flat = pending.wait().reshape(-1)
            for i, where in bucket.ranges():
                parameter = self.parameters[i]
                value = np.array(flat[where]).reshape(tuple(parameter.shape))
                parameter.data = Tensor(value).to(parameter.device)

    @property
    def nbytes(self) -> int:
        """Bytes that a step reduces."""
        return sum(b.parts * (b.length + len(b.members)) * b.dtype.itemsize for b in self.buckets)


def _nothing() -> None:
    """Continue: the gradients only had to be evaluated."""


def broadcast_values(tensors: Sequence[Tensor], group: Communicator) -> None:
    """Give all ranks the values that rank 0 has, in one array per dtype."""
    kinds: dict[Any, list[Tensor]] = {}
    for tensor in tensors:
        kinds.setdefault(tensor.dtype.numpy, []).append(tensor)
    for some in kinds.values():
        flat = np.concatenate([array_of(t).reshape(-1) for t in some])
        group.broadcast(flat)
        if group.rank == 0:
            continue
        at = 0
        for tensor in some:
            size = math.prod(tensor.shape)
            value = np.array(flat[at:at + size]).reshape(tuple(tensor.shape))
            tensor.data = Tensor(value).to(tensor.device)
            at += size
