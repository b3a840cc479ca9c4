"""The setting ``precision`` of a compilation: a scheme of quantisation as a pass of the pipeline.

``weft.quantization`` is above the compiler; the registry of passes imports it by name.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.compiler.phases import Phase, with_passes
from weft.ir.passes import parse_pipeline
from weft.support.insertion import pass_at

FULL = "fp32"
# Weights have their last values then, and no layouts yet.
_BEFORE = "legalize"
_PASSES = {
    "bf16": "quantize{scheme=bf16}",
    "fp16": "quantize{scheme=fp16}",
    "int8": "quantize{scheme=int8_weight_only}",
    "int4": "quantize{scheme=int4}",
}


def with_precision(phases: Sequence[Phase], precision: str) -> tuple[Phase, ...]:
    """The phases with the passes that a precision asks for."""
    if precision == FULL:
        return tuple(phases)
    made = parse_pipeline(_PASSES[precision]).passes
    return with_passes(phases, [pass_at(one, phase="optimized", before=_BEFORE) for one in made])
