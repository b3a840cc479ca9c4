"""Parameters as one vector, and back."""

from __future__ import annotations

import math
from collections.abc import Iterable

from weft.eager.emitter import call
from weft.eager.grad_mode import no_grad
from weft.eager.tensor import Tensor
from weft.support.errors import InvalidInputError


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All elements of ``parameters`` in order, as one vector."""
    flat = [p.reshape((-1,)) for p in parameters]
    if not flat:
        raise InvalidInputError("parameters_to_vector: no parameters")
    return call("concatenate", *flat, axis=0) if len(flat) > 1 else flat[0]


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Write the elements of ``vec`` to ``parameters`` in order."""
    chosen = list(parameters)
    sizes = [math.prod(p.shape) for p in chosen]
    if sum(sizes) != vec.numel():
        raise InvalidInputError("vector_to_parameters: wrong number of elements",
                                expected=sum(sizes), got=vec.numel())
    start = 0
    with no_grad():
        for parameter, size in zip(chosen, sizes, strict=True):
            part = call("strided_slice", vec.detach(), begin=(start,), end=(start + size,))
            parameter.copy_(part.reshape(tuple(parameter.shape)))
            start += size
