"""Needle's modules (``needle.nn``): Needle's shapes of weights, draws and names of arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from weft.compat.needle import init
from weft.compat.needle.autograd import OPERATORS
from weft.compat.needle.ops import Tensor
from weft.support.errors import InvalidInputError


class Parameter(Tensor):
    """A tensor that a module learns."""


def parameter(value: Any) -> Parameter:
    """``value`` as a leaf with a gradient."""
    return Parameter(value.numpy(), device=value.device, dtype=value.dtype.name
                     if hasattr(value.dtype, "name") else None)


def _found(value: Any, kind: type) -> Iterator[Any]:
    """The values of ``kind`` in the attributes of modules, and in sequences and mappings there."""
    if isinstance(value, kind):
        yield value
    if isinstance(value, Module):
        yield from _found(value.__dict__, kind)
    elif isinstance(value, dict):
        for part in value.values():
            yield from _found(part, kind)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _found(part, kind)


class Module:
    """A function with parameters, which are found among its attributes."""

    def __init__(self) -> None:
        self.training = True

    def parameters(self) -> list[Tensor]:
        """The parameters of the module and of those inside, in the order of attributes."""
        return list(_found(self.__dict__, Parameter))

    def _children(self) -> list[Module]:
        return list(_found(self.__dict__, Module))

    def eval(self) -> None:
        """Compute as in inference from now on."""
        self._set_mode(is_training=False)

    def train(self) -> None:
        """Compute as in training from now on."""
        self._set_mode(is_training=True)

    def _set_mode(self, *, is_training: bool) -> None:
        for module in (self, *self._children()):
            module.training = is_training

    forward: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The result of ``forward``, which subclasses define."""
        if not hasattr(self, "forward"):
            raise InvalidInputError(f"{type(self).__name__} has no forward",
                                    got=f"{len(args)} inputs")
        return self.forward(*args, **kwargs)


class Identity(Module):
    """The argument."""

    def forward(self, x: Tensor) -> Tensor:
        return x


class Linear(Module):
    """x @ weight + bias, of a weight (in_features, out_features)."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True, device: Any = None,
                 dtype: str = "float32") -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        made = {"device": device, "dtype": dtype}
        self.weight = parameter(init.kaiming_uniform(in_features, out_features, **made))
        self.bias = parameter(init.kaiming_uniform(out_features, 1, **made).transpose()) \
            if bias else None

    def forward(self, x: Tensor) -> Tensor:
        y = x @ self.weight
        return y if self.bias is None else y + self.bias.broadcast_to(y.shape)


class Flatten(Module):
    """(N, ...) to (N, sizes)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape((x.shape[0], int(np.prod(x.shape[1:]))))


class ReLU(Module):
    """max(x, 0)"""

    def forward(self, x: Tensor) -> Tensor:
        return OPERATORS.relu(x)


class Tanh(Module):
    """tanh(x)"""

    def forward(self, x: Tensor) -> Tensor:
        return OPERATORS.tanh(x)


class Sigmoid(Module):
    """1 / (1 + exp(-x))"""

    def forward(self, x: Tensor) -> Tensor:
        return (1 + OPERATORS.exp(-x)) ** -1


class Sequential(Module):
    """Modules one after the other."""

    def __init__(self, *modules: Module) -> None:
        super().__init__()
        self.modules = modules

    def forward(self, x: Tensor) -> Tensor:
        for module in self.modules:
            x = module(x)
        return x


class Residual(Module):
    """fn(x) + x"""

    def __init__(self, fn: Module) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, x: Tensor) -> Tensor:
        return self.fn(x) + x


class SoftmaxLoss(Module):
    """The mean cross entropy of logits (N, classes) and classes (N)."""

    def forward(self, logits: Tensor, y: Tensor) -> Tensor:
        hot = init.one_hot(logits.shape[1], y, device=logits.device)
        chosen = OPERATORS.summation(logits * hot, axes=(1,))
        losses = OPERATORS.logsumexp(logits, axes=(1,)) - chosen
        return OPERATORS.summation(losses) / logits.shape[0]


class Dropout(Module):
    """Zeros with probability ``p`` in training, and the rest larger by as much."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        mask = init.randb(*x.shape, p=1 - self.p, device=x.device, dtype="float32")
        return x * mask / (1 - self.p)


class BatchNorm1d(Module):
    """(N, dim), by the mean and variance of the batch in training, else by their averages."""

    def __init__(self, dim: int, eps: float = 1e-5, momentum: float = 0.1, device: Any = None,
                 dtype: str = "float32") -> None:
        super().__init__()
        self.dim, self.eps, self.momentum = dim, eps, momentum
        made = {"device": device, "dtype": dtype}
        self.weight, self.bias = parameter(init.ones(dim, **made)), parameter(
            init.zeros(dim, **made))
        self.running_mean, self.running_var = init.zeros(dim, **made), init.ones(dim, **made)

    def forward(self, x: Tensor) -> Tensor:
        mean, var = self.running_mean, self.running_var
        if self.training:
            mean = OPERATORS.summation(x, axes=(0,)) / x.shape[0]
            apart = x - _rows(mean, x)
            var = OPERATORS.summation(apart * apart, axes=(0,)) / x.shape[0]
            old = 1 - self.momentum
            self.running_mean = (self.running_mean * old + mean * self.momentum).detach()
            self.running_var = (self.running_var * old + var * self.momentum).detach()
        y = (x - _rows(mean, x)) / _rows((var + self.eps) ** 0.5, x)
        return y * _rows(self.weight, x) + _rows(self.bias, x)


class BatchNorm2d(BatchNorm1d):
    """``BatchNorm1d`` of the channels of (N, C, H, W)."""

    def forward(self, x: Tensor) -> Tensor:
        n, c, h, w = x.shape
        rows = x.transpose((1, 2)).transpose((2, 3)).reshape((n * h * w, c))
        y = super().forward(rows).reshape((n, h, w, c))
        return y.transpose((2, 3)).transpose((1, 2))


class LayerNorm1d(Module):
    """(N, dim), each row by its mean and variance."""

    def __init__(self, dim: int, eps: float = 1e-5, device: Any = None, dtype: str = "float32"
                 ) -> None:
        super().__init__()
        self.dim, self.eps = dim, eps
        made = {"device": device, "dtype": dtype}
        self.weight, self.bias = parameter(init.ones(dim, **made)), parameter(
            init.zeros(dim, **made))

    def forward(self, x: Tensor) -> Tensor:
        apart = x - _columns(OPERATORS.summation(x, axes=(1,)) / x.shape[1], x)
        var = OPERATORS.summation(apart * apart, axes=(1,)) / x.shape[1]
        y = apart / _columns((var + self.eps) ** 0.5, x)
        return y * _rows(self.weight, x) + _rows(self.bias, x)


class Conv(Module):
    """Odd kernels over (N, C, H, W), padded so that stride 1 keeps the size."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, stride: int = 1,
                 bias: bool = True, device: Any = None, dtype: str = "float32") -> None:
        super().__init__()
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size, self.stride = kernel_size, stride
        area = kernel_size * kernel_size
        shape = (kernel_size, kernel_size, in_channels, out_channels)
        self.weight = parameter(init.kaiming_uniform(
            in_channels * area, out_channels * area, shape=shape, device=device, dtype=dtype))
        bound = 1 / np.sqrt(in_channels * area)
        self.bias = parameter(init.rand(out_channels, low=-bound, high=bound, device=device,
                                        dtype=dtype)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        x = x.transpose((1, 2)).transpose((2, 3))
        y = OPERATORS.conv(x, self.weight, stride=self.stride, padding=self.kernel_size // 2)
        if self.bias is not None:
            y = y + self.bias.reshape((1, 1, 1, self.out_channels)).broadcast_to(y.shape)
        return y.transpose((2, 3)).transpose((1, 2))


def _rows(x: Tensor, like: Tensor) -> Tensor:
    """A vector as each row of a matrix."""
    return x.reshape((1, x.shape[0])).broadcast_to(like.shape)


def _columns(x: Tensor, like: Tensor) -> Tensor:
    return x.reshape((x.shape[0], 1)).broadcast_to(like.shape)
