"""L-BFGS: quasi-Newton steps from the last changes of the gradient."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.eager.cell import MODE
from weft.eager.functions.shape import cat
from weft.eager.grad_mode import enable_grad, no_grad
from weft.eager.tensor import Tensor
from weft.optim.line_search import Point, strong_wolfe
from weft.optim.optimizer import Optimizer, Params, Rate, State
from weft.optim.param_group import ParamGroup
from weft.support.errors import InvalidInputError, OptionError

_LEAST_CURVATURE = 1e-10


class LBFGS(Optimizer):
    """Limited-memory BFGS (Liu and Nocedal 1989), with torch's options and state.

    ``step(closure)`` evaluates the closure up to ``max_eval`` times, which clears the gradients,
    computes them and returns the loss. It decides by the losses: it is no part of a compiled step,
    but the closure may be one. All parameters are one group.
    """

    counts_steps = False

    def __init__(
        self, params: Params, lr: Rate = 1, max_iter: int = 20, max_eval: int | None = None,
        tolerance_grad: float = 1e-7, tolerance_change: float = 1e-9, history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        super().__init__(params, {
            "lr": lr, "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change,
            "history_size": history_size, "line_search_fn": line_search_fn})

    def check_options(self, group: ParamGroup) -> None:
        super().check_options(group)
        if self.param_groups:
            raise InvalidInputError("LBFGS takes one group of parameters")
        if group["line_search_fn"] not in (None, "strong_wolfe"):
            raise OptionError("LBFGS: unknown line_search_fn", got=repr(group["line_search_fn"]),
                              expected="None or 'strong_wolfe'")

    def _prepare(self, group: ParamGroup) -> None:
        """The state is made by the first step: its vectors depend on the gradients."""

    def _stepped(self, closure: Callable[[], Any] | None = None) -> Any:
        if closure is None:
            raise InvalidInputError("LBFGS.step() without a closure",
                                    help="pass a function that computes gradients and the loss")
        if MODE.trace is not None:
            raise InvalidInputError("LBFGS.step() inside of a compiled function",
                                    help="compile the closure with weft.train_step instead")
        with no_grad():
            return _Search(self, closure).run()

    def _loaded(
        self, name: str, value: Any, parameter: Tensor, counts: dict[float, Tensor]
    ) -> Any:
        if isinstance(value, list):
            return [self._loaded(name, one, parameter, counts) for one in value]
        if value is None or isinstance(value, int | float):
            return value
        array = np.array(value.detach().cpu() if hasattr(value, "detach") else value)
        return float(array) if array.ndim == 0 else Tensor(array)

    def state_dict(self) -> dict[str, Any]:
        found = super().state_dict()
        for entries in found["state"].values():  # lists that later steps change
            entries.update({k: copy.copy(v) for k, v in entries.items() if isinstance(v, list)})
        return found


class _Search:
    """One call of ``step``: the present loss and flat gradient, and the state of the optimiser."""

    def __init__(self, optimizer: LBFGS, closure: Callable[[], Any]) -> None:
        self.options = dict(optimizer.param_groups[0])
        self.parameters: list[Tensor] = self.options["params"]
        self.state: State = optimizer.state[self.parameters[0]]
        self.state.setdefault("func_evals", 0)
        self.state.setdefault("n_iter", 0)
        self.closure = closure
        self.loss, self.gradient = 0.0, Tensor(np.zeros(0, np.float32))

    def run(self) -> Any:
        options, state = self.options, self.state
        first = self.evaluate()
        evaluations = 1
        if self.is_flat():
            return first
        for iteration in range(1, options["max_iter"] + 1):
            state["n_iter"] += 1
            direction = state["d"] = self.direction()
            state["prev_flat_grad"], state["prev_loss"] = self.gradient, self.loss
            rate = float(options["lr"])
            if state["n_iter"] == 1:
                rate *= min(1.0, 1.0 / _number(self.gradient.abs().sum()))
            state["t"] = rate
            slope = _dot(self.gradient, direction)
            if slope > -options["tolerance_change"]:
                break
            is_last = iteration == options["max_iter"]
            evaluations += self.move(direction, rate, slope, evaluations, is_last=is_last)
            change = abs(state["t"]) * _largest(direction)
            if is_last or evaluations >= options["max_eval"] or self.is_flat() \
                    or change <= options["tolerance_change"] \
                    or abs(self.loss - state["prev_loss"]) < options["tolerance_change"]:
                break
        return first

    def move(self, direction: Tensor, rate: float, slope: float, evaluations: int, *,
             is_last: bool) -> int:
        """Move along the direction; returns how often the closure was evaluated."""
        if self.options["line_search_fn"] is None:
            self.add(direction, rate)
            if is_last:
                return 0
            self.evaluate()
            return 1
        before = [p.detach().clone() for p in self.parameters]
        start = Point(0.0, self.loss, self.gradient, slope)

        def at(step: float) -> Point:
            self.add(direction, step)
            self.evaluate()
            for parameter, value in zip(self.parameters, before, strict=True):
                parameter.copy_(value)
            return Point(step, self.loss, self.gradient, _dot(self.gradient, direction))

        counted = self.state["func_evals"]
        found, count = strong_wolfe(at, start, rate, _largest(direction),
                                    self.options["tolerance_change"],
                                    self.options["max_eval"] - evaluations)
        self.state["func_evals"] = counted + count
        self.loss, self.gradient, self.state["t"] = found.loss, found.gradient, found.step
        self.add(direction, found.step)
        return count

    def direction(self) -> Tensor:
        """Minus the gradient times the approximate inverse Hessian, by two loops."""
        state = self.state
        if state["n_iter"] == 1:
            state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1.0)
            return -self.gradient
        self.remember()
        changes, steps, inverses = state["old_dirs"], state["old_stps"], state["ro"]
        found, weights = -self.gradient, []
        for change, step, inverse in zip(changes[::-1], steps[::-1], inverses[::-1], strict=True):
            weights.append(_dot(step, found) * inverse)
            found = found - change * weights[-1]
        found = found * state["H_diag"]
        for change, step, inverse in zip(changes, steps, inverses, strict=True):
            found = found + step * (weights.pop() - _dot(change, found) * inverse)
        return found

    def remember(self) -> None:
        """Add the last step and its change of the gradient to the history."""
        state = self.state
        change = self.gradient - state["prev_flat_grad"]
        step = state["d"] * state["t"]
        curvature = _dot(change, step)
        if curvature <= _LEAST_CURVATURE:
            return
        history = (state["old_dirs"], change), (state["old_stps"], step), \
            (state["ro"], 1.0 / curvature)
        for values, new in history:
            if len(values) == self.options["history_size"]:
                values.pop(0)
            values.append(new)
        state["H_diag"] = curvature / _dot(change, change)

    def evaluate(self) -> Any:
        """Run the closure, and keep the loss and the gradient."""
        with enable_grad():
            loss = self.closure()
        self.state["func_evals"] += 1
        self.loss = _number(loss)
        self.gradient = cat([(p * 0 if p.grad is None else p.grad).detach().reshape(-1)
                             for p in self.parameters])
        return loss

    def add(self, direction: Tensor, step: float) -> None:
        start = 0
        for parameter in self.parameters:
            part = direction[start:start + parameter.numel()].reshape(tuple(parameter.shape))
            parameter.copy_(parameter.detach() + part * step)
            start += parameter.numel()

    def is_flat(self) -> bool:
        return _largest(self.gradient) <= self.options["tolerance_grad"]


def _number(value: Any) -> float:
    return float(value.item()) if isinstance(value, Tensor) else float(value)


def _dot(x: Tensor, y: Tensor) -> float:
    return _number((x * y).sum())


def _largest(x: Tensor) -> float:
    return _number(x.abs().max())
