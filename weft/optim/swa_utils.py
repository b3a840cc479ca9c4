"""Averages of a model's weights over training: exponential or equal (Izmailov et al. 2018)."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from weft.eager.emitter import call
from weft.eager.grad_mode import no_grad
from weft.eager.tensor import Tensor
from weft.nn.modules.batch_norm import NormBase
from weft.nn.modules.module import Module
from weft.optim.lr_scheduler import LRScheduler
from weft.optim.optimizer import Optimizer

Average = Callable[[Tensor, Tensor, Tensor], Tensor]


def get_ema_avg_fn(decay: float = 0.999) -> Average:
    """``decay * average + (1 - decay) * new``"""
    def average(averaged: Tensor, current: Tensor, _count: Tensor) -> Tensor:
        return averaged * decay + current * (1 - decay)
    return average


def get_swa_avg_fn() -> Average:
    """The mean of all so far."""
    def average(averaged: Tensor, current: Tensor, count: Tensor) -> Tensor:
        return averaged + (current - averaged) / (count.to(averaged.dtype) + 1)
    return average


class AveragedModel(Module):
    """A copy of a model whose parameters are averages; ``update_parameters`` adds the present ones.

    ``avg_fn(averaged, current, number of models so far)`` is the mean unless given. With
    ``use_buffers`` buffers are averaged too, otherwise copied.
    """

    n_averaged: Tensor

    def __init__(
        self, model: Module, device: Any = None, avg_fn: Average | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        self.module = copy.deepcopy(model)
        self.register_buffer("n_averaged", Tensor(np.int64(0)))
        self.avg_fn = avg_fn or get_swa_avg_fn()
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Average with the parameters of ``model``; the first time, take them as they are.

        May be a part of a compiled step.
        """
        with no_grad():
            is_first = call("equal", self.n_averaged, 0)
            pairs = list(zip(self.module.parameters(), model.parameters(), strict=True))
            buffers = list(zip(self.module.buffers(), model.buffers(), strict=True))
            if self.use_buffers:
                pairs += [(a, b) for a, b in buffers if a.is_floating_point()]
            for averaged, current in pairs:
                present = current.detach()
                mixed = self.avg_fn(averaged.detach(), present, self.n_averaged)
                averaged.copy_(call("where", is_first, present, mixed))
            for averaged, current in buffers:
                if not self.use_buffers or not averaged.is_floating_point():
                    averaged.copy_(current.detach())
            self.n_averaged.add_(1)


class SWALR(LRScheduler):
    """From the present learning rate to ``swa_lr`` in ``anneal_epochs``, then constant."""

    def __init__(
        self, optimizer: Optimizer, swa_lr: float, anneal_epochs: int = 10,
        anneal_strategy: str = "cos", last_epoch: int = -1,
    ) -> None:
        self.swa_lr, self.anneal_epochs = swa_lr, anneal_epochs
        self.is_cosine = anneal_strategy == "cos"
        super().__init__(optimizer, last_epoch)

    def _share(self, epoch: int) -> float:
        done = max(0.0, min(1.0, epoch / max(1, self.anneal_epochs)))
        return (1 - math.cos(math.pi * done)) / 2 if self.is_cosine else done

    def get_lr(self) -> list[float]:
        if self.anneal_epochs == 0:
            return [self.swa_lr for _ in self._present]
        before = self._share(max(0, self.last_epoch - 1))
        share = self._share(self.last_epoch)
        found = []
        for lr in self._present:
            first = lr if before == 1 else (lr - before * self.swa_lr) / (1 - before)
            found.append(self.swa_lr * share + first * (1 - share))
        return found


def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Compute the running averages of all batch norms anew, by one pass over ``loader``."""
    norms = [m for m in model.modules() if isinstance(m, NormBase)]
    momenta = [m.momentum for m in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
    was_training = model.training
    model.train()
    with no_grad():
        for batch in loader:
            model(batch[0] if isinstance(batch, list | tuple) else batch)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    model.train(was_training)
