"""Averages of a model's weights over training: exponential or equal (Izmailov et al. 2018)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from weft.eager.emitter import call
from weft.eager.grad_mode import no_grad
from weft.eager.tensor import Tensor
from weft.nn.modules.batch_norm import NormBase
from weft.nn.modules.module import Module
from weft.optim.lr_scheduler.cycles import annealed, check_anneal_strategy
from weft.optim.lr_scheduler.schedule import LRScheduler, check_optimizer, per_group
from weft.optim.optimizer import Optimizer
from weft.support.errors import InvalidInputError

Average = Callable[[Tensor, Tensor, Tensor], Tensor]
MultiAverage = Callable[[list[Tensor], list[Tensor], Tensor], None]


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


def get_ema_multi_avg_fn(decay: float = 0.999) -> MultiAverage:
    """``get_ema_avg_fn`` for lists, whose averages are changed in place."""
    return _in_place(get_ema_avg_fn(decay))


def get_swa_multi_avg_fn() -> MultiAverage:
    """``get_swa_avg_fn`` for lists, whose averages are changed in place."""
    return _in_place(get_swa_avg_fn())


def _in_place(average: Average) -> MultiAverage:
    def averages(averaged: list[Tensor], current: list[Tensor], count: Tensor) -> None:
        for one, new in zip(averaged, current, strict=True):
            one.copy_(average(one, new, count))
    return averages


class AveragedModel(Module):
    """A copy of a model whose parameters are averages; ``update_parameters`` adds the present ones.

    ``avg_fn(averaged, current, number of models so far)`` is the mean unless given;
    ``multi_avg_fn`` takes lists and changes the averages in place. With ``use_buffers`` buffers are
    averaged too, otherwise copied.
    """

    n_averaged: Tensor

    def __init__(
        self, model: Module, device: Any = None, avg_fn: Average | None = None,
        multi_avg_fn: MultiAverage | None = None, use_buffers: bool = False,
    ) -> None:
        if avg_fn is not None and multi_avg_fn is not None:
            raise InvalidInputError("avg_fn and multi_avg_fn exclude each other")
        super().__init__()
        self.module = copy.deepcopy(model)
        self.register_buffer("n_averaged", Tensor(np.int64(0)))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn or _in_place(avg_fn or get_swa_avg_fn())
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
            mixed = [averaged.detach().clone() for averaged, _ in pairs]
            present = [current.detach() for _, current in pairs]
            self.multi_avg_fn(mixed, present, self.n_averaged)
            for (averaged, _), new, first in zip(pairs, mixed, present, strict=True):
                averaged.copy_(call("where", is_first, first, new))
            for averaged, current in buffers:
                if not self.use_buffers or not averaged.is_floating_point():
                    averaged.copy_(current.detach())
            self.n_averaged.add_(1)


class SWALR(LRScheduler):
    """From the present learning rate to ``swa_lr`` in ``anneal_epochs``, then constant."""

    def __init__(
        self, optimizer: Optimizer, swa_lr: float | list[float], anneal_epochs: int = 10,
        anneal_strategy: str = "cos", last_epoch: int = -1,
    ) -> None:
        check_optimizer(optimizer)
        check_anneal_strategy(anneal_strategy)
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise InvalidInputError("anneal_epochs is a number of epochs", got=anneal_epochs)
        rates = per_group("swa_lr", optimizer, swa_lr)
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["swa_lr"] = rate
        self._anneal_strategy, self.anneal_epochs = anneal_strategy, anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _share(self, epoch: int) -> float:
        """The share of ``swa_lr`` in the learning rate."""
        done = max(0.0, min(1.0, epoch / max(1, self.anneal_epochs)))
        return annealed(self._anneal_strategy, 0.0, 1.0, done)

    def rates(self) -> list[float]:
        epoch = self._step_count - 1
        if self.anneal_epochs == 0:
            epoch = max(1, epoch)
        before, share = self._share(epoch - 1), self._share(epoch)
        found = []
        for group in self.optimizer.param_groups:
            lr, end = float(group["lr"]), group["swa_lr"]
            first = end if before == 1 else (lr - before * end) / (1 - before)
            found.append(end * share + first * (1 - share))
        return found

    closed_rates = rates


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
