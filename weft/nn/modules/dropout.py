"""Dropout layers, active in training mode only."""

from __future__ import annotations

from typing import Any

from weft.nn.modules.function_layer import FunctionLayer
from weft.nn.modules.module import ModuleError


class _Dropout(FunctionLayer, takes="p=0.5 inplace=False"):
    by_mode = True

    def _attributes(self, given: dict[str, Any]) -> dict[str, Any]:
        if not 0 <= given["p"] <= 1:
            raise ModuleError("the probability of dropout is out of range",
                              expected="0 <= p <= 1", got=given["p"])
        return given


class Dropout(_Dropout, function="dropout"):
    """Zeroes each element with probability ``p``, and divides the others by 1 - p."""


class Dropout1d(_Dropout, function="dropout1d"):
    """Zeroes whole channels of (N, C, L)."""


class Dropout2d(_Dropout, function="dropout2d"):
    """Zeroes whole channels of (N, C, H, W)."""


class Dropout3d(_Dropout, function="dropout3d"):
    """Zeroes whole channels of (N, C, D, H, W)."""


class AlphaDropout(_Dropout, function="alpha_dropout"):
    """Dropout for SELU, which keeps mean and variance."""


class FeatureAlphaDropout(_Dropout, function="feature_alpha_dropout"):
    """Alpha dropout of whole channels."""
