"""Linear, Bilinear, Identity, Flatten, Unflatten."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from weft.eager.functions import creation
from weft.eager.tensor import Tensor
from weft.nn import functional as F
from weft.nn import init
from weft.nn.modules.module import Module
from weft.nn.parameter import Parameter


def new_parameter(shape: Sequence[int], dtype: Any, device: Any = None) -> Parameter:
    """A parameter of zeros, which ``reset_parameters`` fills."""
    return Parameter(creation.zeros(tuple(shape), device=device, dtype=dtype))


class Identity(Module):
    """The input itself; arguments of the constructor are ignored."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return input


class Linear(Module):
    """x Wᵀ + b: (…, in_features) to (…, out_features)."""

    bias: Parameter | None

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = new_parameter((out_features, in_features), dtype, device)
        made = new_parameter((out_features,), dtype, device) if bias else None
        self.register_parameter("bias", made)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform numbers within 1 / sqrt(in_features), as in torch."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init.fans(self.weight)
            bound = 1 / math.sqrt(fan_in) if fan_in > 0 else 0.0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (f"in_features={self.in_features}, out_features={self.out_features}, "
                f"bias={self.bias is not None}")


class Bilinear(Module):
    """x₁ᵀ W x₂ + b: (…, in1_features) and (…, in2_features) to (…, out_features)."""

    bias: Parameter | None

    def __init__(
        self, in1_features: int, in2_features: int, out_features: int, bias: bool = True,
        device: Any = None, dtype: Any = None,
    ) -> None:
        super().__init__()
        self.in1_features, self.in2_features = in1_features, in2_features
        self.out_features = out_features
        self.weight = new_parameter((out_features, in1_features, in2_features), dtype, device)
        made = new_parameter((out_features,), dtype, device) if bias else None
        self.register_parameter("bias", made)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        bound = 1 / math.sqrt(self.in1_features)
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
                f"out_features={self.out_features}, bias={self.bias is not None}")


class Flatten(Module):
    """The axes from ``start_dim`` to ``end_dim`` as one."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: Tensor) -> Tensor:
        shape = tuple(input.shape)
        first = self.start_dim % max(len(shape), 1)
        last = self.end_dim % max(len(shape), 1)
        joined = math.prod(shape[first : last + 1])
        return input.reshape((*shape[:first], joined, *shape[last + 1 :]))

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """The axis ``dim`` as several of sizes ``unflattened_size``, one of which may be -1."""

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        super().__init__()
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)

    def forward(self, input: Tensor) -> Tensor:
        shape = tuple(input.shape)
        axis = self.dim % len(shape)
        return input.reshape((*shape[:axis], *self.unflattened_size, *shape[axis + 1 :]))

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
