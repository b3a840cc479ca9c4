"""``weft.grad``: the gradient of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import weft.op  # noqa: F401 - models and programs refer to operators by name
from weft.compiler.options import CompileOptions
from weft.compiler.sources import ModelLike, import_model, prepare
from weft.ir.module import IRModule
from weft.support.plugins import load_plugins
from weft.transform.autodiff.gradient import Gradient


def grad(
    model: ModelLike,
    *,
    with_respect_to: Sequence[str] = (),
    training: bool | None = None,
    inputs: Mapping[str, Sequence[object]] | None = None,
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = None,
) -> IRModule:
    """The module that returns ``(value, (gradient of each floating-point parameter, ..))``.

    ``model``, ``inputs`` and ``example_inputs`` are those of ``weft.compile``; the weights of an
    ONNX or torch model are constants; its parameters are the inputs of the graph.
    ``with_respect_to`` names the parameters to differentiate by (default: all). Compile the result
    like any other module.

    ``nn.batch_norm`` normalises by the statistics that it is given; with ``training=True`` it
    normalises by the mean and biased variance of the batch, through which gradients flow, and
    returns these two as its second and third result. ``nn.dropout`` with a rate above 0 raises
    ``PassError``, because it is the identity at inference; ``training=False`` asks for the gradient
    of that identity. For training, multiply by a mask that ``random.bernoulli`` draws from a key.
    ``annotation.stop_gradient`` makes a gradient zero.

    Raises ``PassError`` with a list of all operators that cannot be differentiated, and what
    importing the model raises.
    """
    load_plugins()
    options = CompileOptions.make(inputs=inputs)
    mod = import_model(prepare(model, example_inputs, inputs), options)
    names = (with_respect_to,) if isinstance(with_respect_to, str) else tuple(with_respect_to)
    return Gradient(with_respect_to=names, training=training)(mod)
