"""The options of ``weft.quantize``, as a value that schemes read."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from weft.support.dataclass import dataclass
from weft.support.errors import OptionError
from weft.support.suggestion import did_you_mean


@dataclass(frozen=True, kw_only=True, slots=True)
class QuantizationOptions:
    """``keep`` are patterns (``*.output``) of the names of layers that stay as they are.

    ``format`` is that of weights in blocks, by default the scheme's own. Layers whose relative
    error is above ``max_error`` stay wider; ``None``: no bound. ``embeddings`` are tables that
    rows are taken from. ``damping`` (of the mean diagonal of the Hessian) and ``act_order``
    (columns of large activations first) are those of GPTQ.

    Of int8: ``calibration`` finds the ranges of activations (``minmax``, ``percentile``, ``mse``
    for least squares, ``kl`` for the least divergence). ``percentile`` is what the method of that
    name keeps, ``activations`` is their dtype. ``smoothing`` is how much of the outliers of
    activations SmoothQuant moves into the weights; ``None``: what suits each layer best.
    """

    keep: tuple[str, ...] = ()
    format: str | None = None
    max_error: float | None = 0.2
    embeddings: bool = False
    damping: float = 0.01
    act_order: bool = True
    calibration: str = "minmax"
    percentile: float = 99.99
    activations: str = "uint8"
    smoothing: float | None = None

    @staticmethod
    def make(values: Mapping[str, Any]) -> QuantizationOptions:
        """The options of those names; raises ``OptionError`` for unknown names and values."""
        known = [field.name for field in fields(QuantizationOptions)]
        for name in values:
            if name not in known:
                raise OptionError(f"unknown option {name!r} of quantize", expected=", ".join(known),
                                  help=did_you_mean(name, known))
        keep = values.get("keep", ())
        made: dict[str, Any] = {**values, "keep": (keep,) if isinstance(keep, str) else tuple(keep)}
        options = QuantizationOptions(**made)
        if options.max_error is not None and not options.max_error > 0:
            raise OptionError("max_error is not a bound", expected="a number above 0, such as 0.05",
                              got=options.max_error)
        if not options.damping > 0:
            raise OptionError("damping is out of range", expected="a number above 0, such as 0.01",
                              got=options.damping)
        options.check_ranges()
        return options

    def check_ranges(self) -> None:
        """Raise ``OptionError`` for options of int8 that are out of range."""
        if not 50 < self.percentile <= 100:
            raise OptionError("percentile is out of range",
                              expected="a percentage above 50, such as 99.99", got=self.percentile)
        if self.activations not in ("uint8", "int8"):
            raise OptionError("activations have 8 bits", expected="uint8 or int8",
                              got=self.activations)
        if self.smoothing is not None and not 0 <= self.smoothing <= 1:
            raise OptionError("smoothing is out of range",
                              expected="0 (weights keep their values) to 1", got=self.smoothing)

    def keeps(self, layer: str) -> bool:
        """Whether a pattern of ``keep`` matches the name of a layer."""
        return any(fnmatch.fnmatchcase(layer, pattern) for pattern in self.keep)
