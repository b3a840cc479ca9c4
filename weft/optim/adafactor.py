"""Adafactor: a learning rate per element from means of rows and columns."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from weft.eager.dtypes import dtype
from weft.eager.emitter import call
from weft.eager.tensor import Tensor
from weft.optim.optimizer import Flags, Optimizer, Params, Rate, State
from weft.optim.param_group import ParamGroup
from weft.optim.updates import scalar, shrunk, wide


class Adafactor(Optimizer):
    """Adaptive steps with little state (Shazeer and Stern 2018), as torch's.

    ``beta2_decay`` is the exponent of the share of the present gradient, ``eps`` the least variance
    (that of the dtype if ``None``) and the least size of a parameter, and ``d`` the largest size of
    an update.
    """

    flags = ("foreach", "maximize")

    def __init__(
        self, params: Params, lr: Rate = 1e-2, beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3), d: float = 1.0,
        weight_decay: float = 0.0, **flags: Unpack[Flags],
    ) -> None:
        super().__init__(params, {"lr": lr, "beta2_decay": beta2_decay, "eps": tuple(eps), "d": d,
                                  "weight_decay": weight_decay}, flags)

    def slot_names(self, group: ParamGroup, parameter: Tensor) -> tuple[str, ...]:
        return ("row_var", "col_var") if parameter.ndim > 1 else ("variance",)

    def slot_shape(self, name: str, parameter: Tensor) -> tuple[int, ...]:
        shape = list(parameter.shape)
        if name in _MEAN_AXES:
            shape[_MEAN_AXES[name]] = 1
        return tuple(shape)

    def update(
        self, parameter: Tensor, gradient: Tensor, state: State, group: ParamGroup,
        shared: dict[Any, Any],
    ) -> None:
        least, least_size = group["eps"]
        if least is None:
            least = _eps(parameter.dtype)
        steps, lr = wide(state["step"]), group.tensor("lr")
        size = call("maximum", wide(_root_mean_square(parameter.detach())), float(least_size))
        rate = size * call("minimum", lr, steps.rsqrt())
        share = scalar(steps.pow(group.tensor("beta2_decay")), gradient)
        variance = call("maximum", self._variance(gradient, state, share, least), least * least)
        update = gradient * variance.rsqrt()
        large = wide(_root_mean_square(update)) / group.tensor("d")
        rate = rate / call("maximum", large, 1.0)
        value = shrunk(parameter.detach(), group)
        parameter.copy_(value - update * scalar(rate, value))

    def _variance(self, gradient: Tensor, state: State, share: Tensor, least: float) -> Tensor:
        """The running mean of squares, of matrices as a product of a column and a row."""
        squares = gradient * gradient
        names = ("row_var", "col_var") if gradient.ndim > 1 else ("variance",)
        for name in names:
            present = squares.mean(_MEAN_AXES[name], keepdim=True) if name in _MEAN_AXES \
                else squares
            kept = state[name]
            kept.copy_(kept + (present - kept) * share)
        if gradient.ndim <= 1:
            return state["variance"].detach()
        rows, columns = state["row_var"].detach(), state["col_var"].detach()
        return rows * columns / call("maximum", rows.mean(-2, keepdim=True), least)


_MEAN_AXES = {"row_var": -1, "col_var": -2}


def _root_mean_square(x: Tensor) -> Tensor:
    return (x * x).mean().sqrt()


def _eps(kind: dtype) -> float:
    return 2.0**-7 if kind.name == "bfloat16" else float(np.finfo(kind.numpy).eps)
