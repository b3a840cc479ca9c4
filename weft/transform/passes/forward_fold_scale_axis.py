"""Fold scales forward, into the weights of the operator that reads the scaled value."""

from __future__ import annotations

from typing import ClassVar

from weft.ir import Function, FunctionPass, PassContext, register_pass
from weft.support.dataclass import dataclass
from weft.transform.passes.scale_folding import fold_scales


@register_pass
@dataclass(frozen=True)
class ForwardFoldScaleAxis(FunctionPass):
    """Fold a constant scale of an operator's operand into its weights.

    A scale or divisor per input channel moves forward through additions of constants (which are
    divided by it), through homogeneous operators (average pooling), and, if it is positive,
    through positively homogeneous ones (relu, max pooling).

    def @main(%x: Tensor[(1, 2), float32]) {
      %0 = nn.relu(add(multiply(%x, const([2, 4], (2,), float32)), 8f));
      nn.dense(%0, const([1, 2, 3, 4], (2, 2), float32))
    }
    =>
    def @main(%x: Tensor[(1, 2), float32]) {
      %0 = nn.relu(add(%x, const([4, 2], (2,), float32)));
      nn.dense(%0, const([2, 8, 6, 16], (2, 2), float32))
    }
    """

    name: ClassVar[str] = "forward_fold_scale_axis"
    opt_level: ClassVar[int] = 3

    def run(self, fn: Function, ctx: PassContext) -> Function:  # noqa: ARG002
        return fold_scales(fn, forward=True, backward=False)
