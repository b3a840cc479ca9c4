"""Scales move on, into the weights that take what they scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from weft.ir.expr import Function
from weft.ir.passes import FunctionPass, PassContext, register_pass
from weft.transform.passes.scale_folding import fold_scales


@register_pass
@dataclass(frozen=True)
class ForwardFoldScaleAxis(FunctionPass):
    """Scale the weights of an operator instead of its operand.

    A scale or divisor per input channel goes on through additions of constants (which are divided
    by it), through means over windows, and, where it is positive, through relu, leaky relu and
    maxima over windows.

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
