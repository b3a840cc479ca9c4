"""Activation layers: one class per function of ``nn.functional``."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar

from weft.eager.tensor import Tensor
from weft.nn import functional as F
from weft.nn import init
from weft.nn.modules.linear import new_parameter
from weft.nn.modules.module import Module


class _Activation(Module):
    """Calls ``F.<function>`` with the arguments of the constructor, which become attributes."""

    function: ClassVar[str]
    signature: ClassVar[inspect.Signature]

    def __init_subclass__(cls, function: str, names: tuple[str, ...] | None = None) -> None:
        super().__init_subclass__()
        cls.function = function
        parameters = list(inspect.signature(getattr(F, function)).parameters.values())[1:]
        kept = [p for p in parameters if p.name not in ("training", "dtype")]
        if names is not None:
            kept = [p for p in kept if p.name in names]
        cls.signature = inspect.Signature(kept)
        cls.__signature__ = cls.signature  # type: ignore[attr-defined] - help() shows it

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        self.arguments = tuple(bound.arguments)
        for name, value in bound.arguments.items():
            setattr(self, name, value)

    def forward(self, input: Tensor) -> Tensor:
        values = {name: getattr(self, name) for name in self.arguments}
        return getattr(F, self.function)(input, **values)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in self.arguments
                         if name != "inplace" or self.inplace)


class ReLU(_Activation, function="relu"):
    """max(x, 0)"""


class ReLU6(_Activation, function="relu6"):
    """min(max(x, 0), 6)"""


class ELU(_Activation, function="elu"):
    """x where positive, else alpha * (e**x - 1)"""


class SELU(_Activation, function="selu"):
    """ELU with the constants of self-normalizing networks."""


class CELU(_Activation, function="celu"):
    """max(x, 0) + min(0, alpha * (e**(x / alpha) - 1))"""


class LeakyReLU(_Activation, function="leaky_relu"):
    """x where positive, else negative_slope * x"""


class GELU(_Activation, function="gelu"):
    """x times the normal distribution function."""


class SiLU(_Activation, function="silu"):
    """x * sigmoid(x)"""


class Mish(_Activation, function="mish"):
    """x * tanh(softplus(x))"""


class Sigmoid(_Activation, function="sigmoid"):
    """1 / (1 + e**-x)"""


class Tanh(_Activation, function="tanh"):
    """The hyperbolic tangent."""


class Softplus(_Activation, function="softplus"):
    """log(1 + e**(beta x)) / beta"""


class Softsign(_Activation, function="softsign"):
    """x / (1 + abs(x))"""


class Tanhshrink(_Activation, function="tanhshrink"):
    """x - tanh(x)"""


class Softshrink(_Activation, function="softshrink"):
    """x moved towards 0 by lambd."""


class Hardshrink(_Activation, function="hardshrink"):
    """x, and 0 where its magnitude is at most lambd."""


class Hardtanh(_Activation, function="hardtanh"):
    """x, limited to min_val and max_val."""


class Hardsigmoid(_Activation, function="hardsigmoid"):
    """min(max(x + 3, 0), 6) / 6"""


class Hardswish(_Activation, function="hardswish"):
    """x * min(max(x + 3, 0), 6) / 6"""


class LogSigmoid(_Activation, function="logsigmoid"):
    """log(sigmoid(x))"""


class Threshold(_Activation, function="threshold"):
    """x above the threshold, value elsewhere."""


class GLU(_Activation, function="glu"):
    """The first half along dim times the sigmoid of the second."""


class Softmax(_Activation, function="softmax"):
    """e**x / sum(e**x) along dim."""


class LogSoftmax(_Activation, function="log_softmax"):
    """log(softmax(x)) along dim."""


class Softmin(_Activation, function="softmin"):
    """softmax(-x) along dim."""


class Softmax2d(Module):
    """Softmax over the channels of (N, C, H, W) or (C, H, W)."""

    def forward(self, input: Tensor) -> Tensor:
        return F.softmax(input, -3)


class RReLU(Module):
    """Leaky ReLU with random slopes in training, their mean in ``eval``."""

    def __init__(
        self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False
    ) -> None:
        super().__init__()
        self.lower, self.upper, self.inplace = lower, upper, inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"lower={self.lower}, upper={self.upper}"


class PReLU(Module):
    """Leaky ReLU with learned slopes: one, or one for each channel (axis 1)."""

    def __init__(
        self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.num_parameters, self.init = num_parameters, init
        self.weight = new_parameter((num_parameters,), dtype, device)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        init.constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"
