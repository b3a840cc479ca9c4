"""``weft.autograd``: gradients of tensors, and functions with gradients of their own."""

from __future__ import annotations

from weft.eager.autograd import (
    backward,
    enable_grad,
    grad,
    inference_mode,
    no_grad,
    set_grad_enabled,
)
from weft.eager.function import Function, TensorOp

__all__ = ["Function", "TensorOp", "backward", "enable_grad", "grad", "inference_mode", "no_grad",
           "set_grad_enabled"]
