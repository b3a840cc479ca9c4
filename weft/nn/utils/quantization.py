"""Quantisation-aware training: 8-bit weights and data in training, integer programs afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any, TypeVar

import numpy as np

from weft.eager.emitter import call
from weft.eager.functions import creation
from weft.eager.grad_mode import no_grad
from weft.eager.tensor import Tensor
from weft.nn.modules.conv import Conv1d, Conv2d, Conv3d
from weft.nn.modules.linear import Linear
from weft.nn.modules.module import Module, ModuleError
from weft.nn.utils.parametrize import is_parametrized, register_parametrization

M = TypeVar("M", bound=Module)
_LAYERS = (Linear, Conv1d, Conv2d, Conv3d)
_LEAST = float(np.finfo(np.float32).tiny)


class FakeQuantize(Module):
    """Rounds a tensor to 8 bits and back; its gradient is straight-through (Bengio et al., 2013).

    ``is_converted``: by ``qnn.quantize`` and ``qnn.dequantize``, which the compiler makes integers
    of, and not by their simulations, which have gradients.
    """

    def __init__(self) -> None:
        super().__init__()
        self.is_converted = False

    def rounded(self, x: Tensor, scale: Tensor, zero: Tensor, dtype: str, axis: int = -1) -> Tensor:
        before, after = (("qnn.quantize", "qnn.dequantize") if self.is_converted
                         else ("qnn.simulated_quantize", "qnn.simulated_dequantize"))
        codes = call(before, x, scale, zero, axis=axis, out_dtype=dtype)
        return call(after, codes, scale, zero, axis=axis)  # type: ignore[no-any-return]


class FakeQuantizeWeight(FakeQuantize):
    """A weight in int8 with a scale per output, that of its largest element."""

    def forward(self, weight: Tensor) -> Tensor:
        with no_grad():
            largest = weight.detach().abs().amax(dim=tuple(range(1, weight.ndim)))
            scale = (largest / 127).clamp(min=_LEAST)
            zero = creation.zeros(weight.shape[0], dtype="int32")
        return self.rounded(weight, scale, zero, "int8", axis=0)

    def right_inverse(self, weight: Tensor) -> Tensor:
        return weight


class FakeQuantizeData(FakeQuantize):
    """Data in uint8, with moving averages of their least and largest elements in training."""

    low: Tensor
    high: Tensor

    def __init__(self, momentum: float) -> None:
        super().__init__()
        self.momentum = momentum
        self.register_buffer("low", creation.zeros(()))
        self.register_buffer("high", creation.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        with no_grad():
            if self.training and not self.is_converted:
                self._observe(x.detach())
            scale = ((self.high - self.low) / 255).clamp(min=_LEAST)
            zero = (-self.low / scale).round().clamp(0, 255).to(dtype="int32")
        return self.rounded(x, scale, zero, "uint8")

    def _observe(self, x: Tensor) -> None:
        """Ranges hold zero. The first batch gives them, further ones move them."""
        low, high = x.amin().clamp(max=0), x.amax().clamp(min=0)
        is_first = (self.high == self.low).to(dtype="float32")
        share = is_first + (1 - is_first) * self.momentum
        self.low.copy_(self.low + share * (low - self.low))
        self.high.copy_(self.high + share * (high - self.high))


def prepare_qat(model: M, *, keep: tuple[str, ...] = (), momentum: float = 0.1) -> M:
    """Let linear layers and convolutions of ``model`` compute with weights and data of 8 bits.

    ``keep`` are patterns of names of layers that stay. ``momentum`` is the share of a batch in the
    ranges of the data. Returns ``model``, which is trained as before; then ``convert_qat`` follows.
    """
    if not 0 < momentum <= 1:
        raise ModuleError("prepare_qat: momentum is a share", expected="above 0, at most 1",
                          got=momentum)
    layers = [(name, layer) for name, layer in model.named_modules() if isinstance(layer, _LAYERS)
              and not any(fnmatchcase(name, pattern) for pattern in keep)]
    if not layers:
        raise ModuleError("prepare_qat: the model has no layer to quantise",
                          got=type(model).__name__, expected="Linear, Conv1d, Conv2d or Conv3d")
    for name, layer in layers:
        if is_parametrized(layer, "weight"):
            raise ModuleError("prepare_qat: the weight of a layer is computed already", where=name)
        register_parametrization(layer, "weight", FakeQuantizeWeight())
        layer.add_module("fake_quantize", FakeQuantizeData(momentum).train(layer.training))
        layer.register_forward_pre_hook(_quantized_data)
    return model


def _quantized_data(layer: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    return (layer.fake_quantize(args[0]), *args[1:])


def convert_qat(model: M) -> M:
    """Let a trained model of ``prepare_qat`` round by integers, in evaluation mode.

    ``weft.trace(model, x)`` is then a program whose matmuls and convolutions multiply integers.
    """
    found = list(_quantizers(model))
    if not found:
        raise ModuleError("convert_qat: the model is not prepared", got=type(model).__name__,
                          help="call weft.nn.utils.prepare_qat before training")
    for name, quantizer in found:
        if isinstance(quantizer, FakeQuantizeData) and not (
                float(quantizer.high.item()) > float(quantizer.low.item())):
            raise ModuleError("convert_qat: a layer has seen no data", where=name,
                              help="run the model in training mode first")
        quantizer.is_converted = True
    return model.eval()


def _quantizers(model: Module) -> Iterator[tuple[str, FakeQuantize]]:
    for name, module in model.named_modules():
        if isinstance(module, FakeQuantize):
            yield name, module
