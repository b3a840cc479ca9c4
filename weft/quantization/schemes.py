"""The schemes of quantisation by name: a row per scheme, whose module is imported when used."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from weft.support.dataclass import dataclass
from weft.support.errors import OptionError
from weft.support.suggestion import did_you_mean

if TYPE_CHECKING:
    import numpy as np

    from weft.ir.module import IRModule
    from weft.quantization.options import QuantizationOptions
    from weft.quantization.report import LayerReport

# Batches of calibration data: an array per input, by name. Empty without data.
Samples: TypeAlias = "Sequence[Mapping[str, np.ndarray]]"


class SchemeRun(Protocol):
    """Quantises a typed module, and reports its layers."""

    def __call__(self, module: IRModule, samples: Samples, options: QuantizationOptions,
                 **settings: Any) -> tuple[IRModule, Sequence[LayerReport]]: ...


@dataclass(frozen=True, slots=True)
class Scheme:
    """``run`` is ``"module:function"``, a ``SchemeRun`` that gets ``settings`` too.

    ``data`` says whether calibration data is needed, used if given, or of no use.
    """

    name: str
    summary: str
    run: str
    settings: Mapping[str, Any]
    data: str = "unused"

    def apply(self, module: IRModule, samples: Samples, options: QuantizationOptions
              ) -> tuple[IRModule, Sequence[LayerReport]]:
        """The quantised module and the reports of its layers.

        Raises ``OptionError`` if data is needed and not given, or given and of no use.
        """
        self.check_data(bool(samples))
        path, _, function = self.run.partition(":")
        run: SchemeRun = getattr(importlib.import_module(path), function)
        return run(module, samples, options, **self.settings)

    def check_data(self, given: bool) -> None:
        """Raise ``OptionError`` if calibration data is needed and not ``given``."""
        if self.data == "needed" and not given:
            raise OptionError(f"the scheme {self.name!r} needs calibration data",
                              help="pass data=[{input name: array}, ...], or choose a scheme "
                                   f"without data: {', '.join(without_data())}")


_MIXED = "weft.quantization.mixed:run"
_STATIC = "weft.quantization.static"
_WEIGHTS = "weft.quantization.weight_only.run:run"
_INT4 = "int4_g32"

SCHEMES: dict[str, Scheme] = {one.name: one for one in (
    Scheme("bf16", "matmuls and convolutions in bfloat16", _MIXED, {"dtype": "bfloat16"}),
    Scheme("fp16", "matmuls and convolutions in float16", _MIXED, {"dtype": "float16"}),
    Scheme("int8", "weights and activations in int8, static with data, dynamic without",
           f"{_STATIC}.calibrated:run", {}, data="used"),
    Scheme("int8_dynamic", "weights in int8, activations in int8 with a scale per row found at "
           "run time", f"{_STATIC}.dynamic:run", {}, data="used"),
    Scheme("smoothquant", "int8 after the outliers of activations moved into the weights",
           f"{_STATIC}.calibrated:run", {"smooth": True}, data="needed"),
    Scheme("int4", "weights in 4 bits, scales searched; by GPTQ with data", _WEIGHTS,
           {"method": "search", "with_data": "gptq", "format": _INT4}, "used"),
    Scheme("int4_rtn", "weights in 4 bits, rounded to nearest", _WEIGHTS,
           {"method": "round", "format": _INT4}, "used"),
    Scheme("int4_search", "weights in 4 bits, scales of the least squared error", _WEIGHTS,
           {"method": "search", "format": _INT4}, "used"),
    Scheme("int4_gptq", "weights in 4 bits by GPTQ", _WEIGHTS,
           {"method": "gptq", "format": _INT4}, "needed"),
    Scheme("int4_awq", "weights in 4 bits by AWQ", _WEIGHTS,
           {"method": "awq", "format": _INT4}, "needed"),
    Scheme("nf4", "weights in the 16 levels of NF4, scales searched", _WEIGHTS,
           {"method": "search", "with_data": "gptq", "format": "nf4_g64"}, "used"),
    Scheme("int8_weight_only", "weights in 8 bits, rounded to nearest", _WEIGHTS,
           {"method": "round", "format": "q8_0"}, "used"),
)}


def scheme_named(name: str) -> Scheme:
    """The scheme of that name; ``OptionError`` if there is none."""
    if name not in SCHEMES:
        raise OptionError(f"unknown scheme {name!r} of quantisation", expected=", ".join(SCHEMES),
                          help=did_you_mean(str(name), SCHEMES))
    return SCHEMES[name]


def without_data() -> list[str]:
    """The names of the schemes that need no calibration data."""
    return [scheme.name for scheme in SCHEMES.values() if scheme.data != "needed"]
