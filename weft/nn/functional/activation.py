"""Activation functions with torch's names, argument orders and defaults."""

from __future__ import annotations

import math

from weft.amp.autocast import upcast
from weft.eager.dtypes import as_dtype
from weft.eager.functions.reduction import root_of_sum
from weft.eager.tensor import Tensor
from weft.nn.functional import randomness as random
from weft.nn.functional.calls import call
from weft.nn.functional.sizes import along, axis_of
from weft.support.errors import InvalidInputError


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(x, 0)"""
    return _stored(input, call("nn.relu", input), inplace)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """min(max(x, 0), 6)"""
    return hardtanh(input, 0.0, 6.0, inplace)


def hardtanh(
    input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Tensor:
    """x, limited to ``min_val`` and ``max_val``."""
    return _stored(input, _clipped(input, min_val, max_val), inplace)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """X above ``threshold``, ``value`` elsewhere."""
    return _stored(input, _where(input > threshold, input, value), inplace)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """X where positive, else ``alpha * (e**x - 1)`` (Clevert et al. 2015)."""
    # The exponential of zero or less cannot overflow in the branch that is not selected.
    low = call("expm1", _below_zero(input)) * alpha
    return _stored(input, call("where", input > 0, input, low), inplace)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """ELU with the constants of self-normalizing networks (Klambauer et al. 2017)."""
    return _stored(input, elu(input, 1.6732632423543772) * 1.0507009873554805, inplace)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """max(x, 0) + min(0, alpha * (e**(x / alpha) - 1)) (Barron 2017)."""
    low = call("expm1", _below_zero(input) * (1 / alpha)) * alpha
    return _stored(input, call("where", input > 0, input, low), inplace)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """X where positive, else ``negative_slope * x``."""
    return _stored(input, call("nn.leaky_relu", input, alpha=float(negative_slope)), inplace)


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """Leaky ReLU with a learned slope: one, or one for each channel (axis 1)."""
    slope = weight if weight.numel() == 1 or input.ndim < 2 else along(weight, 1, input.ndim)
    return call("where", input > 0, input, input * slope)


def rrelu(
    input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False,
    inplace: bool = False,
) -> Tensor:
    """Leaky ReLU with random slopes in training, their mean otherwise (Xu et al. 2015)."""
    if not training:
        return leaky_relu(input, (lower + upper) / 2, inplace)
    slopes = random.uniform(tuple(input.shape), lower, upper, input.dtype)
    return _stored(input, call("where", input >= 0, input, input * slopes), inplace)


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """X times the normal distribution function; ``approximate="tanh"`` (Hendrycks 2016)."""
    if approximate == "none":
        gate = call("erf", input * math.sqrt(0.5))
    elif approximate == "tanh":
        cubic = input + input * input * input * 0.044715
        gate = call("tanh", cubic * math.sqrt(2 / math.pi))
    else:
        raise InvalidInputError("unknown approximation of gelu", expected="none or tanh",
                                got=repr(approximate))
    return input * 0.5 * (gate + 1)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """X * sigmoid(x), also called swish."""
    return _stored(input, input * call("sigmoid", input), inplace)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """X * tanh(softplus(x)) (Misra 2019)."""
    return _stored(input, input * call("tanh", softplus(input)), inplace)


def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + e**-x)"""
    return call("sigmoid", input)


def tanh(input: Tensor) -> Tensor:
    """The hyperbolic tangent."""
    return call("tanh", input)


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + e**(beta x)) / beta, and x itself where beta x exceeds ``threshold``."""
    scaled = input if beta == 1 else input * beta
    # (x + |x|) / 2 + log(1 + e**-|x|) does not overflow, and its slope at 0 is 1/2: that of |x|
    # there is 0.
    size = call("abs", scaled)
    smooth = (scaled + size) * 0.5 + call("log1p", call("exp", -size))
    return call("where", scaled > threshold, input, smooth if beta == 1 else smooth * (1 / beta))


def softsign(input: Tensor) -> Tensor:
    """X / (1 + abs(x))"""
    return input / (call("abs", input) + 1)


def tanhshrink(input: Tensor) -> Tensor:
    """X - tanh(x)"""
    return input - call("tanh", input)


def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """X moved towards 0 by ``lambd``, and 0 within."""
    return input - call("clip", input, a_min=-float(lambd), a_max=float(lambd))


def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x, and 0 where its magnitude is at most ``lambd``."""
    return _where(call("abs", input) > lambd, input, 0.0)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """min(max(x + 3, 0), 6) / 6"""
    return _stored(input, _clipped(input + 3, 0.0, 6.0) * (1 / 6), inplace)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """X * min(max(x + 3, 0), 6) / 6 (Howard et al. 2019)."""
    return _stored(input, input * hardsigmoid(input), inplace)


def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(x))"""
    return -softplus(-input, threshold=math.inf)


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """The first half along ``dim`` times the sigmoid of the second (Dauphin et al. 2016)."""
    axis = axis_of(dim, input.ndim)
    if input.shape[axis] % 2:
        raise InvalidInputError("glu: the size is odd", where=f"axis {axis}",
                                expected="an even size", got=input.shape[axis])
    value, gate = call("split", input, indices_or_sections=2, axis=axis)
    return value * call("sigmoid", gate)


def softmax(input: Tensor, dim: int | None = None, dtype: str | None = None) -> Tensor:
    """e**x / sum(e**x) along ``dim``; ``dtype`` is that of the computation and the result."""
    return _along("nn.softmax", input, dim, dtype)


def log_softmax(input: Tensor, dim: int | None = None, dtype: str | None = None) -> Tensor:
    """log(softmax(x)) along ``dim``, without overflow."""
    return _along("nn.log_softmax", input, dim, dtype)


def softmin(input: Tensor, dim: int | None = None, dtype: str | None = None) -> Tensor:
    """softmax(-x)"""
    return softmax(-input, dim, dtype)


def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, dim: int = -1) -> Tensor:
    """A random draw of a categorical distribution, made soft (Jang et al. 2016).

    ``hard`` gives one-hot vectors whose gradient is that of the soft draw.
    """
    tiny = 1e-20 if logits.dtype.name in ("float32", "float64") else 1e-6
    drawn = random.uniform(tuple(logits.shape), 0.0, 1.0, logits.dtype)
    noise = -call("log", -call("log", drawn + tiny) + tiny)
    soft = softmax((logits + noise) / tau, dim)
    if not hard:
        return soft
    axis = axis_of(dim, logits.ndim)
    chosen = call("argmax", soft, axis=axis)
    one_hot = call("one_hot", chosen, 1.0, 0.0, depth=logits.shape[axis], axis=axis)
    return call("cast", one_hot, dtype=logits.dtype.name) - soft.detach() + soft


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """X / max(its p-norm along ``dim``, eps)."""
    total = input.abs().pow(p).sum(dim, keepdim=True) if p != 2 else (
        input * input).sum(dim, keepdim=True)
    return input / call("maximum", root_of_sum(total, p), eps)


def _along(name: str, input: Tensor, dim: int | None, dtype: str | None) -> Tensor:
    (input,) = upcast(input)
    x = input if dtype is None else call("cast", input, dtype=as_dtype(dtype).name)
    if dim is None:  # torch's choice where it is left out
        dim = 0 if x.ndim in (0, 1, 3) else 1
    return call(name, x, axis=axis_of(dim, x.ndim))


def _below_zero(x: Tensor) -> Tensor:
    """min(x, 0) with slope 1 at 0."""
    return call("where", x > 0, 0.0, x)


def _clipped(x: Tensor, low: float, high: float) -> Tensor:
    """x, limited to a range; unlike that of ``clamp`` the slope is 0 at the ends too."""
    return call("clip", x, a_min=float(low), a_max=float(high), flat_ends=True)


def _where(condition: Tensor, x: Tensor, value: float) -> Tensor:
    return call("where", condition, x, call("full_like", x, value))


def _stored(input: Tensor, result: Tensor, inplace: bool) -> Tensor:
    """``result``, written to ``input`` if the caller wants it in place."""
    return input.copy_(result) if inplace else result
