"""Activation layers: one class per function of ``nn.functional``."""

from __future__ import annotations

from typing import Any

from weft.eager.tensor import Tensor
from weft.nn import functional as F
from weft.nn import init
from weft.nn.modules.function_layer import FunctionLayer
from weft.nn.modules.linear import new_parameter
from weft.nn.modules.module import Module, ModuleError

_INPLACE = "inplace=False"


class ReLU(FunctionLayer, function="relu", takes=_INPLACE):
    """max(x, 0)"""


class ReLU6(FunctionLayer, function="relu6", takes=_INPLACE):
    """min(max(x, 0), 6)"""


class ELU(FunctionLayer, function="elu", takes="alpha=1.0 inplace=False"):
    """x where positive, else alpha * (e**x - 1)"""


class SELU(FunctionLayer, function="selu", takes=_INPLACE):
    """ELU with the constants of self-normalizing networks."""


class CELU(FunctionLayer, function="celu", takes="alpha=1.0 inplace=False"):
    """max(x, 0) + min(0, alpha * (e**(x / alpha) - 1))"""


class LeakyReLU(FunctionLayer, function="leaky_relu", takes="negative_slope=0.01 inplace=False"):
    """x where positive, else negative_slope * x"""


class GELU(FunctionLayer, function="gelu", takes="approximate='none'"):
    """x times the normal distribution function."""


class SiLU(FunctionLayer, function="silu", takes=_INPLACE):
    """x * sigmoid(x)"""


class Mish(FunctionLayer, function="mish", takes=_INPLACE):
    """x * tanh(softplus(x))"""


class Sigmoid(FunctionLayer, function="sigmoid", takes=""):
    """1 / (1 + e**-x)"""


class Tanh(FunctionLayer, function="tanh", takes=""):
    """The hyperbolic tangent."""


class Softplus(FunctionLayer, function="softplus", takes="beta=1.0 threshold=20.0"):
    """log(1 + e**(beta x)) / beta"""


class Softsign(FunctionLayer, function="softsign", takes=""):
    """x / (1 + abs(x))"""


class Tanhshrink(FunctionLayer, function="tanhshrink", takes=""):
    """x - tanh(x)"""


class Softshrink(FunctionLayer, function="softshrink", takes="lambd=0.5"):
    """x moved towards 0 by lambd."""


class Hardshrink(FunctionLayer, function="hardshrink", takes="lambd=0.5"):
    """x, and 0 where its magnitude is at most lambd."""


class Hardtanh(FunctionLayer, function="hardtanh",
               takes="min_val=-1.0 max_val=1.0 inplace=False min_value=None max_value=None"):
    """x, limited to min_val and max_val, which older programs call min_value and max_value."""

    kept = ("min_value", "max_value")
    shown = "min_val max_val inplace"

    def _attributes(self, given: dict[str, Any]) -> dict[str, Any]:
        old = {"min_val": given.pop("min_value"), "max_val": given.pop("max_value")}
        given |= {name: value for name, value in old.items() if value is not None}
        if given["min_val"] >= given["max_val"]:
            raise ModuleError("Hardtanh: the limits are in the wrong order",
                              expected="min_val < max_val",
                              got=f"{given['min_val']} and {given['max_val']}")
        return given


class Hardsigmoid(FunctionLayer, function="hardsigmoid", takes=_INPLACE):
    """min(max(x + 3, 0), 6) / 6"""


class Hardswish(FunctionLayer, function="hardswish", takes=_INPLACE):
    """x * min(max(x + 3, 0), 6) / 6"""


class LogSigmoid(FunctionLayer, function="logsigmoid", takes=""):
    """log(sigmoid(x))"""


class Threshold(FunctionLayer, function="threshold", takes="threshold value inplace=False"):
    """x above the threshold, value elsewhere."""


class GLU(FunctionLayer, function="glu", takes="dim=-1"):
    """The first half along dim times the sigmoid of the second."""


class Softmax(FunctionLayer, function="softmax", takes="dim=None"):
    """e**x / sum(e**x) along dim."""


class LogSoftmax(FunctionLayer, function="log_softmax", takes="dim=None"):
    """log(softmax(x)) along dim."""


class Softmin(FunctionLayer, function="softmin", takes="dim=None"):
    """softmax(-x) along dim."""


class Softmax2d(Module):
    """Softmax over the channels of (N, C, H, W) or (C, H, W)."""

    def forward(self, input: Tensor) -> Tensor:
        return F.softmax(input, -3)


class RReLU(FunctionLayer, function="rrelu",
            takes=f"lower={1 / 8} upper={1 / 3} inplace=False"):
    """Leaky ReLU with random slopes in training, their mean in ``eval``."""

    by_mode, shown = True, "lower upper"


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
