"""Scaling by constants disappears into the weights of the operators around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from weft.ir.expr import Function
from weft.ir.passes import FunctionPass, PassContext, register_pass
from weft.transform.passes.scale_folding import fold_scales


@register_pass
@dataclass(frozen=True)
class FoldScaleAxis(FunctionPass):
    """Convolutions and matrix products with constant weights absorb constant scales.

    ``forward_fold_scale_axis`` and ``backward_fold_scale_axis`` in one walk: a scale goes into
    the weights before it, else into those behind it. Batch normalisation behind a convolution
    becomes one addition this way.

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
