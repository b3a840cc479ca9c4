"""Schedules that a function of the epoch gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

from weft.optim.lr_scheduler.schedule import LRScheduler, per_group
from weft.optim.optimizer import Optimizer
from weft.support.errors import InvalidInputError

Function = Callable[[int], float]


class LambdaLR(LRScheduler):
    """The first learning rate times ``lr_lambda(epoch)``: one function, or one per group.

    State dicts have the attributes of functions that are objects; the constructor gets the
    functions again.
    """

    def __init__(
        self, optimizer: Optimizer, lr_lambda: Function | Sequence[Function],
        last_epoch: int = -1,
    ) -> None:
        self.lr_lambdas: list[Any] = per_group("lr_lambda", optimizer, lr_lambda)
        for function in self.lr_lambdas:
            if not callable(function):
                raise InvalidInputError("lr_lambda is not a function",
                                        got=type(function).__name__)
        super().__init__(optimizer, last_epoch)

    def rates(self) -> list[float]:
        return [base * function(self.last_epoch)
                for base, function in zip(self.base_lrs, self.lr_lambdas, strict=True)]

    closed_rates = rates

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "lr_lambdas": [attributes(f) for f in self.lr_lambdas]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        own = dict(state_dict)
        for function, known in zip(self.lr_lambdas, own.pop("lr_lambdas"), strict=True):
            if known is not None:
                function.__dict__.update(known)
        super().load_state_dict(own)


class MultiplicativeLR(LambdaLR):
    """The present learning rate times ``lr_lambda(epoch)``: one function, or one per group."""

    def rates(self) -> list[float]:
        if self._is_initial:
            return self._present
        return [lr * function(self.last_epoch)
                for lr, function in zip(self._present, self.lr_lambdas, strict=True)]

    closed_rates = rates


def attributes(function: Any) -> dict[str, Any] | None:
    """The attributes of an object that is called like a function."""
    return None if isinstance(function, FunctionType) else dict(getattr(function, "__dict__", {}))
