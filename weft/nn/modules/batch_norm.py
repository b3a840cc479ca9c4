"""Batch and instance normalization, with running averages as buffers."""

from __future__ import annotations

from typing import Any, ClassVar

from weft.eager.functions import creation
from weft.eager.tensor import Tensor
from weft.nn import functional as F
from weft.nn import init
from weft.nn.functional.sizes import with_batch, without_batch
from weft.nn.modules.linear import new_parameter
from weft.nn.modules.module import Module, ModuleError
from weft.nn.parameter import Parameter


class NormBase(Module):
    """Affine parameters and running averages of ``num_features`` channels."""

    ranks: ClassVar[tuple[int, ...]]
    weight: Parameter | None
    bias: Parameter | None
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def _build(
        self, num_features: int, eps: float, momentum: float | None, affine: bool,
        track_running_stats: bool, device: Any, dtype: Any, bias: bool,
    ) -> None:
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        for name, is_used in (("weight", affine), ("bias", affine and bias)):
            made = new_parameter((num_features,), dtype, device) if is_used else None
            self.register_parameter(name, made)
        tracked = track_running_stats
        zeros = creation.zeros((num_features,), device=device, dtype=dtype) if tracked else None
        ones = creation.ones((num_features,), device=device, dtype=dtype) if tracked else None
        count = creation.zeros((), dtype="int64") if tracked else None
        self.register_buffer("running_mean", zeros)
        self.register_buffer("running_var", ones)
        self.register_buffer("num_batches_tracked", count)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Forget the averages: mean 0, variance 1, no batches."""
        if (self.running_mean is not None and self.running_var is not None
                and self.num_batches_tracked is not None):
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        self.reset_running_stats()
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def _check_rank(self, input: Tensor) -> None:
        if input.ndim not in self.ranks:
            raise ModuleError(f"{type(self).__name__}: wrong number of dimensions",
                              expected=" or ".join(map(str, self.ranks)),
                              got=f"shape {tuple(input.shape)}")

    def extra_repr(self) -> str:
        return (f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, "
                f"affine={self.affine}, track_running_stats={self.track_running_stats}")


class BatchNorm(NormBase):
    """Normalises channels (axis 1) by the batch in training, by running averages in ``eval``."""

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1,
        affine: bool = True, track_running_stats: bool = True, device: Any = None,
        dtype: Any = None, *, bias: bool = True,
    ) -> None:
        super().__init__()
        self._build(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias)

    def forward(self, input: Tensor) -> Tensor:
        self._check_rank(input)
        share: float | Tensor = 0.0 if self.momentum is None else self.momentum
        if self.training and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:  # a cumulative average
                share = 1.0 / self.num_batches_tracked.to(input.dtype)
        by_batch = self.training or self.running_mean is None
        is_tracking = not self.training or self.track_running_stats
        mean = self.running_mean if is_tracking else None
        var = self.running_var if is_tracking else None
        return F.batch_norm(input, mean, var, self.weight, self.bias, by_batch, share, self.eps)


class BatchNorm1d(BatchNorm):
    """For (N, C) or (N, C, L)."""

    ranks = (2, 3)


class BatchNorm2d(BatchNorm):
    """For (N, C, H, W)."""

    ranks = (4,)


class BatchNorm3d(BatchNorm):
    """For (N, C, D, H, W)."""

    ranks = (5,)


class SyncBatchNorm(BatchNorm):
    """Batch normalization of inputs of any rank; one process holds the whole batch."""

    ranks = (2, 3, 4, 5)

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1,
        affine: bool = True, track_running_stats: bool = True, process_group: Any = None,
        device: Any = None, dtype: Any = None, *, bias: bool = True,
    ) -> None:
        if process_group is not None:
            raise ModuleError("SyncBatchNorm has no process groups", expected="None",
                              got=repr(process_group))
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype,
                         bias=bias)


class InstanceNorm(NormBase):
    """Normalises each channel of each example; no parameters unless ``affine``."""

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = False,
        track_running_stats: bool = False, device: Any = None, dtype: Any = None, *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self._build(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias)

    def forward(self, input: Tensor) -> Tensor:
        x, has_batch = with_batch(input, self.ranks[-1], type(self).__name__)
        by_instance = self.training or self.running_mean is None
        result = F.instance_norm(
            x, self.running_mean if self.track_running_stats else None,
            self.running_var if self.track_running_stats else None, self.weight, self.bias,
            by_instance, self.momentum or 0.0, self.eps)
        return without_batch(result, has_batch)


class InstanceNorm1d(InstanceNorm):
    """For (N, C, L) or (C, L)."""

    ranks = (2, 3)


class InstanceNorm2d(InstanceNorm):
    """For (N, C, H, W) or (C, H, W)."""

    ranks = (3, 4)


class InstanceNorm3d(InstanceNorm):
    """For (N, C, D, H, W) or (C, D, H, W)."""

    ranks = (4, 5)
