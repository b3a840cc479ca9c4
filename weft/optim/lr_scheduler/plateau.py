"""ReduceLROnPlateau: a learning rate that follows a metric."""

from __future__ import annotations

import math
from typing import Any

from weft.optim.lr_scheduler.schedule import (
    LRScheduler,
    check_optimizer,
    check_outside_of_traces,
    per_group,
    rates_of,
    set_option,
    warn_of_epoch,
)
from weft.optim.optimizer import Optimizer
from weft.support.errors import InvalidInputError


class ReduceLROnPlateau(LRScheduler):
    """Times ``factor`` when a metric has not improved for ``patience`` epochs."""

    def __init__(
        self, optimizer: Optimizer, mode: str = "min", factor: float = 0.1, patience: int = 10,
        threshold: float = 1e-4, threshold_mode: str = "rel", cooldown: int = 0,
        min_lr: float | list[float] = 0, eps: float = 1e-8,
    ) -> None:
        check_optimizer(optimizer)
        if factor >= 1 or mode not in ("min", "max") or threshold_mode not in ("rel", "abs"):
            raise InvalidInputError("invalid arguments of ReduceLROnPlateau",
                                    expected="factor < 1, min or max, rel or abs",
                                    got=f"{factor}, {mode}, {threshold_mode}")
        self.optimizer, self.mode, self.factor, self.patience = optimizer, mode, factor, patience
        self.threshold, self.threshold_mode = threshold, threshold_mode
        self.cooldown, self.eps = cooldown, eps
        self.default_min_lr = None if isinstance(min_lr, list | tuple) else min_lr
        self.min_lrs = per_group("min_lr", optimizer, min_lr)
        self.last_epoch = 0
        self._last_lr = rates_of(optimizer)
        self._reset()

    def _reset(self) -> None:
        """Forget all metrics."""
        self.best = math.inf if self.mode == "min" else -math.inf
        self.cooldown_counter = self.num_bad_epochs = 0

    @property
    def in_cooldown(self) -> bool:
        """Whether bad epochs do not count yet, after a reduction."""
        return self.cooldown_counter > 0

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Look at the metric of an epoch: a number or a tensor."""
        check_outside_of_traces("scheduler.step()")
        if epoch is not None:
            warn_of_epoch()
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        current = float(metrics)
        is_better = self._is_better(current, self.best)
        self.best = current if is_better else self.best
        self.num_bad_epochs = 0 if is_better else self.num_bad_epochs + 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce()
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = rates_of(self.optimizer)

    def _is_better(self, current: float, best: float) -> bool:
        sign = 1 if self.mode == "min" else -1
        if self.threshold_mode == "rel":
            return sign * current < sign * best * (1 - sign * self.threshold)
        return sign * current < sign * best - self.threshold

    def _reduce(self) -> None:
        groups = self.optimizer.param_groups
        if len(groups) != len(self.min_lrs):
            if self.default_min_lr is None:
                raise InvalidInputError("the optimizer has more groups than min_lr",
                                        expected=len(groups), got=len(self.min_lrs),
                                        help="append to the schedule's min_lrs")
            self.min_lrs = [self.default_min_lr] * len(groups)
        for group, least in zip(groups, self.min_lrs, strict=True):
            old = float(group["lr"])
            new = max(old * self.factor, least)
            if old - new > self.eps:
                set_option(group, "lr", new)
