"""Two modules of Needle for weft's tensors; those for Needle's tensors are in ``weft.compat``."""

from __future__ import annotations

from weft.eager.tensor import Tensor
from weft.nn.functional.class_loss import cross_entropy
from weft.nn.modules.module import Module


class Residual(Module):
    """fn(x) + x"""

    def __init__(self, fn: Module) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, x: Tensor) -> Tensor:
        return self.fn(x) + x


class SoftmaxLoss(Module):
    """The mean cross entropy of logits (N, classes) and classes (N), integers or whole floats."""

    def forward(self, logits: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(logits, y.to("int64") if y.dtype.is_floating_point else y)
