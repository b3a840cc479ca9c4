"""Registers the convolutions, which are implicit GEMMs in any layout and for any rank.

M is the positions of the result or the output channels and N the other, as memory wants it; K is
input channels times taps; elements outside of the data are zeros. Groups are a batch of GEMMs. The
gradients are convolutions of the same kind: with respect to the data a transposed convolution, with
respect to the weight a GEMM whose K is images times positions. A depthwise convolution has N = 1
per group, which no tile fills: the default schedule computes it directly.

Taps of a transposed convolution outside of the data are multiplied by zero, so that an infinite
weight gives NaN there, as in cuDNN.
"""

from __future__ import annotations

from weft.ir.traits import Family
from weft.strategy.cuda.gemm.decide import decide_call
from weft.strategy.cuda.gemm.strategy import product
from weft.strategy.decision import decides
from weft.strategy.registry import strategy

strategy(Family.CONVOLUTION, target="cuda", complete=True)(product)
decides(Family.CONVOLUTION, target="cuda")(decide_call)
