"""Needle's optimisers (``needle.optim``): names and formulas of the course."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.eager.tensor import Tensor as WeftTensor


class Optimizer:
    """Updates ``params`` by their gradients."""

    def __init__(self, params: Sequence[Any]) -> None:
        self.params = list(params)

    def step(self) -> None:
        """Change each parameter that has a gradient."""
        for index, parameter in enumerate(self.params):
            if parameter.grad is not None:
                gradient = parameter.grad.detach().numpy()
                before = parameter.detach().numpy()
                after = self.updated(index, before, gradient)
                parameter.data = WeftTensor(after.astype(before.dtype))

    def updated(self, index: int, value: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """The next value of parameter ``index``."""
        raise TypeError(f"{type(self).__name__} updates nothing: {index}, {value}, {gradient}")

    def reset_grad(self) -> None:
        """Forget all gradients."""
        for parameter in self.params:
            parameter.grad = None


class SGD(Optimizer):
    """Gradient descent along u = momentum u + (1 - momentum) (gradient + weight_decay value)."""

    def __init__(self, params: Sequence[Any], lr: float = 0.01, momentum: float = 0.0,
                 weight_decay: float = 0.0) -> None:
        super().__init__(params)
        self.lr, self.momentum, self.weight_decay = lr, momentum, weight_decay
        self.u: dict[int, np.ndarray] = {}

    def updated(self, index: int, value: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """See ``Optimizer.updated``."""
        whole = gradient + self.weight_decay * value
        u = self.u[index] = self.momentum * self.u.get(index, 0.0) + (1 - self.momentum) * whole
        return value - self.lr * u

    def clip_grad_norm(self, max_norm: float = 0.25) -> None:
        """Scale all gradients together to a norm of at most ``max_norm``."""
        known = [p for p in self.params if p.grad is not None]
        norm = float(np.sqrt(sum(float((p.grad.detach().numpy() ** 2).sum()) for p in known)))
        for parameter in known:
            scaled = parameter.grad.detach().numpy() * min(1.0, max_norm / (norm + 1e-6))
            parameter.grad = WeftTensor(scaled.astype(parameter.detach().numpy().dtype))


class Adam(Optimizer):
    """Adam with the correction of both moments; weight decay is added to the gradient."""

    def __init__(self, params: Sequence[Any], lr: float = 0.01, beta1: float = 0.9,
                 beta2: float = 0.999, eps: float = 1e-8, weight_decay: float = 0.0) -> None:
        super().__init__(params)
        self.lr, self.beta1, self.beta2 = lr, beta1, beta2
        self.eps, self.weight_decay = eps, weight_decay
        self.t = 0
        self.m: dict[int, np.ndarray] = {}
        self.v: dict[int, np.ndarray] = {}

    def step(self) -> None:
        """See ``Optimizer.step``."""
        self.t += 1
        super().step()

    def updated(self, index: int, value: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """See ``Optimizer.updated``."""
        whole = gradient + self.weight_decay * value
        m = self.m[index] = self.beta1 * self.m.get(index, 0.0) + (1 - self.beta1) * whole
        v = self.v[index] = self.beta2 * self.v.get(index, 0.0) + (1 - self.beta2) * whole ** 2
        mean, square = m / (1 - self.beta1 ** self.t), v / (1 - self.beta2 ** self.t)
        return value - self.lr * mean / (np.sqrt(square) + self.eps)
