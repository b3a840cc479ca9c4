"""Muon: momentum whose matrices are made orthogonal."""

from __future__ import annotations

import math
from typing import Any

from weft.eager.emitter import call
from weft.eager.tensor import Tensor
from weft.optim.optimizer import Optimizer, Params, Rate, State
from weft.optim.param_group import ParamGroup
from weft.optim.updates import scalar, shares, shrunk
from weft.support.errors import InvalidInputError

# adjust_lr_fn -> the factor of the learning rate by rows and columns
_ADJUSTMENTS = {
    None: lambda rows, columns: math.sqrt(max(1, rows / columns)),
    "original": lambda rows, columns: math.sqrt(max(1, rows / columns)),
    "match_rms_adamw": lambda rows, columns: 0.2 * math.sqrt(max(rows, columns)),
}


class Muon(Optimizer):
    """Steps along the orthogonal matrix nearest to the momentum (Jordan 2024), for matrices.

    A Newton-Schulz iteration in bfloat16 with ``ns_coefficients`` finds that matrix. Vectors and
    embeddings go to another optimiser, AdamW say.
    """

    slots = ("momentum_buffer",)
    counts_steps = False

    def __init__(
        self, params: Params, lr: Rate = 1e-3, weight_decay: float = 0.1, momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315),
        eps: float = 1e-7, ns_steps: int = 5, adjust_lr_fn: str | None = None,
    ) -> None:
        super().__init__(params, {
            "lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov,
            "ns_coefficients": tuple(ns_coefficients), "eps": eps, "ns_steps": ns_steps,
            "adjust_lr_fn": adjust_lr_fn})

    def check_options(self, group: ParamGroup) -> None:
        super().check_options(group)
        if group["adjust_lr_fn"] not in _ADJUSTMENTS:
            raise InvalidInputError("Muon: unknown adjust_lr_fn", got=repr(group["adjust_lr_fn"]),
                                    expected="original or match_rms_adamw")
        if len(group["ns_coefficients"]) != 3 or group["ns_steps"] >= 100:
            raise InvalidInputError(
                "Muon: wrong Newton-Schulz iteration",
                expected="three ns_coefficients and fewer than 100 ns_steps",
                got=f"{group['ns_coefficients']}, {group['ns_steps']}")
        for parameter in group["params"]:
            if parameter.ndim != 2:
                raise InvalidInputError("Muon takes matrices", got=tuple(parameter.shape),
                                        help="give other parameters to AdamW")

    def update(
        self, parameter: Tensor, gradient: Tensor, state: State, group: ParamGroup,
        shared: dict[Any, Any],
    ) -> None:
        momentum, share = shares(group, "momentum", gradient)
        buffer = state["momentum_buffer"] * momentum + gradient * share
        state["momentum_buffer"].copy_(buffer)
        if group["nesterov"]:
            buffer = gradient + (buffer - gradient) * momentum
        direction = _orthogonal(buffer, group).to(parameter.dtype)
        factor = _ADJUSTMENTS[group["adjust_lr_fn"]](*parameter.shape)
        step = scalar(group.tensor("lr") * factor, parameter)
        parameter.copy_(shrunk(parameter.detach(), group) - direction * step)


def _orthogonal(matrix: Tensor, group: ParamGroup) -> Tensor:
    """Nearly the orthogonal factor of the polar decomposition of a matrix.

    Products add up in float32; every result is rounded to bfloat16.
    """
    a, b, c = (group.tensor("ns_coefficients", i).to("float32") for i in range(3))
    is_high = matrix.shape[0] > matrix.shape[1]
    x = _rounded(matrix.T if is_high else matrix)
    size = _rounded((x * x).sum().sqrt())
    x = _rounded(x / call("maximum", size, group.tensor("eps").to("float32")))
    for _ in range(group["ns_steps"]):
        gram = _rounded(x @ x.T)
        x = _rounded(x * a + _rounded(gram * b + (gram @ gram) * c) @ x)
    return x.T if is_high else x


def _rounded(x: Tensor) -> Tensor:
    """Values of bfloat16, in float32."""
    return x.to("bfloat16").to("float32")
