"""Linear layers whose weights are cut over the ranks (Shoeybi et al. 2019)."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.autograd import Function
from weft.distributed.buckets import array_of
from weft.distributed.communicator import Communicator
from weft.distributed.process import communicator
from weft.eager.tensor import Tensor
from weft.nn.functional import linear
from weft.nn.modules.linear import Linear
from weft.nn.modules.module import Module
from weft.nn.parameter import Parameter
from weft.support.errors import InvalidInputError


def _summed(x: Tensor, group: Communicator) -> Tensor:
    return Tensor(group.all_reduce(np.array(array_of(x)))).to(x.device)


class _ToParts(Function):
    """All ranks use what all have: the gradients of their uses are added."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Communicator) -> Tensor:
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return _summed(grads[0], ctx.group), None


class _FromParts(Function):
    """All-reduce: the sum over all ranks; each gradient equals the gradient of the sum."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Communicator) -> Tensor:  # noqa: ARG004
        return _summed(x, group)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:  # noqa: ARG004 - of the base class
        return grads[0], None


class _Joined(Function):
    """The parts of all ranks along the last axis."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Communicator) -> Tensor:
        ctx.group = group
        return Tensor(group.all_gather(array_of(x), axis=x.ndim - 1)).to(x.device)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        grad, = grads
        size = grad.shape[-1] // ctx.group.size
        start = ctx.group.rank * size
        return grad[..., start:start + size], None


def _part(array: np.ndarray, axis: int, group: Communicator, what: str) -> Parameter:
    if array.shape[axis] % group.size:
        raise InvalidInputError(f"the ranks do not divide the {what}", got=array.shape[axis],
                                expected=f"a multiple of {group.size}")
    return Parameter(np.array(np.split(array, group.size, axis)[group.rank]))


class ColumnParallelLinear(Module):
    """A linear layer of which each rank computes a part of the outputs.

    It is cut from ``whole``, which all ranks have alike. With ``gather`` the result has all
    outputs; without it is what ``RowParallelLinear`` takes.
    """

    def __init__(self, whole: Linear, group: Communicator | None = None, *,
                 gather: bool = False) -> None:
        super().__init__()
        self.group = communicator() if group is None else group
        self.gather = gather
        self.weight = _part(array_of(whole.weight), 0, self.group, "outputs")
        self.bias = None if whole.bias is None else _part(array_of(whole.bias), 0, self.group,
                                                          "outputs")

    def forward(self, x: Tensor) -> Tensor:
        y = linear(_ToParts.apply(x, self.group), self.weight, self.bias)
        return _Joined.apply(y, self.group) if self.gather else y


class RowParallelLinear(Module):
    """A linear layer of which each rank has a part of the inputs; the results are added."""

    def __init__(self, whole: Linear, group: Communicator | None = None) -> None:
        super().__init__()
        self.group = communicator() if group is None else group
        self.weight = _part(array_of(whole.weight), 1, self.group, "inputs")
        self.bias = None if whole.bias is None else Parameter(np.array(array_of(whole.bias)))

    def forward(self, x: Tensor) -> Tensor:
        y = _FromParts.apply(linear(x, self.weight), self.group)
        return y if self.bias is None else y + self.bias
