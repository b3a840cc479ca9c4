"""LRScheduler: what all schedules share."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, ClassVar, Self

from weft.eager.cell import MODE
from weft.eager.grad_mode import no_grad
from weft.eager.tensor import Tensor
from weft.nn.modules.arguments import check_keywords
from weft.optim.optimizer import Optimizer
from weft.support.errors import InvalidInputError


class LRScheduler:
    """Base class: ``get_lr`` gives the next learning rate of each group.

    ``last_epoch`` counts the calls of ``step`` from 0, the constructor's own. Subclasses may define
    ``value(epoch, base)`` instead, the learning rate in closed form.
    """

    # A compiled function sees all that it reads.
    _not_watched: ClassVar[frozenset[str]] = frozenset()

    _is_initial: bool = False  # while the constructor makes its own step
    _get_lr_called_within_step: bool = False

    def __new__(cls, *_: Any, **named: Any) -> Self:
        check_keywords(cls, frozenset(named))
        return super().__new__(cls)

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        check_optimizer(optimizer)
        self.optimizer, self.last_epoch = optimizer, last_epoch
        for number, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", float(group["lr"]))
            elif "initial_lr" not in group:
                raise InvalidInputError(
                    "a resumed schedule needs initial_lr in each group", where=f"group {number}",
                    help="load the optimizer's state dict first")
        self.base_lrs = [float(group["initial_lr"]) for group in optimizer.param_groups]
        self._last_lr: list[Any] = []
        self._initial_step()

    def _initial_step(self) -> None:
        self._step_count, self._is_initial = 0, True
        try:
            self.step()
        finally:
            self._is_initial = False

    def value(self, epoch: int, base: float) -> float:
        """The learning rate of a group whose first one was ``base``."""
        raise InvalidInputError(f"{type(self).__name__} does not say the learning rate",
                                help="define get_lr(), or value(epoch, base)")

    def rates(self) -> list[float]:
        """The learning rates of the groups at ``last_epoch``."""
        return self.closed_rates()

    def closed_rates(self) -> list[float]:
        """The same in closed form, whatever the present learning rates are."""
        return [self.value(self.last_epoch, base) for base in self.base_lrs]

    def get_lr(self) -> list[float]:
        """The learning rates that ``step`` is about to set."""
        if not self._get_lr_called_within_step:
            warnings.warn("get_lr() is for step() alone: get_last_lr() gives the last learning "
                          "rates", UserWarning, stacklevel=2)
        return self.rates()

    def get_last_lr(self) -> list[Any]:
        """The learning rates that the last ``step`` set."""
        return self._last_lr

    def step(self, epoch: int | None = None) -> None:
        """Go on by one epoch (or iteration), or to ``epoch``."""
        check_outside_of_traces("scheduler.step()")
        if self._step_count == 1 and not self.optimizer.has_stepped \
                and type(self.optimizer).step is Optimizer.step:
            warnings.warn("lr_scheduler.step() before optimizer.step(): the first learning rate "
                          "is skipped; call optimizer.step() first", UserWarning, stacklevel=2)
        self._step_count += 1
        if epoch is not None:
            warn_of_epoch()
        self._update_lr(epoch)

    def _update_lr(self, epoch: int | None = None) -> None:
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        self._get_lr_called_within_step = True
        try:
            is_closed = epoch is not None and type(self).get_lr is LRScheduler.get_lr
            values = self.closed_rates() if is_closed else self.get_lr()
        finally:
            self._get_lr_called_within_step = False
        self._set(values)

    def _set(self, values: Sequence[float]) -> None:
        for group, value in zip(self.optimizer.param_groups, values, strict=True):
            set_option(group, "lr", value)
        self._last_lr = rates_of(self.optimizer)

    @property
    def _present(self) -> list[float]:
        return [float(group["lr"]) for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer and functions."""
        return {k: v for k, v in self.__dict__.items()
                if k != "optimizer" and not callable(v)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state dict; the optimizer's own has the present learning rate."""
        self.__dict__.update(state_dict)


def check_optimizer(optimizer: Any) -> None:
    """Raise ``InvalidInputError`` unless ``optimizer`` is one of weft's."""
    if not isinstance(optimizer, Optimizer):
        raise InvalidInputError("a schedule takes an optimizer of weft",
                                got=type(optimizer).__name__)


def check_outside_of_traces(what: str) -> None:
    """Raise ``InvalidInputError`` while a function is traced: it would run once, not every step."""
    if MODE.trace is not None:
        raise InvalidInputError(f"{what} inside of a compiled function",
                                help="call it outside, after the compiled step")


def warn_of_epoch() -> None:
    """Warn that ``step(epoch)`` is on its way out, as torch does."""
    warnings.warn("the epoch argument of scheduler.step() is deprecated: call scheduler.step()",
                  UserWarning, stacklevel=3)


def per_group(name: str, optimizer: Optimizer, value: Any) -> list[Any]:
    """An argument of a schedule for each group: one for all, or a list of as many as groups."""
    count = len(optimizer.param_groups)
    if not isinstance(value, list | tuple):
        return [value] * count
    if len(value) != count:
        raise InvalidInputError(f"{name} has another length than param_groups", expected=count,
                                got=len(value))
    return list(value)


def rates_of(optimizer: Optimizer) -> list[Any]:
    """The present learning rates: numbers, or copies of those that are tensors."""
    return [lr.clone() if isinstance(lr, Tensor) else lr
            for lr in (group["lr"] for group in optimizer.param_groups)]


def set_option(group: Any, name: str, value: float) -> None:
    """Set an option of a group; one that is a tensor is changed in place."""
    present = group.get(name)
    if isinstance(present, Tensor):
        with no_grad():
            present.fill_(float(value))
    else:
        group[name] = value


def set_momentum(group: Any, value: float) -> None:
    """Set the momentum of a group, or the first of its betas."""
    if "betas" in group:
        group["betas"] = (value, *group["betas"][1:])
    else:
        group["momentum"] = value


def begin_momenta(optimizer: Optimizer, base: Any, largest: Any, is_resumed: bool) -> None:
    """Give each group ``base_momentum`` and ``max_momentum``, and begin at the latter."""
    if not {"betas", "momentum"} & set(optimizer.defaults):
        raise InvalidInputError("the optimizer has neither momentum nor betas",
                                help="pass cycle_momentum=False")
    bases = per_group("base_momentum", optimizer, base)
    peaks = per_group("max_momentum", optimizer, largest)
    if is_resumed:
        return
    for group, low, high in zip(optimizer.param_groups, bases, peaks, strict=True):
        set_momentum(group, high)
        group.update(max_momentum=high, base_momentum=low)
