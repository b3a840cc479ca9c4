"""Scales move back, into the weights that made what they scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from weft.ir.expr import Function
from weft.ir.passes import FunctionPass, PassContext, register_pass
from weft.transform.passes.scale_folding import fold_scales


@register_pass
@dataclass(frozen=True)
class BackwardFoldScaleAxis(FunctionPass):
    """Scale the weights of an operator instead of its result.

    A scale or divisor per output channel goes back through additions of constants and of two
    values that both absorb it, through means over windows, and, where it is positive, through
    relu, leaky relu and maxima over windows. A scale also absorbs the scales behind it.

    def @main(%x: Tensor[(1, 2), float32]) {
      %0 = nn.dense(%x, const([1, 2, 3, 4], (2, 2), float32));
      multiply(nn.relu(add(%0, 1f)), const([10, 100], (2,), float32))
    }
    =>
    def @main(%x: Tensor[(1, 2), float32]) {
      %0 = nn.dense(%x, const([10, 20, 300, 400], (2, 2), float32));
      nn.relu(add(%0, const([10, 100], (2,), float32)))
    }
    """

    name: ClassVar[str] = "backward_fold_scale_axis"
    opt_level: ClassVar[int] = 3

    def run(self, fn: Function, ctx: PassContext) -> Function:  # noqa: ARG002
        return fold_scales(fn, forward=False, backward=True)
