"""The pass ``quantize``: a scheme that needs no data, for pipelines."""

from __future__ import annotations

from typing import ClassVar

from weft.ir import IRModule, Pass, PassContext, register_pass
from weft.quantization.options import QuantizationOptions
from weft.quantization.schemes import scheme_named
from weft.support.dataclass import dataclass
from weft.support.log import Level, debug


@register_pass
@dataclass(frozen=True)
class Quantize(Pass):
    """Quantise by a scheme without calibration data (``weft.quantize`` lists the schemes).

    def @main(%x: Tensor[(4, 8), float32], %w: Tensor[(2, 8), float32]) { nn.dense(%x, %w) }
    =>
    def @main(%x: Tensor[(4, 8), float32], %w: Tensor[(2, 8), float32]) {
      %0 = nn.dense(cast(%x, dtype="bfloat16"), cast(%w, dtype="bfloat16"));
      cast(%0, dtype="float32")
    }
    """

    name: ClassVar[str] = "quantize"
    scheme: str = "bf16"
    keep: tuple[str, ...] = ()
    max_error: float | None = QuantizationOptions().max_error

    def run_module(self, mod: IRModule, ctx: PassContext) -> IRModule:  # noqa: ARG002
        """See ``Pass``."""
        options = QuantizationOptions.make({"keep": self.keep, "max_error": self.max_error})
        after, layers = scheme_named(self.scheme).apply(mod, (), options)
        for layer in layers:
            if layer.reason:
                debug(Level.CHOICES, "quantization",
                      f"{layer.layer}: {layer.after}, {layer.reason}")
        return after
