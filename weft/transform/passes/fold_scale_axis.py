"""Fold constant scales into the weights of neighbouring operators."""

from __future__ import annotations

from typing import ClassVar

from weft.ir import Function, FunctionPass, PassContext, register_pass
from weft.support.dataclass import dataclass
from weft.transform.passes.scale_folding import fold_scales


@register_pass
@dataclass(frozen=True)
class FoldScaleAxis(FunctionPass):
    """Fold constant scales into the weights of convolutions and matrix multiplications.

    Combines ``backward_fold_scale_axis`` and ``forward_fold_scale_axis`` in one walk: a scale is
    folded into the weights before it, else into those after it. So a batch normalisation after a
    convolution becomes one addition.

    def @main(%x: Tensor[(1, 2), float32]) {
      %0 = nn.dense(%x, const([1, 2, 3, 4], (2, 2), float32));
      multiply(%0, const([10, 100], (2,), float32))
    }
    =>
    def @main(%x: Tensor[(1, 2), float32]) {
      nn.dense(%x, const([10, 20, 300, 400], (2, 2), float32))
    }
    """

    name: ClassVar[str] = "fold_scale_axis"
    opt_level: ClassVar[int] = 3

    def run(self, fn: Function, ctx: PassContext) -> Function:  # noqa: ARG002
        return fold_scales(fn, forward=True, backward=True)
