"""Schedules of the learning rate with torch's names, arguments and values.

A schedule writes to ``optimizer.param_groups``; the learning rate is an input of a compiled step,
so that none compiles it again. Call ``scheduler.step()`` outside of the compiled step.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from weft.eager.cell import MODE
from weft.optim.optimizer import Optimizer
from weft.support.errors import InvalidInputError


class LRScheduler:
    """Base class: ``get_lr`` gives the next learning rate of each group.

    ``last_epoch`` counts the calls of ``step`` from 0, the constructor's own. Subclasses may define
    ``value(epoch, base)`` instead, the learning rate in closed form.
    """

    # A compiled function sees all that it reads.
    _not_watched: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise InvalidInputError("a schedule takes an optimizer",
                                    got=type(optimizer).__name__)
        self.optimizer, self.last_epoch = optimizer, last_epoch
        for group in optimizer.param_groups:
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise InvalidInputError("a resumed schedule needs initial_lr in each group",
                                        help="load the optimizer's state dict first")
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self._last_lr: list[float] = []
        self.step()

    def value(self, epoch: int, base: float) -> float:
        """The learning rate of a group whose first one was ``base``."""
        raise InvalidInputError(f"{type(self).__name__} does not say the learning rate")

    def get_lr(self) -> list[float]:
        """The learning rates of the groups at ``last_epoch``."""
        return [self.value(self.last_epoch, base) for base in self.base_lrs]

    def get_last_lr(self) -> list[float]:
        """The learning rates that the last ``step`` set."""
        return self._last_lr

    def step(self, epoch: int | None = None) -> None:
        """Go on by one epoch (or iteration), or to ``epoch``."""
        check_outside_of_traces("scheduler.step()")
        if epoch is not None:
            self._go_to(epoch)
        else:
            self.last_epoch += 1
            self._set(self.get_lr())

    def _go_to(self, epoch: int) -> None:
        self.last_epoch = epoch
        self._set(self.get_lr())

    def _set(self, values: Sequence[float]) -> None:
        for group, value in zip(self.optimizer.param_groups, values, strict=True):
            group["lr"] = value
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]

    @property
    def _present(self) -> list[float]:
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer and functions."""
        return {k: v for k, v in self.__dict__.items()
                if k != "optimizer" and not callable(v)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state dict; the optimizer's own has the present learning rate."""
        self.__dict__.update(state_dict)


def check_outside_of_traces(what: str) -> None:
    """Raise ``InvalidInputError`` while a function is traced: it would run once, not every step."""
    if MODE.trace is not None:
        raise InvalidInputError(f"{what} inside of a compiled function",
                                help="call it outside, after the compiled step")


class LambdaLR(LRScheduler):
    """The first learning rate times ``lr_lambda(epoch)``: one function, or one per group."""

    def __init__(
        self, optimizer: Optimizer, lr_lambda: Callable[[int], float] | Sequence[Any],
        last_epoch: int = -1,
    ) -> None:
        count = len(optimizer.param_groups)
        self.lr_lambdas = [lr_lambda] * count if callable(lr_lambda) else list(lr_lambda)
        if len(self.lr_lambdas) != count:
            raise InvalidInputError("LambdaLR takes one function per group", expected=count,
                                    got=len(self.lr_lambdas))
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        return [base * function(self.last_epoch)
                for base, function in zip(self.base_lrs, self.lr_lambdas, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        """Without the functions, which the constructor gets again."""
        return {k: v for k, v in super().state_dict().items() if k != "lr_lambdas"}


class _Recurrence(LRScheduler):
    """The next learning rate follows from the present one, which another schedule may have set."""

    def _go_to(self, epoch: int) -> None:
        """Run through all epochs from the first learning rate on."""
        self._set(self.base_lrs)
        for self.last_epoch in range(epoch + 1):
            self._set(self.get_lr())


class _Factor(_Recurrence):
    """Multiplies the present learning rate by ``factor(epoch)``."""

    def factor(self, epoch: int) -> float:
        raise InvalidInputError(f"{type(self).__name__} does not say the learning rate")

    def get_lr(self) -> list[float]:
        by = self.factor(self.last_epoch)
        return [lr if by == 1 else lr * by for lr in self._present]


class MultiplicativeLR(_Factor):
    """The present learning rate times ``lr_lambda(epoch)``."""

    def __init__(
        self, optimizer: Optimizer, lr_lambda: Callable[[int], float], last_epoch: int = -1
    ) -> None:
        self.lr_lambda = lr_lambda
        super().__init__(optimizer, last_epoch)

    def factor(self, epoch: int) -> float:
        return 1.0 if epoch == 0 else self.lr_lambda(epoch)


class StepLR(_Factor):
    """Times ``gamma`` every ``step_size`` epochs."""

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def factor(self, epoch: int) -> float:
        return self.gamma if epoch and epoch % self.step_size == 0 else 1.0


class MultiStepLR(_Factor):
    """Times ``gamma`` at each of ``milestones``."""

    def __init__(
        self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1,
        last_epoch: int = -1,
    ) -> None:
        self.milestones, self.gamma = sorted(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def factor(self, epoch: int) -> float:
        return self.gamma ** self.milestones.count(epoch)


class ExponentialLR(_Factor):
    """Times ``gamma`` every epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def factor(self, epoch: int) -> float:
        return self.gamma if epoch else 1.0


class ConstantLR(_Factor):
    """``factor`` times the learning rate for ``total_iters`` epochs, the whole one after."""

    def __init__(
        self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 <= factor <= 1:
            raise InvalidInputError("factor is out of range", expected="0 to 1", got=factor)
        self.share, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def factor(self, epoch: int) -> float:
        if epoch == 0:
            return self.share
        return 1 / self.share if epoch == self.total_iters else 1.0


class LinearLR(_Factor):
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

    def factor(self, epoch: int) -> float:
        if epoch == 0:
            return self.start_factor
        if epoch > self.total_iters:
            return 1.0
        rise = self.end_factor - self.start_factor
        return 1 + rise / (self.total_iters * self.start_factor + (epoch - 1) * rise)


class PolynomialLR(_Factor):
    """To 0 in ``total_iters`` epochs, as ``(1 - epoch / total_iters)**power``."""

    def __init__(
        self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0,
        last_epoch: int = -1,
    ) -> None:
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def factor(self, epoch: int) -> float:
        if epoch == 0 or epoch > self.total_iters:
            return 1.0
        left = (1 - epoch / self.total_iters) / (1 - (epoch - 1) / self.total_iters)
        return left**self.power


class CosineAnnealingLR(_Recurrence):
    """Half a cosine from the learning rate to ``eta_min`` in ``T_max`` epochs (Loshchilov 2016)."""

    def __init__(
        self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        epoch, period, low = self.last_epoch, self.T_max, self.eta_min
        if epoch == 0:
            return self._present
        if (epoch - 1 - period) % (2 * period) == 0:  # up again after the lowest point
            rise = (1 - math.cos(math.pi / period)) / 2
            return [lr + (base - low) * rise
                    for base, lr in zip(self.base_lrs, self._present, strict=True)]
        share = ((1 + math.cos(math.pi * epoch / period))
                 / (1 + math.cos(math.pi * (epoch - 1) / period)))
        return [share * (lr - low) + low for lr in self._present]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half cosines of ``T_0`` epochs, then ``T_mult`` times as many, and so on."""

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        if T_0 < 1 or T_mult < 1:
            raise InvalidInputError("T_0 and T_mult are at least 1", got=f"{T_0}, {T_mult}")
        self.T_0, self.T_mult, self.eta_min = T_0, T_mult, eta_min
        super().__init__(optimizer, last_epoch)

    def step(self, epoch: float | None = None) -> None:  # type: ignore[override] - parts of epochs
        """Go on by one epoch, or to ``epoch``, which may be a fraction."""
        super().step(epoch)  # type: ignore[arg-type]

    def value(self, epoch: float, base: float) -> float:
        period, passed = self._place(epoch)
        return self.eta_min + (base - self.eta_min) * (
            1 + math.cos(math.pi * passed / period)) / 2

    def _place(self, epoch: float) -> tuple[int, float]:
        """The length of the present period, and how much of it has passed."""
        if self.T_mult == 1:
            return self.T_0, epoch % self.T_0
        period = self.T_0
        while epoch >= period:
            epoch -= period
            period *= self.T_mult
        return period, epoch


class OneCycleLR(LRScheduler):
    """Up to ``max_lr`` and down to almost nothing, momentum the other way (Smith 2018)."""

    def __init__(
        self, optimizer: Optimizer, max_lr: float | Sequence[float],
        total_steps: int | None = None, epochs: int | None = None,
        steps_per_epoch: int | None = None, pct_start: float = 0.3, anneal_strategy: str = "cos",
        cycle_momentum: bool = True, base_momentum: float = 0.85, max_momentum: float = 0.95,
        div_factor: float = 25.0, final_div_factor: float = 1e4, three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        if total_steps is None and (epochs is None or steps_per_epoch is None):
            raise InvalidInputError("OneCycleLR takes total_steps, or epochs and steps_per_epoch")
        if anneal_strategy not in ("cos", "linear"):
            raise InvalidInputError("unknown anneal_strategy", expected="cos or linear",
                                    got=repr(anneal_strategy))
        total = total_steps if total_steps is not None else (epochs or 0) * (steps_per_epoch or 0)
        self.total_steps, self.anneal_strategy = total, anneal_strategy
        self.cycle_momentum = cycle_momentum
        groups = optimizer.param_groups
        peaks = [float(max_lr)] * len(groups) if isinstance(max_lr, int | float) else list(max_lr)
        if last_epoch == -1:
            for group, peak in zip(groups, peaks, strict=True):
                first = peak / div_factor
                group.update(initial_lr=first, max_lr=peak, min_lr=first / final_div_factor)
                if cycle_momentum:
                    self._begin_momentum(group, base_momentum, max_momentum)
        up = pct_start * total - 1
        self.phases: list[tuple[float, str, str, str, str]] = [
            (up, "initial_lr", "max_lr", "max_momentum", "base_momentum")]
        if three_phase:
            self.phases += [
                (2 * pct_start * total - 2, "max_lr", "initial_lr", "base_momentum",
                 "max_momentum"),
                (total - 1, "initial_lr", "min_lr", "max_momentum", "max_momentum")]
        else:
            self.phases += [(total - 1, "max_lr", "min_lr", "base_momentum", "max_momentum")]
        super().__init__(optimizer, last_epoch)

    def _begin_momentum(self, group: Any, base: float, largest: float) -> None:
        if "betas" not in group and "momentum" not in group:
            raise InvalidInputError("the optimizer has neither momentum nor betas",
                                    help="pass cycle_momentum=False")
        _set_momentum(group, largest)
        group.update(max_momentum=largest, base_momentum=base)

    def get_lr(self) -> list[float]:
        step = self.last_epoch
        if step > self.total_steps:
            raise InvalidInputError("OneCycleLR has ended", expected=f"{self.total_steps} steps",
                                    got=step)
        begin, chosen = 0.0, self.phases[-1]
        for phase in self.phases:
            chosen = phase
            if step <= phase[0]:
                break
            if phase is not self.phases[-1]:
                begin = phase[0]
        end, low, high, momentum_low, momentum_high = chosen
        share = (step - begin) / (end - begin)
        found = []
        for group in self.optimizer.param_groups:
            found.append(self._between(group[low], group[high], share))
            if self.cycle_momentum:
                _set_momentum(group, self._between(group[momentum_low], group[momentum_high],
                                                   share))
        return found

    def _between(self, start: float, end: float, share: float) -> float:
        if self.anneal_strategy == "linear":
            return (end - start) * share + start
        return end + (start - end) / 2.0 * (1 + math.cos(math.pi * share))


def _set_momentum(group: Any, value: float) -> None:
    if "betas" in group:
        group["betas"] = (value, *group["betas"][1:])
    else:
        group["momentum"] = value


class ReduceLROnPlateau(LRScheduler):
    """Times ``factor`` when a metric has not improved for ``patience`` epochs."""

    def __init__(
        self, optimizer: Optimizer, mode: str = "min", factor: float = 0.1, patience: int = 10,
        threshold: float = 1e-4, threshold_mode: str = "rel", cooldown: int = 0,
        min_lr: float | Sequence[float] = 0, eps: float = 1e-8,
    ) -> None:
        if factor >= 1 or mode not in ("min", "max") or threshold_mode not in ("rel", "abs"):
            raise InvalidInputError("invalid arguments of ReduceLROnPlateau",
                                    expected="factor < 1, min or max, rel or abs",
                                    got=f"{factor}, {mode}, {threshold_mode}")
        self.optimizer, self.mode, self.factor, self.patience = optimizer, mode, factor, patience
        self.threshold, self.threshold_mode = threshold, threshold_mode
        self.cooldown, self.eps, self.cooldown_counter = cooldown, eps, 0
        count = len(optimizer.param_groups)
        self.min_lrs = [min_lr] * count if isinstance(min_lr, int | float) else list(min_lr)
        self.best = math.inf if mode == "min" else -math.inf
        self.num_bad_epochs, self.last_epoch = 0, 0
        self._last_lr = self._present

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Look at the metric of an epoch: a number or a tensor."""
        check_outside_of_traces("scheduler.step()")
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        current = float(metrics)
        is_better = self._is_better(current)
        self.best = current if is_better else self.best
        self.num_bad_epochs = 0 if is_better else self.num_bad_epochs + 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce()
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = self._present

    def _is_better(self, current: float) -> bool:
        sign = 1 if self.mode == "min" else -1
        if self.threshold_mode == "rel":
            return sign * current < sign * self.best * (1 - sign * self.threshold)
        return sign * current < sign * self.best - self.threshold

    def _reduce(self) -> None:
        for group, least in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
            new = max(group["lr"] * self.factor, least)
            if group["lr"] - new > self.eps:
                group["lr"] = new


class SequentialLR(LRScheduler):
    """Schedules one after the other: the next one begins at each of ``milestones``."""

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int],
        last_epoch: int = -1,
    ) -> None:
        if len(milestones) != len(schedulers) - 1:
            raise InvalidInputError("SequentialLR takes one milestone less than schedules",
                                    expected=len(schedulers) - 1, got=len(milestones))
        self.optimizer, self._schedulers = optimizer, list(schedulers)
        self._milestones, self.last_epoch = list(milestones), last_epoch + 1
        # Each schedule made its first step at once: begin again with the first one alone.
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        for schedule in self._schedulers:
            schedule.last_epoch -= 1
        self._schedulers[0].step()
        self._last_lr = self._schedulers[0].get_last_lr()

    def step(self) -> None:  # type: ignore[override]
        """Go on by one epoch."""
        self.last_epoch += 1
        index = bisect.bisect_right(self._milestones, self.last_epoch)
        schedule = self._schedulers[index]
        if index > 0 and self._milestones[index - 1] == self.last_epoch:
            schedule.step(0)
        else:
            schedule.step()
        self._last_lr = schedule.get_last_lr()

    def state_dict(self) -> dict[str, Any]:
        """Its own, and those of its schedules."""
        own = {k: v for k, v in super().state_dict().items() if k != "_schedulers"}
        return {**own, "_schedulers": [s.state_dict() for s in self._schedulers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        own = dict(state_dict)
        for schedule, state in zip(self._schedulers, own.pop("_schedulers"), strict=True):
            schedule.load_state_dict(state)
        self.__dict__.update(own)


class ChainedScheduler(LRScheduler):
    """Several schedules at once: each changes what the one before it set."""

    def __init__(
        self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None
    ) -> None:
        if not schedulers:
            raise InvalidInputError("ChainedScheduler got no schedules")
        self._schedulers = list(schedulers)
        self.optimizer = optimizer or self._schedulers[0].optimizer
        self._last_lr = self._present

    def step(self) -> None:  # type: ignore[override]
        """Go on by one epoch."""
        for schedule in self._schedulers:
            schedule.step()
        self._last_lr = self._present

    state_dict = SequentialLR.state_dict
    load_state_dict = SequentialLR.load_state_dict
