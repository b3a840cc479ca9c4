"""Forward mode: ``weft.jvp``."""

from __future__ import annotations

from collections.abc import Sequence

from weft.compiler.transformations.parameters import (
    Argnums,
    ExampleInputs,
    Inputs,
    Wanted,
    imported,
)
from weft.frontend.source import ModelLike
from weft.ir.module import IRModule
from weft.transform.autodiff.forward.transform import ForwardMode


def jvp(
    model: ModelLike,
    argnums: Argnums = None,
    *,
    with_respect_to: str | Sequence[str] = (),
    training: bool | None = None,
    inputs: Inputs = None,
    example_inputs: ExampleInputs = None,
) -> IRModule:
    """The Jacobian-vector product: ``(x, .., dx, ..) -> (y, dy)`` (JAX's ``jvp``).

    A tangent ``%dx`` of the type of ``%x`` follows for each parameter that ``argnums`` or
    ``with_respect_to`` names, in the given order, by default for each that holds floating point.
    ``dy`` has the type of the result ``y``. The other arguments are those of ``weft.grad``.

    Raises ``PassError`` with a list of all operators that cannot be differentiated, and for
    parameters and results that are not tensors or tuples of them; ``OptionError`` for parameters
    that do not exist; and what importing the model raises.
    """
    mod = imported(model, inputs, example_inputs)
    wanted = Wanted.of(mod, argnums, with_respect_to)
    return ForwardMode(with_respect_to=wanted.names, training=training)(mod)
