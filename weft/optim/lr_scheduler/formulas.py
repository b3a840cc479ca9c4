"""Schedules that are a formula: the share of the first learning rate at each epoch.

``step`` multiplies the present learning rate by the ratio of two shares, so that schedules can be
chained; ``step(epoch)`` takes the share itself.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import ClassVar

from weft.optim.lr_scheduler.schedule import LRScheduler
from weft.optim.optimizer import Optimizer
from weft.support.errors import InvalidInputError


class _Formula(LRScheduler):
    """A schedule given by ``share(epoch)``, which is 1 before the first epoch."""

    # Whether a schedule made with last_epoch= takes the optimizer's learning rate as it is. The
    # others apply what happens at that very epoch once more, as torch does.
    keeps_when_resumed: ClassVar[bool] = True

    def share(self, epoch: int) -> float:
        """The share of the first learning rate at an epoch."""
        raise InvalidInputError(f"{type(self).__name__} does not say the learning rate")

    def value(self, epoch: int, base: float) -> float:
        return base * self.share(epoch)

    def rates(self) -> list[float]:
        epoch = self.last_epoch
        if self._is_initial and self.keeps_when_resumed and epoch > 0:
            return self._present
        before, share = self.share(epoch - 1) if epoch > 0 else 1.0, self.share(epoch)
        if before == share:
            return self._present
        if before == 0:
            return self.closed_rates()
        return [lr * (share / before) for lr in self._present]


class StepLR(_Formula):
    """Times ``gamma`` every ``step_size`` epochs."""

    keeps_when_resumed = False

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def share(self, epoch: int) -> float:
        return self.gamma ** (epoch // self.step_size)


class MultiStepLR(_Formula):
    """Times ``gamma`` at each of ``milestones``."""

    keeps_when_resumed = False

    def __init__(
        self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1,
        last_epoch: int = -1,
    ) -> None:
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def share(self, epoch: int) -> float:
        passed = (count for at, count in Counter(self.milestones).items() if at <= epoch)
        return self.gamma ** sum(passed)


class ExponentialLR(_Formula):
    """Times ``gamma`` every epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def share(self, epoch: int) -> float:
        return self.gamma**epoch


class ConstantLR(_Formula):
    """``factor`` times the learning rate for ``total_iters`` epochs, the whole one after."""

    keeps_when_resumed = False

    def __init__(
        self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 <= factor <= 1:
            raise InvalidInputError("factor is out of range", expected="0 to 1", got=factor)
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def share(self, epoch: int) -> float:
        return self.factor if epoch < self.total_iters else 1.0


class LinearLR(_Formula):
    """From ``start_factor`` to ``end_factor`` in ``total_iters`` epochs."""

    def __init__(
        self, optimizer: Optimizer, start_factor: float = 1.0 / 3, end_factor: float = 1.0,
        total_iters: int = 5, last_epoch: int = -1,
    ) -> None:
        if not 0 < start_factor <= 1 or not 0 <= end_factor <= 1:
            raise InvalidInputError("a factor is out of range", expected="0 to 1",
                                    got=f"{start_factor}, {end_factor}")
        self.start_factor, self.end_factor = start_factor, end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def share(self, epoch: int) -> float:
        rise = self.end_factor - self.start_factor
        return self.start_factor + rise * min(self.total_iters, epoch) / self.total_iters


class PolynomialLR(_Formula):
    """To 0 in ``total_iters`` epochs, as ``(1 - epoch / total_iters)**power``."""

    def __init__(
        self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0,
        last_epoch: int = -1,
    ) -> None:
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def share(self, epoch: int) -> float:
        return (1.0 - min(self.total_iters, epoch) / self.total_iters) ** self.power


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from the learning rate to ``eta_min`` in ``T_max`` epochs (Loshchilov 2016)."""

    def __init__(
        self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def value(self, epoch: int, base: float) -> float:
        return self.eta_min + (base - self.eta_min) * (
            1 + math.cos(math.pi * epoch / self.T_max)) / 2

    def rates(self) -> list[float]:
        if self._is_initial:
            return self._present
        epoch, period, low = self.last_epoch, self.T_max, self.eta_min
        if (epoch - 1 - period) % (2 * period) == 0:  # up again after the lowest point
            rise = (1 - math.cos(math.pi / period)) / 2
            return [lr + (base - low) * rise
                    for base, lr in zip(self.base_lrs, self._present, strict=True)]
        share = ((1 + math.cos(math.pi * epoch / period))
                 / (1 + math.cos(math.pi * (epoch - 1) / period)))
        return [share * (lr - low) + low for lr in self._present]
