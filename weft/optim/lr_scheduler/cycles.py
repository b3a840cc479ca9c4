"""Schedules that go up and down again."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from weft.optim.lr_scheduler.functions import attributes
from weft.optim.lr_scheduler.schedule import (
    LRScheduler,
    begin_momenta,
    check_optimizer,
    check_outside_of_traces,
    per_group,
    set_momentum,
    set_option,
)
from weft.optim.optimizer import Optimizer
from weft.support.errors import InvalidInputError

Rates = float | Sequence[float]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half cosines of ``T_0`` epochs, then ``T_mult`` times as many, and so on."""

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        if not isinstance(T_0, int) or not isinstance(T_mult, int) or T_0 < 1 or T_mult < 1:
            raise InvalidInputError("T_0 and T_mult are integers of at least 1",
                                    got=f"{T_0}, {T_mult}")
        self.T_0, self.T_i, self.T_mult, self.eta_min = T_0, T_0, T_mult, eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def rates(self) -> list[float]:
        share = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * share for base in self.base_lrs]

    closed_rates = rates

    def step(self, epoch: float | None = None) -> None:  # type: ignore[override] - parts of epochs
        """Go on by one epoch, or to ``epoch``, which may be a fraction."""
        check_outside_of_traces("scheduler.step()")
        if epoch is None and self.last_epoch >= 0:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur, self.T_i = self.T_cur % self.T_i, self.T_i * self.T_mult
        else:
            epoch = epoch or 0
            if epoch < 0:
                raise InvalidInputError("an epoch is negative", got=epoch)
            self._go_into_period(epoch)
        self.last_epoch = math.floor(epoch)
        self._set(self.rates())

    def _go_into_period(self, epoch: float) -> None:
        """Set the length of the period that ``epoch`` is in, and how much of it has passed."""
        self.T_i, self.T_cur = self.T_0, epoch
        if self.T_mult == 1:
            self.T_cur = epoch % self.T_0
            return
        while self.T_cur >= self.T_i:
            self.T_cur -= self.T_i
            self.T_i *= self.T_mult


class CyclicLR(LRScheduler):
    """Between ``base_lr`` and ``max_lr`` and back, momentum the other way (Smith 2017).

    The height of the triangles is scaled by ``scale_fn``, of the cycle's number or the iteration's
    (``scale_mode``): ``mode`` names three such functions.
    """

    def __init__(
        self, optimizer: Optimizer, base_lr: Rates, max_lr: Rates, step_size_up: int = 2000,
        step_size_down: int | None = None, mode: str = "triangular", gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None, scale_mode: str = "cycle",
        cycle_momentum: bool = True, base_momentum: Rates = 0.8, max_momentum: Rates = 0.9,
        last_epoch: int = -1,
    ) -> None:
        check_optimizer(optimizer)
        if scale_fn is None and mode not in _SCALES:
            raise InvalidInputError("unknown mode of CyclicLR", expected=", ".join(_SCALES),
                                    got=repr(mode))
        bases = per_group("base_lr", optimizer, base_lr)
        self.max_lrs = per_group("max_lr", optimizer, max_lr)
        up = float(step_size_up)
        self.total_size = up + (up if step_size_down is None else float(step_size_down))
        self.step_ratio = up / self.total_size
        self.mode, self.gamma, self._scale_fn_custom = mode, gamma, scale_fn
        self.scale_mode = scale_mode if scale_fn is not None else _SCALES[mode][0]
        self.cycle_momentum = cycle_momentum
        if last_epoch == -1:
            for group, base in zip(optimizer.param_groups, bases, strict=True):
                set_option(group, "lr", base)
        if cycle_momentum:
            begin_momenta(optimizer, base_momentum, max_momentum, last_epoch != -1)
            self.use_beta1 = "betas" in optimizer.defaults
            self.base_momentums = per_group("base_momentum", optimizer, base_momentum)
            self.max_momentums = per_group("max_momentum", optimizer, max_momentum)
        super().__init__(optimizer, last_epoch)
        self.base_lrs = bases

    def scale_fn(self, number: float) -> float:
        """The height of a triangle, by the number of the cycle or the iteration."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(number)
        return _SCALES[self.mode][1](number, self.gamma)

    def rates(self) -> list[float]:
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        rise = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        height = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            for group, low, high in zip(self.optimizer.param_groups, self.base_momentums,
                                        self.max_momentums, strict=True):
                set_momentum(group, high - (high - low) * rise * height)
        return [low + (high - low) * rise * height
                for low, high in zip(self.base_lrs, self.max_lrs, strict=True)]

    closed_rates = rates

    def state_dict(self) -> dict[str, Any]:
        function = self._scale_fn_custom
        return {**super().state_dict(),
                "_scale_fn_custom": None if function is None else attributes(function)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        own = dict(state_dict)
        known = own.pop("_scale_fn_custom")
        if known is not None and self._scale_fn_custom is not None:
            self._scale_fn_custom.__dict__.update(known)
        super().load_state_dict(own)


# mode -> what counts, and the height by that count and gamma
_SCALES: dict[str, tuple[str, Callable[[float, float], float]]] = {
    "triangular": ("cycle", lambda _number, _gamma: 1.0),
    "triangular2": ("cycle", lambda number, _gamma: 2.0 ** (1 - number)),
    "exp_range": ("iterations", lambda number, gamma: gamma**number),
}


class OneCycleLR(LRScheduler):
    """Up to ``max_lr`` and down to almost nothing, momentum the other way (Smith 2018)."""

    def __init__(
        self, optimizer: Optimizer, max_lr: Rates, total_steps: int | None = None,
        epochs: int | None = None, steps_per_epoch: int | None = None, pct_start: float = 0.3,
        anneal_strategy: str = "cos", cycle_momentum: bool = True, base_momentum: Rates = 0.85,
        max_momentum: Rates = 0.95, div_factor: float = 25.0, final_div_factor: float = 1e4,
        three_phase: bool = False, last_epoch: int = -1,
    ) -> None:
        check_optimizer(optimizer)
        check_anneal_strategy(anneal_strategy)
        if not 0 <= pct_start <= 1:
            raise InvalidInputError("pct_start is out of range", expected="0 to 1", got=pct_start)
        self.total_steps = _total_steps(total_steps, epochs, steps_per_epoch)
        self._anneal_func_type, self.cycle_momentum = anneal_strategy, cycle_momentum
        self._schedule_phases = _phases(self.total_steps, pct_start, three_phase)
        peaks = per_group("max_lr", optimizer, max_lr)
        if last_epoch == -1:
            for group, peak in zip(optimizer.param_groups, peaks, strict=True):
                first = peak / div_factor
                group.update(initial_lr=first, max_lr=peak, min_lr=first / final_div_factor)
        if cycle_momentum:
            begin_momenta(optimizer, base_momentum, max_momentum, last_epoch != -1)
            self.use_beta1 = "betas" in optimizer.defaults
        super().__init__(optimizer, last_epoch)

    def rates(self) -> list[float]:
        step = self.last_epoch
        if step > self.total_steps:
            raise InvalidInputError("OneCycleLR has ended", expected=f"{self.total_steps} steps",
                                    got=step)
        begin, found = 0.0, []
        *first, last = self._schedule_phases
        phase = last
        for one in first:
            if step <= one["end_step"]:
                phase = one
                break
            begin = one["end_step"]
        share = (step - begin) / (phase["end_step"] - begin)
        for group in self.optimizer.param_groups:
            found.append(self._between(group, phase, "lr", share))
            if self.cycle_momentum:
                set_momentum(group, self._between(group, phase, "momentum", share))
        return found

    closed_rates = rates

    def _between(self, group: Any, phase: dict[str, Any], what: str, share: float) -> float:
        start, end = group[phase[f"start_{what}"]], group[phase[f"end_{what}"]]
        return annealed(self._anneal_func_type, start, end, share)


def check_anneal_strategy(strategy: str) -> None:
    """Raise ``InvalidInputError`` unless ``annealed`` knows the strategy."""
    if strategy not in ("cos", "linear"):
        raise InvalidInputError("unknown anneal_strategy", expected="cos or linear",
                                got=repr(strategy))


def annealed(strategy: str, start: float, end: float, share: float) -> float:
    """Between two values, along half a cosine or a line."""
    if strategy == "linear":
        return (end - start) * share + start
    return end + (start - end) / 2.0 * (1 + math.cos(math.pi * share))


def _total_steps(total: int | None, epochs: int | None, per_epoch: int | None) -> int:
    if total is None and epochs is not None and per_epoch is not None:
        total = epochs * per_epoch
    if not isinstance(total, int) or total <= 0:
        raise InvalidInputError(
            "OneCycleLR takes total_steps, or epochs and steps_per_epoch",
            expected="positive integers", got=f"{total}, {epochs}, {per_epoch}")
    return total


def _phases(total: int, pct_start: float, is_three: bool) -> list[dict[str, Any]]:
    """The phases: where each ends, and the options of a group that it goes from and to."""
    up = float(pct_start * total) - 1
    rows = [(up, "initial_lr", "max_lr", "max_momentum", "base_momentum")]
    if is_three:
        rows += [(2 * float(pct_start * total) - 2, "max_lr", "initial_lr", "base_momentum",
                  "max_momentum"),
                 (total - 1, "initial_lr", "min_lr", "max_momentum", "max_momentum")]
    else:
        rows += [(total - 1, "max_lr", "min_lr", "base_momentum", "max_momentum")]
    names = ("end_step", "start_lr", "end_lr", "start_momentum", "end_momentum")
    return [dict(zip(names, row, strict=True)) for row in rows]
