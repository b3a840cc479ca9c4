"""The setting ``precision`` of a compilation: a scheme of quantisation as a pass of the pipeline.

``weft.quantization`` is above the compiler; the registry of passes imports it by name.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.compiler.phases import Phase, with_passes
from weft.ir.module import IRModule
from weft.ir.passes import Pass, PassContext, parse_pipeline, run_pass
from weft.support.insertion import pass_at

FULL = "fp32"
# Weights have their last values then, and no layouts yet.
_BEFORE = "legalize"
_PASSES = {
    # Folded: only constant weights are packed, and convolved by other algorithms.
    "bf16": "quantize{scheme=bf16},fold_constant",
    "fp16": "quantize{scheme=fp16},fold_constant",
    "int8": "quantize{scheme=int8_weight_only}",
    "int4": "quantize{scheme=int4}",
}


def with_precision(phases: Sequence[Phase], precision: str) -> tuple[Phase, ...]:
    """The phases with the passes that a precision asks for."""
    added = [pass_at(one, phase="optimized", before=_BEFORE) for one in _passes_of(precision)]
    return with_passes(phases, added) if added else tuple(phases)


def at_precision(module: IRModule, precision: str) -> IRModule:
    """A typed module as those passes leave it, for files that keep no setting."""
    for one in _passes_of(precision):
        module = run_pass(one, module, PassContext())
    return module


def _passes_of(precision: str) -> Sequence[Pass]:
    return () if precision == FULL else parse_pipeline(_PASSES[precision]).passes
