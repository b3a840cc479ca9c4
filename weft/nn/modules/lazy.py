"""Lazy layers: the first input decides one size of the constructor."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar

from weft.eager.grad_mode import no_grad
from weft.eager.tensor import Tensor
from weft.nn.modules import batch_norm, conv, linear
from weft.nn.modules.module import Module, ModuleError
from weft.nn.parameter import UninitializedBuffer, UninitializedParameter, is_lazy


class LazyModule(Module):
    """A layer without its first argument; it becomes a ``becomes`` with its first input.

    ``size`` is the attribute that the input decides. Until then parameters and floating-point
    buffers have no shape. The layer must see an input before an optimiser takes its parameters.
    """

    becomes: ClassVar[Any]
    size: ClassVar[str]

    def __init_subclass__(
        cls, becomes: Any = None, size: str = "", **defaults: Any
    ) -> None:
        super().__init_subclass__()
        if becomes is None:
            return
        cls.becomes, cls.size = becomes, size

        known = [p.replace(default=defaults.get(p.name, p.default))
                 for p in inspect.signature(becomes.__init__).parameters.values()]
        signature = inspect.Signature([known[0], *known[2:]])

        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - it becomes one
            bound = signature.bind(self, *args, **kwargs)
            bound.apply_defaults()
            becomes.__init__(self, 0, *bound.args[1:], **bound.kwargs)
            self._given = (bound.args[1:], bound.kwargs)
            self._forget_shapes()

        __init__.__signature__ = signature  # type: ignore[attr-defined] - read by inspect
        cls.__init__ = __init__

    def _forget_shapes(self) -> None:
        for name, parameter in self._parameters.items():
            if parameter is not None:
                self._parameters[name] = UninitializedParameter(dtype=parameter.dtype)
        for name, buffer in self._buffers.items():
            if buffer is not None and buffer.is_floating_point():
                self._buffers[name] = UninitializedBuffer(dtype=buffer.dtype)

    def has_uninitialized_params(self) -> bool:
        """Whether a parameter or buffer has no shape yet."""
        return any(is_lazy(t) for t in (*self._parameters.values(), *self._buffers.values()))

    def forward(self, input: Tensor, *args: Any, **kwargs: Any) -> Any:
        self.initialize_parameters(input)
        return self.forward(input, *args, **kwargs)  # now that of ``becomes``

    def initialize_parameters(self, input: Tensor) -> None:
        """Become the layer for inputs as ``input``; values that were loaded stay."""
        args, kwargs = self._given
        count = input.shape[self._axis(input)]
        made = self.becomes(count, *args, **kwargs)
        with no_grad():
            for own, new in ((self._parameters, made._parameters), (self._buffers, made._buffers)):
                for name, tensor in own.items():
                    if is_lazy(tensor):
                        tensor.materialize(tuple(new[name].shape))
                        tensor.copy_(new[name])
        setattr(self, self.size, count)
        del self._given
        self.__class__ = self.becomes  # type: ignore[assignment] - the same layout

    def _axis(self, input: Tensor) -> int:
        """The axis of the input that decides the size."""
        allowed = self.input_ranks()
        if allowed and input.ndim not in allowed:
            raise ModuleError(f"{type(self).__name__}: wrong number of dimensions",
                              expected=" or ".join(map(str, allowed)),
                              got=f"shape {tuple(input.shape)}")
        if not allowed:
            return -1
        return 1 if isinstance(self, batch_norm.BatchNorm) else input.ndim - min(allowed)

    def input_ranks(self) -> tuple[int, ...]:
        """The numbers of dimensions of inputs; none for any."""
        if isinstance(self, batch_norm.NormBase):
            return self.ranks
        axes = getattr(self, "axes", None)
        return () if axes is None else (axes + 1, axes + 2)


class LazyLinear(LazyModule, linear.Linear, becomes=linear.Linear, size="in_features"):
    """``Linear`` whose in_features come from the last axis of the input."""


class LazyConv1d(LazyModule, conv.Conv1d, becomes=conv.Conv1d, size="in_channels"):
    """``Conv1d`` whose in_channels come from the input."""


class LazyConv2d(LazyModule, conv.Conv2d, becomes=conv.Conv2d, size="in_channels"):
    """``Conv2d`` whose in_channels come from the input."""


class LazyConv3d(LazyModule, conv.Conv3d, becomes=conv.Conv3d, size="in_channels"):
    """``Conv3d`` whose in_channels come from the input."""


class LazyConvTranspose1d(
    LazyModule, conv.ConvTranspose1d, becomes=conv.ConvTranspose1d, size="in_channels"
):
    """``ConvTranspose1d`` whose in_channels come from the input."""


class LazyConvTranspose2d(
    LazyModule, conv.ConvTranspose2d, becomes=conv.ConvTranspose2d, size="in_channels"
):
    """``ConvTranspose2d`` whose in_channels come from the input."""


class LazyConvTranspose3d(
    LazyModule, conv.ConvTranspose3d, becomes=conv.ConvTranspose3d, size="in_channels"
):
    """``ConvTranspose3d`` whose in_channels come from the input."""


class LazyBatchNorm1d(
    LazyModule, batch_norm.BatchNorm1d, becomes=batch_norm.BatchNorm1d, size="num_features"
):
    """``BatchNorm1d`` whose num_features come from axis 1 of the input."""


class LazyBatchNorm2d(
    LazyModule, batch_norm.BatchNorm2d, becomes=batch_norm.BatchNorm2d, size="num_features"
):
    """``BatchNorm2d`` whose num_features come from axis 1 of the input."""


class LazyBatchNorm3d(
    LazyModule, batch_norm.BatchNorm3d, becomes=batch_norm.BatchNorm3d, size="num_features"
):
    """``BatchNorm3d`` whose num_features come from axis 1 of the input."""


class LazyInstanceNorm1d(
    LazyModule, batch_norm.InstanceNorm1d, becomes=batch_norm.InstanceNorm1d,
    size="num_features", affine=True, track_running_stats=True,
):
    """``InstanceNorm1d`` whose num_features come from the input."""


class LazyInstanceNorm2d(
    LazyModule, batch_norm.InstanceNorm2d, becomes=batch_norm.InstanceNorm2d,
    size="num_features", affine=True, track_running_stats=True,
):
    """``InstanceNorm2d`` whose num_features come from the input."""


class LazyInstanceNorm3d(
    LazyModule, batch_norm.InstanceNorm3d, becomes=batch_norm.InstanceNorm3d,
    size="num_features", affine=True, track_running_stats=True,
):
    """``InstanceNorm3d`` whose num_features come from the input."""
