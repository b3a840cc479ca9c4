"""Clipping of gradients, by their norm or by value."""

from __future__ import annotations

import math
from collections.abc import Iterable

from weft.eager.emitter import call
from weft.eager.functions import creation
from weft.eager.grad_mode import no_grad
from weft.eager.tensor import Tensor
from weft.support.errors import InvalidInputError


def _with_gradients(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    given = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    return [p for p in given if p.grad is not None]


def get_total_norm(
    tensors: Tensor | Iterable[Tensor], norm_type: float = 2.0, error_if_nonfinite: bool = False
) -> Tensor:
    """The p-norm of all elements of ``tensors`` together; ``math.inf`` is the largest one."""
    given = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    if not given:
        return creation.zeros(())
    if norm_type == math.inf:
        each = [call("max", call("abs", t)) for t in given]
        total = call("max", call("stack", *each, axis=0)) if len(each) > 1 else each[0]
    else:
        powers = [(t * t if norm_type == 2 else call("abs", t).pow(norm_type)).sum()
                  for t in given]
        summed = call("sum", call("stack", *powers, axis=0)) if len(powers) > 1 else powers[0]
        total = summed.sqrt() if norm_type == 2 else summed.pow(1.0 / norm_type)
    if error_if_nonfinite and not math.isfinite(float(total.item())):
        raise InvalidInputError("the norm of the gradients is not finite", got=total.item(),
                                help="error_if_nonfinite=False clips all the same")
    return total


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
) -> Tensor:
    """Scale the gradients so that their norm together is at most ``max_norm``; the norm before.

    The factor is ``max_norm / (norm + 1e-6)``, at most 1, as in torch.
    """
    chosen = _with_gradients(parameters)
    with no_grad():
        gradients = [p.grad.detach() for p in chosen if p.grad is not None]
        total = get_total_norm(gradients, norm_type, error_if_nonfinite)
        factor = call("minimum", max_norm / (total + 1e-6), 1.0)
        for parameter, gradient in zip(chosen, gradients, strict=True):
            parameter.grad = gradient * factor.to(gradient.dtype)
    return total


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float) -> None:
    """Limit each element of the gradients to plus or minus ``clip_value``."""
    bound = float(clip_value)
    with no_grad():
        for parameter in _with_gradients(parameters):
            if parameter.grad is not None:
                parameter.grad = call("clip", parameter.grad.detach(), a_min=-bound, a_max=bound)
