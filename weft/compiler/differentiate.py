"""``weft.grad``: the gradient of whatever can be compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import weft.op  # noqa: F401 - models and programs refer to operators by name
from weft.compiler.options import CompileOptions
from weft.compiler.sources import import_model, prepare
from weft.ir.module import IRModule
from weft.support.plugins import load_plugins
from weft.transform.autodiff.gradient import Gradient


def grad(
    model: Any,
    *,
    with_respect_to: Sequence[str] = (),
    training: bool | None = None,
    inputs: Mapping[str, Sequence[object]] | None = None,
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = None,
) -> IRModule:
    """The module that returns ``(value, (gradient of each floating-point parameter, ..))``.

    ``model``, ``inputs`` and ``example_inputs`` are those of ``weft.compile``; the weights of an
    ONNX or torch model are constants, and its parameters the inputs of its graph.
    ``with_respect_to`` names the parameters wanted. Compile the result like any other module.

    Operators mean in a gradient what they compute. ``nn.batch_norm`` normalises by the statistics
    that it is given, which are inputs or constants like others; with ``training=True`` it
    normalises by mean and biased variance of the batch, through which gradients flow, and gives
    these two as its second and third result. ``nn.dropout`` with a rate above 0 drops nothing at
    inference, and its gradient there is hardly ever what is wanted: it raises ``PassError``,
    unless ``training=False`` asks for that gradient. For training, multiply by a mask that
    ``random.bernoulli`` draws from a key. ``annotation.stop_gradient`` ends the flow of gradients.

    Raises ``PassError`` for what has no gradient, all of it listed, and what importing the model
    raises.
    """
    load_plugins()
    options = CompileOptions.make(inputs=inputs)
    mod = import_model(prepare(model, example_inputs, inputs), options)
    names = (with_respect_to,) if isinstance(with_respect_to, str) else tuple(with_respect_to)
    return Gradient(with_respect_to=names, training=training)(mod)
