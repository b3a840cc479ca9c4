"""Activation functions with torch's names, argument orders and defaults."""

from __future__ import annotations

from typing import Any

from weft.amp.autocast import upcast
from weft.eager.dtypes import as_dtype
from weft.eager.emitter import TENSORS, call
from weft.eager.functions.reduction import along as along_axis
from weft.eager.record import as_node
from weft.eager.signature import checked
from weft.eager.tensor import Tensor
from weft.nn.functional import randomness as random
from weft.nn.functional.sizes import along, axis_of, in_place, promoted
from weft.op.composites import activations, norms
from weft.support.errors import InvalidInputError


@checked
def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(x, 0)"""
    return _stored(input, call("nn.relu", input), inplace)


@checked
def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """min(max(x, 0), 6)"""
    return _stored(input, activations.relu6(TENSORS, input), inplace)


@checked
def hardtanh(
    input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Tensor:
    """x, limited to ``min_val`` and ``max_val``."""
    return _stored(input, activations.hardtanh(TENSORS, input, min_val, max_val), inplace)


@checked
def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """X above ``threshold``, ``value`` elsewhere."""
    return _stored(input, activations.threshold(TENSORS, input, threshold, value), inplace)


@checked
def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """X where positive, else ``alpha * (e**x - 1)`` (Clevert et al. 2015)."""
    return _stored(input, activations.elu(TENSORS, input, alpha), inplace)


@checked
def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """ELU with the constants of self-normalizing networks (Klambauer et al. 2017)."""
    return _stored(input, activations.selu(TENSORS, input), inplace)


@checked
def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """max(x, 0) + min(0, alpha * (e**(x / alpha) - 1)) (Barron 2017)."""
    return _stored(input, activations.celu(TENSORS, input, alpha), inplace)


@checked
def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """X where positive, else ``negative_slope * x``."""
    return _stored(input, call("nn.leaky_relu", input, alpha=float(negative_slope)), inplace)


@checked
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """Leaky ReLU with a learned slope: one, or one for each channel (axis 1)."""
    if not input.ndim:
        return activations.prelu(TENSORS, input, weight.reshape(()))
    slope = weight if weight.numel() == 1 or input.ndim < 2 else along(weight, 1, input.ndim)
    return activations.prelu(TENSORS, input, slope)


@checked
def rrelu(
    input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False,
    inplace: bool = False,
) -> Tensor:
    """Leaky ReLU with random slopes in training, their mean otherwise (Xu et al. 2015)."""
    if not training:
        return leaky_relu(input, (lower + upper) / 2, inplace)
    with input.device:
        slopes = random.uniform(tuple(input.shape), lower, upper, input.dtype)
    return _stored(input, call("where", input >= 0, input, input * slopes), inplace)


@checked
def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """X times the normal distribution function; ``approximate="tanh"`` (Hendrycks 2016)."""
    if approximate not in ("none", "tanh"):
        raise InvalidInputError("unknown approximation of gelu", expected="none or tanh",
                                got=repr(approximate))
    return activations.gelu(TENSORS, input, approximate)


@checked
def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """X * sigmoid(x), also called swish."""
    return _stored(input, activations.silu(TENSORS, input), inplace)


@checked
def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """X * tanh(softplus(x)) (Misra 2019)."""
    return _stored(input, activations.mish(TENSORS, input), inplace)


@checked
def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + e**-x)"""
    return call("sigmoid", input)


@checked
def tanh(input: Tensor) -> Tensor:
    """The hyperbolic tangent."""
    return call("tanh", input)


@checked
def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + e**(beta x)) / beta, and x itself where beta x exceeds ``threshold``."""
    return activations.softplus(TENSORS, input, beta, threshold)


@checked
def softsign(input: Tensor) -> Tensor:
    """X / (1 + abs(x))"""
    return activations.softsign(TENSORS, input)


@checked
def tanhshrink(input: Tensor) -> Tensor:
    """X - tanh(x)"""
    (x,) = promoted(input, to_float=True)
    return activations.tanhshrink(TENSORS, x)


@checked
def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """X moved towards 0 by ``lambd``, and 0 within."""
    return activations.softshrink(TENSORS, input, lambd)


@checked
def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x, and 0 where its magnitude is at most ``lambd``."""
    return activations.hardshrink(TENSORS, input, lambd)


@checked
def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """min(max(x + 3, 0), 6) / 6"""
    return _stored(input, activations.hardsigmoid(TENSORS, input), inplace)


@checked
def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """X * min(max(x + 3, 0), 6) / 6 (Howard et al. 2019)."""
    return _stored(input, activations.hardswish(TENSORS, input), inplace)


@checked
def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(x))"""
    return activations.logsigmoid(TENSORS, input)


@checked
def glu(input: Tensor, dim: int = -1) -> Tensor:
    """The first half along ``dim`` times the sigmoid of the second (Dauphin et al. 2016)."""
    axis = axis_of(dim, input.ndim)
    if input.shape[axis] % 2:
        raise InvalidInputError("glu: the size is odd", where=f"axis {axis}",
                                expected="an even size", got=input.shape[axis])
    value, gate = call("split", input, indices_or_sections=2, axis=axis)
    return value * call("sigmoid", gate)


@checked
def softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
) -> Tensor:
    """e**x / sum(e**x) along ``dim``; ``dtype`` is that of the computation and the result."""
    return _along("nn.softmax", input, dim, dtype)


@checked
def log_softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
) -> Tensor:
    """log(softmax(x)) along ``dim``, without overflow."""
    return _along("nn.log_softmax", input, dim, dtype)


@checked
def softmin(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
) -> Tensor:
    """softmax(-x)"""
    return softmax(-input, dim, dtype=dtype)


@checked
def gumbel_softmax(
    logits: Tensor, tau: float = 1, hard: bool = False,
    eps: float = 1e-10,  # noqa: ARG001 - torch's
    dim: int = -1,
) -> Tensor:
    """A random draw of a categorical distribution, made soft (Jang et al. 2016).

    ``hard`` gives one-hot vectors whose gradient is that of the soft draw. ``eps`` has no effect.
    """
    tiny = 1e-20 if logits.dtype.name in ("float32", "float64") else 1e-6
    with logits.device:
        drawn = random.uniform(tuple(logits.shape), 0.0, 1.0, logits.dtype)
    noise = -call("log", -call("log", drawn + tiny) + tiny)
    soft = softmax((logits + noise) / tau, dim)
    if not hard:
        return soft
    axis = axis_of(dim, logits.ndim)
    chosen = call("argmax", soft, axis=axis)
    one_hot = call("one_hot", chosen, 1.0, 0.0, depth=logits.shape[axis], axis=axis)
    return call("cast", one_hot, dtype=logits.dtype.name) - soft.detach() + soft


@checked
def normalize(
    input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Tensor | None = None
) -> Tensor:
    """X / max(its p-norm along ``dim``, eps)."""
    axis = axis_of(dim, input.ndim)
    x = input if input.ndim else input.reshape((1,))
    if x.dtype.is_complex:
        found = x / norms.p_norm(TENSORS, x.abs(), p, (axis,), keepdims=True).clamp(min=eps)
    else:
        found = norms.normalize(TENSORS, x, p, axis, eps)
    found = found.reshape(tuple(input.shape))
    return found if out is None else out.copy_(found)


def _along(name: str, input: Tensor, dim: int | None, dtype: Any) -> Tensor:
    (input,) = upcast(input)
    x = input if dtype is None else call("cast", input, dtype=as_dtype(dtype).name)
    if dim is None:  # torch's choice where it is left out
        dim = 0 if x.ndim in (0, 1, 3) else 1
    return along_axis(name, as_node(x), dim)


def _stored(input: Tensor, result: Tensor, inplace: bool) -> Tensor:
    """``result``, written to ``input`` if the caller wants it in place."""
    return input.copy_(result) if inplace else result


celu_, elu_, hardtanh_, leaky_relu_, relu_, rrelu_, selu_, threshold_ = map(
    in_place, (celu, elu, hardtanh, leaky_relu, relu, rrelu, selu, threshold))
