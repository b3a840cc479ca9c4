"""Dropout layers, active in training mode only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from weft.eager.tensor import Tensor
from weft.nn import functional as F
from weft.nn.modules.module import Module, ModuleError


class _Dropout(Module):
    function: ClassVar[Callable[..., Tensor]]

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ModuleError("the probability of dropout is out of range",
                              expected="0 <= p <= 1", got=p)
        self.p, self.inplace = p, inplace

    def forward(self, input: Tensor) -> Any:
        return type(self).function(input, self.p, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_Dropout):
    """Zeroes each element with probability ``p``, and divides the others by 1 - p."""

    function: ClassVar[Callable[..., Tensor]] = staticmethod(F.dropout)


class Dropout1d(_Dropout):
    """Zeroes whole channels of (N, C, L)."""

    function: ClassVar[Callable[..., Tensor]] = staticmethod(F.dropout1d)


class Dropout2d(_Dropout):
    """Zeroes whole channels of (N, C, H, W)."""

    function: ClassVar[Callable[..., Tensor]] = staticmethod(F.dropout2d)


class Dropout3d(_Dropout):
    """Zeroes whole channels of (N, C, D, H, W)."""

    function: ClassVar[Callable[..., Tensor]] = staticmethod(F.dropout3d)


class AlphaDropout(_Dropout):
    """Dropout for SELU, which keeps mean and variance."""

    function: ClassVar[Callable[..., Tensor]] = staticmethod(F.alpha_dropout)


class FeatureAlphaDropout(_Dropout):
    """Alpha dropout of whole channels."""

    function: ClassVar[Callable[..., Tensor]] = staticmethod(F.feature_alpha_dropout)
