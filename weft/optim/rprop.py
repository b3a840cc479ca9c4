"""Rprop: steps whose sizes follow the signs of the gradients."""

from __future__ import annotations

from typing import Any, Unpack

from weft.eager.emitter import call
from weft.eager.tensor import Tensor
from weft.optim.optimizer import Flags, Optimizer, Params, Rate, State
from weft.optim.param_group import ParamGroup
from weft.optim.updates import scalar
from weft.support.errors import InvalidInputError


class Rprop(Optimizer):
    """Resilient backpropagation (Riedmiller and Braun 1993), for whole data sets.

    The size of a step grows by the second of ``etas`` while the sign of its gradient stays, shrinks
    by the first when it changes, and stays within ``step_sizes``; ``lr`` is the first size.
    """

    slots = ("prev", "step_size")
    flags = ("capturable", "foreach", "maximize", "differentiable")

    def __init__(
        self, params: Params, lr: Rate = 1e-2, etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50), **flags: Unpack[Flags],
    ) -> None:
        super().__init__(params, {"lr": lr, "etas": tuple(etas),
                                  "step_sizes": tuple(step_sizes)}, flags)

    def check_options(self, group: ParamGroup) -> None:
        super().check_options(group)
        shrinks, grows = group["etas"]
        if not 0 < shrinks < 1 < grows:
            raise InvalidInputError("Rprop: etas are out of range", got=f"{shrinks}, {grows}",
                                    expected="0 < etas[0] < 1 < etas[1]")

    def update(
        self, parameter: Tensor, gradient: Tensor, state: State, group: ParamGroup,
        shared: dict[Any, Any],
    ) -> None:
        shrinks, grows, least, most, lr = (
            scalar(group.tensor(name, i), parameter)
            for name, i in (("etas", 0), ("etas", 1), ("step_sizes", 0), ("step_sizes", 1),
                            ("lr", 0)))
        agreement = gradient * state["prev"]
        reversed_ = agreement < 0
        factor = call("where", reversed_, shrinks, call("where", agreement > 0, grows, 1.0))
        size = call("where", state["step"] <= 1, lr, state["step_size"]) * factor
        size = call("minimum", call("maximum", size, least), most)
        gradient = call("where", reversed_, 0.0, gradient)
        parameter.sub_(call("sign", gradient) * size)
        state["step_size"].copy_(size)
        state["prev"].copy_(gradient)
