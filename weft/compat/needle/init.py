"""Needle's initial values: tensors of a shape, or of ``fan_in`` and ``fan_out``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.compat.needle.ops import Tensor
from weft.support.errors import InvalidInputError


def _made(values: Any, device: Any, dtype: str, requires_grad: bool) -> Tensor:
    return Tensor(np.asarray(values).astype(dtype), device=device, dtype=dtype,
                  requires_grad=requires_grad)


def rand(*shape: int, low: float = 0.0, high: float = 1.0, device: Any = None,
         dtype: str = "float32", requires_grad: bool = False) -> Tensor:
    """Uniform numbers between ``low`` and ``high``, of NumPy's global generator as in Needle."""
    drawn = np.random.rand(*shape) * (high - low) + low  # noqa: NPY002 - the seeds of Needle's tests
    return _made(drawn, device, dtype, requires_grad)


def randn(*shape: int, mean: float = 0.0, std: float = 1.0, device: Any = None,
          dtype: str = "float32", requires_grad: bool = False) -> Tensor:
    """Normally distributed numbers."""
    drawn = np.random.randn(*shape) * std + mean  # noqa: NPY002 - as above
    return _made(drawn, device, dtype, requires_grad)


def constant(*shape: int, c: float = 1.0, device: Any = None, dtype: str = "float32",
             requires_grad: bool = False) -> Tensor:
    """All elements ``c``."""
    return _made(np.full(shape, c), device, dtype, requires_grad)


def ones(*shape: int, device: Any = None, dtype: str = "float32",
         requires_grad: bool = False) -> Tensor:
    return constant(*shape, c=1.0, device=device, dtype=dtype, requires_grad=requires_grad)


def zeros(*shape: int, device: Any = None, dtype: str = "float32",
          requires_grad: bool = False) -> Tensor:
    return constant(*shape, c=0.0, device=device, dtype=dtype, requires_grad=requires_grad)


def randb(*shape: int, p: float = 0.5, device: Any = None, dtype: str = "bool",
          requires_grad: bool = False) -> Tensor:
    """True with probability ``p``."""
    return _made(np.random.rand(*shape) <= p, device, dtype, requires_grad)  # noqa: NPY002 - as above


def one_hot(n: int, i: Any, device: Any = None, dtype: str = "float32",
            requires_grad: bool = False) -> Tensor:
    """Rows of the identity matrix of size ``n`` at ``i``."""
    places = np.asarray(i.numpy() if hasattr(i, "numpy") else i).astype(int)  # also of floats
    return _made(np.eye(n)[places], device, dtype, requires_grad)


def zeros_like(array: Any, *, device: Any = None, requires_grad: bool = False) -> Tensor:
    return zeros(*array.shape, device=device, requires_grad=requires_grad)


def ones_like(array: Any, *, device: Any = None, requires_grad: bool = False) -> Tensor:
    return ones(*array.shape, device=device, requires_grad=requires_grad)


def xavier_uniform(fan_in: int, fan_out: int, gain: float = 1.0, **options: Any) -> Tensor:
    """(fan_in, fan_out), uniform within gain * sqrt(6 / (fan_in + fan_out))."""
    bound = gain * math.sqrt(6.0 / (fan_in + fan_out))
    return rand(fan_in, fan_out, low=-bound, high=bound, **options)


def xavier_normal(fan_in: int, fan_out: int, gain: float = 1.0, **options: Any) -> Tensor:
    """(fan_in, fan_out), normal with deviation gain * sqrt(2 / (fan_in + fan_out))."""
    return randn(fan_in, fan_out, std=gain * math.sqrt(2.0 / (fan_in + fan_out)), **options)


def kaiming_uniform(
    fan_in: int, fan_out: int, shape: Any = None, nonlinearity: str = "relu", **options: Any
) -> Tensor:
    """(fan_in, fan_out) or ``shape``, uniform within sqrt(6 / fan_in)."""
    _check(nonlinearity)
    bound = math.sqrt(6.0 / fan_in)
    return rand(*(shape or (fan_in, fan_out)), low=-bound, high=bound, **options)


def kaiming_normal(
    fan_in: int, fan_out: int, nonlinearity: str = "relu", **options: Any
) -> Tensor:
    """(fan_in, fan_out), normal with deviation sqrt(2 / fan_in)."""
    _check(nonlinearity)
    return randn(fan_in, fan_out, std=math.sqrt(2.0 / fan_in), **options)


def _check(nonlinearity: str) -> None:
    if nonlinearity != "relu":
        raise InvalidInputError("unknown nonlinearity", expected="relu", got=repr(nonlinearity))
