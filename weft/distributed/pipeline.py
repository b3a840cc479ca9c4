"""Pipeline parallelism: each rank has a stage of the model, and micro-batches pass through them.

The order is 1F1B (Narayanan et al. 2019): after its warm-up a rank alternates one forward and one
backward pass, so that it keeps the activations of as many micro-batches as stages follow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.autograd import backward
from weft.distributed.communicator import Communicator, Pending
from weft.distributed.process import communicator
from weft.eager.tensor import Tensor
from weft.nn.modules.module import Module
from weft.support.errors import InvalidInputError, OptionError

Action = tuple[str, int]  # "F" or "B", and the micro-batch
_HEADER, _FORWARD, _BACKWARD = 101, 102, 103  # tags
_DTYPES = ("float32", "float64", "float16", "int64", "int32")


def schedule(stage: int, stages: int, micro_batches: int) -> list[Action]:
    """The passes of a stage, in order."""
    warm_up = min(stages - 1 - stage, micro_batches)
    order = [("F", i) for i in range(warm_up)]
    for i in range(micro_batches - warm_up):
        order += [("F", warm_up + i), ("B", i)]
    return order + [("B", i) for i in range(micro_batches - warm_up, micro_batches)]


def timetable(stages: int, micro_batches: int, backward_cost: int = 2) -> list[list[Action | None]]:
    """The pass of each stage in each unit of time; backward takes ``backward_cost`` units."""
    orders = [schedule(s, stages, micro_batches) for s in range(stages)]
    ends: dict[tuple[str, int, int], int] = {}
    rows: list[list[Action | None]] = [[] for _ in range(stages)]
    while any(orders):
        for stage, order in enumerate(orders):
            if not order:
                continue
            kind, i = order[0]
            before = stage - 1 if kind == "F" else stage + 1
            needs = ends.get((kind, before, i)) if 0 <= before < stages else 0
            if needs is None:
                continue
            order.pop(0)
            row = rows[stage]
            row += [None] * (needs - len(row))
            row += [(kind, i)] * (1 if kind == "F" else backward_cost)
            ends[kind, stage, i] = len(row)
    length = max(map(len, rows))
    return [row + [None] * (length - len(row)) for row in rows]


def bubble(stages: int, micro_batches: int) -> float:
    """The share of time in which a stage waits: (p - 1) / (m + p - 1)."""
    return (stages - 1) / (micro_batches + stages - 1)


def schedule_table(stages: int, micro_batches: int) -> str:
    """The time table as text, and its idle share beside the formula."""
    rows = timetable(stages, micro_batches)
    lines = [f"stage {s}  " + " ".join(f"{a[0]}{a[1]:<2}" if a else " . " for a in row)
             for s, row in enumerate(rows)]
    idle = sum(a is None for row in rows for a in row) / (len(rows) * len(rows[0]))
    last = (f"bubble: {idle:.1%} of the table; (p - 1) / (m + p - 1) = "
            f"{bubble(stages, micro_batches):.1%}")
    return "\n".join([*lines, last])


class Pipeline:
    """The stage of this rank, and its exchange with the ranks before and after.

    ``step`` leaves the gradients of the mean loss of all micro-batches in the parameters of the
    stage, accumulated in the order of micro-batches.
    """

    def __init__(self, stage: Module, micro_batches: int, loss: Callable[[Tensor, Any], Tensor], *,
                 group: Communicator | None = None) -> None:
        if micro_batches < 1:
            raise OptionError("a pipeline needs micro-batches", got=micro_batches,
                              expected="1 or more")
        self.stage, self.micro_batches, self.loss = stage, micro_batches, loss
        self.group = communicator() if group is None else group
        self.most_kept = 0  # micro-batches whose activations were kept at once
        self._kept: dict[int, tuple[Tensor | None, Tensor]] = {}
        self._sent: list[Pending] = []

    @property
    def is_first(self) -> bool:
        return self.group.rank == 0

    @property
    def is_last(self) -> bool:
        return self.group.rank == self.group.size - 1

    def step(self, inputs: Any = None, targets: Any = None) -> float | None:
        """One batch: the first rank passes ``inputs``, the last ``targets``, and gets the loss."""
        given = self._parts(inputs, "inputs") if self.is_first else []
        wanted = self._parts(targets, "targets") if self.is_last else []
        total = 0.0
        for kind, i in schedule(self.group.rank, self.group.size, self.micro_batches):
            if kind == "F":
                total += self._forward(i, given, wanted)
                self.most_kept = max(self.most_kept, len(self._kept))
            else:
                self._backward(i)
        for pending in self._sent:
            pending.wait()
        self._sent = []
        return total / self.micro_batches if self.is_last else None

    def _parts(self, batch: Any, what: str) -> list[np.ndarray]:
        if batch is None:
            raise InvalidInputError(f"rank {self.group.rank} of the pipeline needs {what}")
        array = np.asarray(batch)
        if not array.ndim or len(array) % self.micro_batches:
            raise InvalidInputError("the micro-batches do not divide the batch", got=array.shape,
                                    expected=f"a multiple of {self.micro_batches} rows")
        return np.split(array, self.micro_batches)

    def _forward(self, i: int, given: list[np.ndarray], wanted: list[np.ndarray]) -> float:
        received = None
        if self.is_first:
            x = Tensor(given[i])
        else:
            x = received = Tensor(self._receive(), requires_grad=True)
        y = self.stage(x)
        value = 0.0
        if self.is_last:
            loss = self.loss(y, Tensor(wanted[i]))
            y = loss / self.micro_batches
            value = loss.item()
        else:
            self._send(y.detach().numpy())
        self._kept[i] = received, y
        return value

    def _backward(self, i: int) -> None:
        received, y = self._kept.pop(i)
        if self.is_last:
            y.backward()
        else:
            array = np.empty(tuple(y.shape), y.dtype.numpy)
            self.group.receive(array, self.group.rank + 1, _BACKWARD)
            backward([y], [Tensor(array)])
        if received is not None:
            assert received.grad is not None
            self._sent.append(self.group.start_send(received.grad.numpy(), self.group.rank - 1,
                                                    _BACKWARD))

    def _send(self, array: np.ndarray) -> None:
        header = np.zeros(10, np.int64)
        header[:2] = _DTYPES.index(array.dtype.name), array.ndim
        header[2:2 + array.ndim] = array.shape
        peer = self.group.rank + 1
        self._sent += [self.group.start_send(header, peer, _HEADER),
                       self.group.start_send(array, peer, _FORWARD)]

    def _receive(self) -> np.ndarray:
        peer = self.group.rank - 1
        kind, ndim, *shape = self.group.receive(np.zeros(10, np.int64), peer, _HEADER).tolist()
        return self.group.receive(np.empty(shape[:ndim], _DTYPES[kind]), peer, _FORWARD)
