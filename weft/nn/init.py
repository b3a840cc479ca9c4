"""Initial values with torch's names and formulas, drawn from weft's generator.

Each function fills a tensor in place, outside the graph of gradients, and returns it.
"""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np

from weft.eager.emitter import call
from weft.eager.grad_mode import no_grad
from weft.eager.tensor import Tensor
from weft.nn.functional import randomness as random
from weft.support.errors import InvalidInputError

T = TypeVar("T", bound=Tensor)

_GAINS = {"sigmoid": 1.0, "linear": 1.0, "identity": 1.0, "tanh": 5.0 / 3, "relu": math.sqrt(2.0),
          "selu": 0.75, **{f"conv{n}d": 1.0 for n in (1, 2, 3)},
          **{f"conv_transpose{n}d": 1.0 for n in (1, 2, 3)}}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor that keeps the variance through a function; ``param`` is a leaky ReLU's slope."""
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity not in _GAINS:
        raise InvalidInputError("unknown nonlinearity", got=repr(nonlinearity),
                                expected=", ".join((*_GAINS, "leaky_relu")))
    return _GAINS[nonlinearity]


def fans(tensor: Tensor) -> tuple[int, int]:
    """fan_in and fan_out of a weight (out, in, …): inputs and outputs times the kernel's size."""
    if tensor.ndim < 2:
        raise InvalidInputError("fan in and fan out need two or more dimensions",
                                got=f"shape {tuple(tensor.shape)}")
    size = math.prod(tensor.shape[2:])
    return tensor.shape[1] * size, tensor.shape[0] * size


def _fill(tensor: T, values: Tensor) -> T:
    with no_grad():
        tensor.copy_(values)
    return tensor


def constant_(tensor: T, val: float) -> T:
    """All elements ``val``."""
    return _fill(tensor, call("full_like", tensor.detach(), val))


def ones_(tensor: T) -> T:
    """All elements 1."""
    return constant_(tensor, 1.0)


def zeros_(tensor: T) -> T:
    """All elements 0."""
    return constant_(tensor, 0.0)


def uniform_(tensor: T, a: float = 0.0, b: float = 1.0,
             generator: random.Generator | None = None) -> T:
    """Uniform numbers between ``a`` and ``b``."""
    return _fill(tensor, random.uniform(tuple(tensor.shape), a, b, tensor.dtype, generator))


def normal_(tensor: T, mean: float = 0.0, std: float = 1.0,
            generator: random.Generator | None = None) -> T:
    """Normally distributed numbers."""
    return _fill(tensor, random.normal(tuple(tensor.shape), mean, std, tensor.dtype, generator))


def trunc_normal_(
    tensor: T, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0,
    generator: random.Generator | None = None,
) -> T:
    """Normal numbers between ``a`` and ``b``, by the inverse distribution function."""
    def distribution(x: float) -> float:
        return (1.0 + math.erf(x / math.sqrt(2.0))) / 2.0

    low, high = distribution((a - mean) / std), distribution((b - mean) / std)
    drawn = random.uniform(tuple(tensor.shape), 2 * low - 1, 2 * high - 1, tensor.dtype, generator)
    values = call("special.erfinv", drawn) * (std * math.sqrt(2.0)) + mean
    return _fill(tensor, call("clip", values, a_min=float(a), a_max=float(b)))


def eye_(tensor: T) -> T:
    """The identity matrix."""
    if tensor.ndim != 2:
        raise InvalidInputError("eye_ takes a matrix", got=f"shape {tuple(tensor.shape)}")
    return _fill(tensor, _as_tensor(np.eye(tensor.shape[0], tensor.shape[1]), tensor))


def dirac_(tensor: T, groups: int = 1) -> T:
    """A convolution weight (out, in / groups, …) that keeps its input channels."""
    shape = tuple(tensor.shape)
    if len(shape) not in (3, 4, 5) or shape[0] % groups:
        raise InvalidInputError("dirac_ takes a convolution weight", got=f"shape {shape}")
    values = np.zeros(shape)
    size = shape[0] // groups
    centre = tuple(s // 2 for s in shape[2:])
    for group in range(groups):
        for channel in range(min(size, shape[1])):
            values[(group * size + channel, channel, *centre)] = 1
    return _fill(tensor, _as_tensor(values, tensor))


def xavier_uniform_(tensor: T, gain: float = 1.0,
                    generator: random.Generator | None = None) -> T:
    """Uniform within gain * sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio 2010)."""
    bound = gain * math.sqrt(6.0 / sum(fans(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: T, gain: float = 1.0,
                   generator: random.Generator | None = None) -> T:
    """Normal with deviation gain * sqrt(2 / (fan_in + fan_out))."""
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(fans(tensor))), generator)


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise InvalidInputError("unknown mode", expected="fan_in or fan_out", got=repr(mode))
    fan = fans(tensor)[mode == "fan_out"]
    return calculate_gain(nonlinearity, a) / math.sqrt(fan)


def kaiming_uniform_(
    tensor: T, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu",
    generator: random.Generator | None = None,
) -> T:
    """Uniform within gain * sqrt(3 / fan) (He et al. 2015)."""
    if 0 in tensor.shape:
        return tensor
    bound = math.sqrt(3.0) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: T, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu",
    generator: random.Generator | None = None,
) -> T:
    """Normal with deviation gain / sqrt(fan)."""
    if 0 in tensor.shape:
        return tensor
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity), generator)


def orthogonal_(tensor: T, gain: float = 1, generator: random.Generator | None = None) -> T:
    """A (semi-)orthogonal matrix times ``gain``: the Q of a normal matrix (Saxe et al. 2013)."""
    if tensor.ndim < 2:
        raise InvalidInputError("orthogonal_ needs two or more dimensions",
                                got=f"shape {tuple(tensor.shape)}")
    rows = tensor.shape[0]
    columns = math.prod(tensor.shape[1:])
    shape = (max(rows, columns), min(rows, columns))
    drawn = random.normal(shape, 0.0, 1.0, "float64", generator).numpy()
    q, r = np.linalg.qr(drawn)
    q = q * np.sign(np.diag(r))  # uniform over orthogonal matrices (Mezzadri 2006)
    values = (q.T if rows < columns else q).reshape(tuple(tensor.shape)) * gain
    return _fill(tensor, _as_tensor(values, tensor))


def sparse_(tensor: T, sparsity: float, std: float = 0.01,
            generator: random.Generator | None = None) -> T:
    """Normal numbers, with a share ``sparsity`` of zeros in each column (Martens 2010)."""
    if tensor.ndim != 2:
        raise InvalidInputError("sparse_ takes a matrix", got=f"shape {tuple(tensor.shape)}")
    rows, columns = tensor.shape
    order = random.uniform((rows, columns), 0.0, 1.0, "float32", generator)
    rank = call("argsort", call("argsort", order, axis=0), axis=0)
    drawn = random.normal((rows, columns), 0.0, std, tensor.dtype, generator)
    return _fill(tensor, call("where", rank < math.ceil(sparsity * rows), 0.0, drawn))


def _as_tensor(values: np.ndarray, like: Tensor) -> Tensor:
    return Tensor(values.astype(like.dtype.numpy))
