"""SparseAdam: Adam that moves only the rows that a step used."""

from __future__ import annotations

from typing import Any, Unpack

from weft.eager.emitter import call
from weft.eager.tensor import Tensor
from weft.optim.adam import corrections
from weft.optim.optimizer import Flags, Optimizer, Params, Rate, State
from weft.optim.param_group import ParamGroup
from weft.optim.updates import scalar
from weft.support.errors import InvalidInputError


class SparseAdam(Optimizer):
    """Adam for tables of which a step reads few rows, as ``nn.Embedding``.

    Rows (along the first axis) whose gradient is zero keep their values and their running averages,
    as rows do that a sparse gradient of torch leaves out. Gradients of weft are dense.
    """

    slots = ("exp_avg", "exp_avg_sq")
    flags = ("maximize",)

    def __init__(
        self, params: Params, lr: Rate = 1e-3, betas: tuple[Rate, Rate] = (0.9, 0.999),
        eps: float = 1e-8, **flags: Unpack[Flags],
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": tuple(betas), "eps": eps}, flags)

    def check_options(self, group: ParamGroup) -> None:
        super().check_options(group)
        for name in ("lr", "eps"):
            if not isinstance(group[name], Tensor) and group[name] == 0:
                raise InvalidInputError(f"SparseAdam: {name} is zero", expected="more than 0")

    def update(
        self, parameter: Tensor, gradient: Tensor, state: State, group: ParamGroup,
        shared: dict[Any, Any],
    ) -> None:
        used = call("not_equal", gradient, 0)
        if gradient.ndim > 1:
            used = call("any", used, axis=tuple(range(1, gradient.ndim)), keepdims=True)
        share1, share2 = (scalar(1 - group.tensor("betas", i), gradient) for i in (0, 1))
        average, square = state["exp_avg"], state["exp_avg_sq"]
        average.copy_(call("where", used, average + (gradient - average) * share1, average))
        square.copy_(call("where", used, square + (gradient * gradient - square) * share2, square))
        first, second = corrections(state, group, shared)
        size = scalar(group.tensor("lr") * second.sqrt() / first, parameter)
        root = square.detach().sqrt() + scalar(group.tensor("eps"), parameter)
        value = parameter.detach()
        parameter.copy_(call("where", used, value - average.detach() * size / root, value))
