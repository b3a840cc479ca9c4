"""Spectral normalization: a weight over its largest singular value (Miyato et al. 2018)."""

from __future__ import annotations

from typing import Any, TypeVar

from weft.eager.functions.random import randn
from weft.eager.grad_mode import no_grad
from weft.eager.tensor import Tensor
from weft.nn.modules.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from weft.nn.modules.module import Module, ModuleError
from weft.nn.parameter import Parameter

M = TypeVar("M", bound=Module)
_HANDLES = "_spectral_norm_handles"


def axis_of_outputs(module: Module, dim: int | None) -> int:
    """``dim``, by default the axis of output channels."""
    if dim is not None:
        return dim
    return int(isinstance(module, ConvTranspose1d | ConvTranspose2d | ConvTranspose3d))


def matrix_of(weight: Tensor, dim: int) -> Tensor:
    """A weight with axis ``dim`` as rows and the others as columns."""
    others = [a for a in range(weight.ndim) if a != dim]
    return weight.permute(dim, *others).reshape(weight.shape[dim], -1)


def unit(x: Tensor, eps: float) -> Tensor:
    """A vector of length 1, of a length of at least ``eps``."""
    return x / (x * x).sum().sqrt().clamp(min=eps)


def first_vectors(matrix: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Random vectors of length 1 for the rows and the columns."""
    rows, columns = matrix.shape
    u, v = (unit(randn(size, dtype=matrix.dtype), eps) for size in (rows, columns))
    return u, v


def iterate(matrix: Tensor, u: Tensor, v: Tensor, count: int, eps: float) -> None:
    """Move ``u`` and ``v`` towards the first singular vectors, in place."""
    with no_grad():
        for _ in range(count):
            u.copy_(unit(matrix @ v, eps))
            v.copy_(unit(matrix.mT @ u, eps))


def largest(matrix: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """The singular value of these vectors, which are constants of the gradient."""
    return u.detach().clone().dot(matrix @ v.detach().clone())


def spectral_norm(module: M, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12,
                  dim: int | None = None) -> M:
    """Divide the parameter ``name`` by its largest singular value before each forward.

    The parameter becomes ``name_orig``; ``name_u`` and ``name_v`` are buffers.
    """
    if n_power_iterations < 1:
        raise ModuleError("spectral_norm needs a positive number of iterations",
                          got=n_power_iterations)
    weight = module.get_parameter(name)
    axis = axis_of_outputs(module, dim)
    delattr(module, name)
    module.register_parameter(f"{name}_orig", weight)
    u, v = first_vectors(matrix_of(weight.detach(), axis), eps)
    module.register_buffer(f"{name}_u", u)
    module.register_buffer(f"{name}_v", v)

    def compute(owner: Module, _args: Any) -> None:
        count = n_power_iterations if owner.training else 0
        setattr(owner, name, _computed(owner, name, axis, count, eps))

    setattr(module, name, weight.detach())
    handles = module.__dict__.setdefault(_HANDLES, {})
    handles[name] = (module.register_forward_pre_hook(compute), axis, eps)
    return module


def _computed(module: Module, name: str, axis: int, count: int, eps: float) -> Tensor:
    weight = module.get_parameter(f"{name}_orig")
    u, v = (module.get_buffer(f"{name}_{part}") for part in "uv")
    matrix = matrix_of(weight, axis)
    iterate(matrix.detach().mT, v, u, count, eps)  # as torch: v first
    return weight / largest(matrix, u, v)


def remove_spectral_norm(module: M, name: str = "weight") -> M:
    """Undo ``spectral_norm``: the parameter ``name`` has the present value."""
    handles = module.__dict__.get(_HANDLES, {})
    if name not in handles:
        raise ModuleError(f"{type(module).__name__}.{name} has no spectral norm")
    handle, axis, eps = handles.pop(name)
    value = _computed(module, name, axis, 0, eps).detach()
    handle.remove()
    for suffix in ("", "_orig", "_u", "_v"):
        delattr(module, name + suffix)
    module.register_parameter(name, Parameter(value))
    return module


class SpectralNorm(Module):
    """The parametrization: a tensor over its largest singular value, or a vector over its norm."""

    def __init__(self, weight: Tensor, n_power_iterations: int, eps: float, dim: int) -> None:
        super().__init__()
        if not -weight.ndim <= dim < weight.ndim:
            raise ModuleError("spectral_norm: the axis is out of range", got=dim,
                              expected=f"{-weight.ndim} to {weight.ndim - 1}")
        self.n_power_iterations, self.eps, self.dim = n_power_iterations, eps, dim % weight.ndim
        if weight.ndim > 1:
            matrix = matrix_of(weight.detach(), self.dim)
            u, v = first_vectors(matrix, eps)
            iterate(matrix, u, v, 15, eps)
            self.register_buffer("_u", u)
            self.register_buffer("_v", v)

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return unit(weight, self.eps)
        matrix, u, v = matrix_of(weight, self.dim), self.get_buffer("_u"), self.get_buffer("_v")
        if self.training:
            iterate(matrix.detach(), u, v, self.n_power_iterations, self.eps)
        return weight / largest(matrix, u, v)

    def right_inverse(self, value: Tensor) -> Tensor:
        """The tensor itself: its norm is a part of the start."""
        return value
