"""Schedules made of schedules."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from weft.optim.lr_scheduler.plateau import ReduceLROnPlateau
from weft.optim.lr_scheduler.schedule import LRScheduler, rates_of, set_option
from weft.optim.optimizer import Optimizer
from weft.support.errors import InvalidInputError


class _Composed(LRScheduler):
    """Several schedules of one optimizer, whose state dicts are a part of its own."""

    def _take(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None) -> None:
        name = type(self).__name__
        if not schedulers:
            raise InvalidInputError(f"{name} got no schedules")
        self._schedulers = list(schedulers)
        self.optimizer = optimizer or schedulers[0].optimizer
        for number, schedule in enumerate(self._schedulers):
            if isinstance(schedule, ReduceLROnPlateau):
                raise InvalidInputError(f"{name} cannot give ReduceLROnPlateau a metric",
                                        where=f"schedule {number}",
                                        help="step it by itself, after the others")
            if not isinstance(schedule, LRScheduler) or schedule.optimizer is not self.optimizer:
                raise InvalidInputError(f"{name} takes schedules of one optimizer",
                                        where=f"schedule {number}", got=type(schedule).__name__)

    def _first(self) -> list[LRScheduler]:
        """The schedules that make the first step."""
        return self._schedulers

    def _begin(self) -> None:
        """Begin with the first learning rates."""
        for group in self.optimizer.param_groups:
            set_option(group, "lr", group["initial_lr"])
        for schedule in self._first():
            schedule._initial_step()  # noqa: SLF001 - schedules are of this package
        self._last_lr = rates_of(self.optimizer)

    def _update_lr(self, epoch: int | None = None) -> None:
        """Begin again, as a part of another schedule."""
        self.last_epoch = 0
        for schedule in self._first():
            schedule.last_epoch = -1
        self._begin()

    def state_dict(self) -> dict[str, Any]:
        """Its own, and those of its schedules."""
        return {**super().state_dict(), "_schedulers": [s.state_dict() for s in self._schedulers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        own = dict(state_dict)
        for schedule, state in zip(self._schedulers, own.pop("_schedulers"), strict=True):
            schedule.load_state_dict(state)
        super().load_state_dict(own)


class SequentialLR(_Composed):
    """Schedules one after the other: the next one begins at each of ``milestones``."""

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int],
        last_epoch: int = -1,
    ) -> None:
        self._take(schedulers, optimizer)
        if len(milestones) != len(schedulers) - 1:
            raise InvalidInputError("SequentialLR takes one milestone less than schedules",
                                    expected=len(schedulers) - 1, got=len(milestones))
        self._milestones, self.last_epoch = list(milestones), last_epoch + 1
        # Each schedule made its first step at once: begin again with the first one alone.
        self.recursive_undo()
        self._begin()

    def _first(self) -> list[LRScheduler]:
        return [self._schedulers[bisect_right(self._milestones, 0)]]

    def recursive_undo(self, sched: LRScheduler | None = None) -> None:
        """Take back one step of all schedules, but not what it set."""
        schedule = self if sched is None else sched
        if isinstance(schedule, _Composed):
            for one in schedule._schedulers:  # noqa: SLF001 - as above
                self.recursive_undo(one)
        else:
            schedule.last_epoch -= 1

    def step(self) -> None:  # type: ignore[override]
        """Go on by one epoch."""
        self.last_epoch += 1
        index = bisect_right(self._milestones, self.last_epoch)
        schedule = self._schedulers[index]
        if index > 0 and self._milestones[index - 1] == self.last_epoch:
            schedule._update_lr(0)  # noqa: SLF001 - as above
        else:
            schedule.step()
        self._last_lr = schedule.get_last_lr()


class ChainedScheduler(_Composed):
    """Several schedules at once: each changes what the one before it set."""

    def __init__(
        self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None
    ) -> None:
        self._take(schedulers, optimizer)
        self._last_lr = rates_of(self.optimizer)

    def step(self) -> None:  # type: ignore[override]
        """Go on by one epoch."""
        for schedule in self._schedulers:
            schedule.step()
        self._last_lr = rates_of(self.optimizer)
