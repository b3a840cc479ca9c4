"""Parametrizations that torch has: weight and spectral norm, orthogonal matrices."""

from __future__ import annotations

from typing import TypeVar

from weft.eager.emitter import call
from weft.eager.functions.linalg.factors import householder_product, matrix_exp, qr
from weft.eager.functions.linalg.matrices import identity
from weft.eager.functions.linalg.solving import solve
from weft.eager.functions.random import randn
from weft.eager.functions.shape import cat
from weft.eager.tensor import Tensor
from weft.nn.modules.module import Module, ModuleError
from weft.nn.utils.parametrize import register_parametrization
from weft.nn.utils.spectral_norm import SpectralNorm, axis_of_outputs
from weft.nn.utils.weight_norm import norm_of

M = TypeVar("M", bound=Module)
_MAPS = ("matrix_exp", "cayley", "householder")


class _WeightNorm(Module):
    """A tensor as lengths (``original0``) and directions (``original1``)."""

    def __init__(self, dim: int | None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, length: Tensor, direction: Tensor) -> Tensor:
        return direction * (length / norm_of(direction, self.dim))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The lengths of a weight and the weight."""
        return norm_of(weight, self.dim), weight


def weight_norm(module: M, name: str = "weight", dim: int | None = 0) -> M:
    """Compute a parameter from lengths and directions (Salimans and Kingma 2016)."""
    return register_parametrization(module, name, _WeightNorm(dim), unsafe=True)


def spectral_norm(module: M, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12,
                  dim: int | None = None) -> M:
    """Divide a parameter by its largest singular value (Miyato et al. 2018)."""
    if n_power_iterations < 1:
        raise ModuleError("spectral_norm needs a positive number of iterations",
                          got=n_power_iterations)
    made = SpectralNorm(getattr(module, name), n_power_iterations, eps,
                        axis_of_outputs(module, dim))
    return register_parametrization(module, name, made)


class _Orthogonal(Module):
    """Matrices with orthonormal columns (or rows, if they are wide), from any matrices.

    ``base`` is what the matrix of zeros below a diagonal of -1 gives: the matrix at the start.
    """

    def __init__(self, weight: Tensor, orthogonal_map: str, use_trivialization: bool) -> None:
        super().__init__()
        self.orthogonal_map, self.use_trivialization = orthogonal_map, use_trivialization
        self.rows = max(weight.shape[-2:])
        self.is_wide = weight.shape[-2] < weight.shape[-1]
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, x: Tensor) -> Tensor:
        tall = x.mT if self.is_wide else x
        columns = tall.shape[-1]
        found = self._reflected(tall) if self.orthogonal_map == "householder" else \
            self._rotated(tall)[..., :columns]
        if self.use_trivialization:
            found = self.get_buffer("base") @ found
        return found.mT if self.is_wide else found

    def _reflected(self, x: Tensor) -> Tensor:
        lower = x.tril(-1)
        scales = 2.0 / (1.0 + (lower * lower).sum(-2))
        signs = x.diagonal(dim1=-2, dim2=-1).detach().trunc().unsqueeze(-2)
        return householder_product(lower, scales) * signs

    def _rotated(self, x: Tensor) -> Tensor:
        """The exponential, or the Cayley transform, of a skew-symmetric matrix."""
        lower = x.tril()
        missing = self.rows - x.shape[-1]
        if missing:
            zeros = call("zeros", shape=(*x.shape[:-1], missing), dtype=x.dtype.name)
            lower = cat([lower, zeros], -1)
        skew = lower - lower.mT
        if self.orthogonal_map == "matrix_exp":
            return matrix_exp(skew)
        one = identity(self.rows, self.rows, x.dtype.name)
        return solve(one - skew * 0.5, one + skew * 0.5)

    def right_inverse(self, value: Tensor) -> Tensor:
        """The start: ``base`` becomes the orthogonal matrix nearest to the columns of ``value``."""
        if not self.use_trivialization:
            return value
        tall = value.mT if self.is_wide else value
        missing = self.rows - tall.shape[-1]
        if missing:
            tall = cat([tall, randn(*tall.shape[:-1], missing, dtype=tall.dtype)], -1)
        q, r = qr(tall)
        self.base = q * r.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)
        # The diagonal of -1 makes reflections the identity; rotations do not read it.
        rows, columns = value.shape[-2:]
        return value * 0.0 - identity(rows, columns, value.dtype.name)


def orthogonal(module: M, name: str = "weight", orthogonal_map: str | None = None, *,
               use_trivialization: bool = True) -> M:
    """Keep a parameter orthogonal: ``matrix_exp``, ``cayley`` or ``householder`` of any matrix.

    With ``use_trivialization`` the parameter starts as the Q factor of its present value; without,
    that value is what the map takes.
    """
    weight = getattr(module, name)
    if weight.ndim < 2:
        raise ModuleError("orthogonal takes matrices", got=f"shape {tuple(weight.shape)}")
    rows, columns = weight.shape[-2:]
    chosen = orthogonal_map or ("matrix_exp" if rows == columns else "householder")
    if chosen not in _MAPS:
        raise ModuleError("orthogonal: unknown map", expected=", ".join(_MAPS), got=repr(chosen))
    made = _Orthogonal(weight, chosen, use_trivialization)
    return register_parametrization(module, name, made, unsafe=True)
