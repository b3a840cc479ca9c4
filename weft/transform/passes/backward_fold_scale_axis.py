"""Fold scales backward, into the weights of the operator that computed the scaled value."""

from __future__ import annotations

from typing import ClassVar

from weft.ir import Function, FunctionPass, PassContext, register_pass
from weft.support.dataclass import dataclass
from weft.transform.passes.scale_folding import fold_scales


@register_pass
@dataclass(frozen=True)
class BackwardFoldScaleAxis(FunctionPass):
    """Fold a constant scale of an operator's result into its weights.

    A scale or divisor per output channel moves backward through additions of constants, through
    sums whose operands both absorb it, through operators that are homogeneous (average pooling),
    and, if it is positive, through positively homogeneous ones (relu, max pooling). A constant
    scale also absorbs later scales.

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
