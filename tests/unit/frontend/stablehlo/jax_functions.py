"""Functions of JAX by name, with arguments: what ``test_jax_functions`` compares."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, nn
from jax.scipy import linalg, special

_RNG = np.random.default_rng(0)
A, B = (_RNG.normal(size=(4, 6)) for _ in range(2))
POSITIVE, INSIDE = _RNG.uniform(0.1, 3, (4, 6)), _RNG.uniform(-0.9, 0.9, (4, 6))
INTS, STEPS = _RNG.integers(-20, 20, (4, 6)), _RNG.integers(1, 9, (4, 6))
TRUTHS, OTHERS = A > 0, B > 0
NANS = np.where(TRUTHS, A, np.nan)
SQUARE = _RNG.normal(size=(5, 5))
DEFINITE, TRIANGLE = SQUARE @ SQUARE.T + 5 * np.eye(5), np.tril(SQUARE) + 5 * np.eye(5)
PLACES = np.array([2, 0, 3])
IMAGE, KERNEL = _RNG.normal(size=(2, 8, 8, 3)), _RNG.normal(size=(3, 3, 3, 4))
KEY = np.array([3, 9], np.uint32)


def _key(data: Any) -> Any:
    return jax.random.wrap_key_data(data)


def _convolved(x: Any, k: Any, strides: tuple[int, int] = (1, 1), padding: Any = "SAME",
               **attributes: Any) -> Any:
    return lax.conv_general_dilated(x, k, strides, padding, **attributes,
                                    dimension_numbers=("NHWC", "HWIO", "NHWC"))


def _pooled(x: Any) -> Any:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")


_NAMED: tuple[tuple[Any, str, tuple[Any, ...]], ...] = (
    (jnp, ("sin cos tan arctan sinh cosh tanh arcsinh exp exp2 expm1 abs sign floor ceil trunc "
           "rint square cbrt deg2rad sinc i0 sum prod mean max min std var ptp median argmax "
           "argmin cumsum cumprod sort argsort diff unwrap ravel transpose flipud rot90 ediff1d "
           "gradient cov corrcoef trapezoid"), (A,)),
    (jnp, ("isfinite isinf isnan nan_to_num nansum nanmean nanmax nanmin nanstd nanargmax "
           "nanmedian argmax max sort argsort"), (NANS,)),
    (jnp, "log log2 log10 log1p sqrt reciprocal frexp", (POSITIVE,)),
    (jnp, "arcsin arccos arctanh", (INSIDE,)),
    (jnp, ("add subtract multiply divide arctan2 hypot maximum minimum fmax copysign heaviside "
          "logaddexp fmod mod floor_divide nextafter equal less greater_equal isclose"), (A, B)),
    (jnp, ("add multiply floor_divide remainder fmod gcd lcm bitwise_and bitwise_xor left_shift "
          "right_shift maximum less"), (INTS, STEPS)),
    (jnp, "abs sign invert bitwise_count sum prod max mean cumsum argmax sort argsort", (INTS,)),
    (jnp, "logical_and logical_xor bitwise_or add multiply maximum", (TRUTHS, OTHERS)),
    (jnp, "any all sum max argmax cumsum sort count_nonzero", (TRUTHS,)),
    (jnp, "trace diagonal tril triu", (SQUARE,)),
    (nn, ("relu relu6 sigmoid softplus silu log_sigmoid leaky_relu hard_tanh elu celu selu gelu "
          "glu mish softmax log_softmax logsumexp standardize"), (A,)),
    (special, "erf erfc gammaln digamma expit i0e i1e ndtr log_ndtr entr exp1", (POSITIVE,)),
    (special, "xlogy betaln gammainc gammaincc zeta rel_entr", (POSITIVE + 1.1, POSITIVE)),
    (jnp.linalg, "cholesky inv det slogdet qr norm", (DEFINITE,)),
    (lax, "clz population_count", (INTS,)),
)
_WRITTEN: tuple[tuple[tuple[Any, ...], dict[str, Callable[..., Any]]], ...] = (
    ((A,), {
        "pad": lambda x: jnp.pad(x, ((1, 2), (0, 1)), mode="reflect"),
        "roll": lambda x: jnp.roll(x, 2, 1), "repeat": lambda x: jnp.repeat(x, 3, axis=1),
        "split": lambda x: jnp.split(x, 3, axis=1), "tile": lambda x: jnp.tile(x, (2, 2)),
        "insert": lambda x: jnp.insert(x, 1, 2.0, axis=0), "dtype": lambda x: x.astype(jnp.int8),
        "bfloat16": lambda x: (x.astype(jnp.bfloat16) * 2).astype(jnp.float32),
        "quantile": lambda x: jnp.quantile(x, 0.7), "histogram": lambda x: jnp.histogram(x, 5),
        "interp": lambda x: jnp.interp(x, jnp.arange(3.0), jnp.array([0.0, 2.0, 1.0])),
        "select": lambda x: jnp.select([x > 1, x > 0], [x, 2 * x], 0.0),
        "fori_loop": lambda x: lax.fori_loop(0, 1000, lambda i, c: c * 0.5 + i, x),
        "while_loop": lambda x: lax.while_loop(lambda c: c.sum() < 99, lambda c: c + 1, x),
        "scan": lambda x: lax.scan(lambda c, row: (c + row, c * row), x[0], x),
        "cond": lambda x: lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x),
        "switch": lambda x: lax.switch(x.size % 3, [jnp.sin, jnp.cos, jnp.tanh], x),
        "associative_scan": lambda x: lax.associative_scan(jnp.multiply, x),
        "sort by two": lambda x: lax.sort((jnp.round(x), x), num_keys=2),
        "lexsort": lambda x: jnp.lexsort((x, jnp.round(x))), "top_k": lambda x: lax.top_k(x, 2),
        "reduce": lambda x: lax.reduce(x, 1.0, lambda p, q: p * q + 0.0, (1,)),
        "bitcast": lambda x: lax.bitcast_convert_type(x, jnp.uint8),
        "pad and cut": lambda x: lax.pad(x, 0.0, ((1, -1, 2), (-1, 0, 1))),
        "hessian": lambda x: jax.hessian(lambda y: (y[0, :3] ** 3).sum())(x)[0, :3, 0, :3],
        "jacfwd": jax.jacfwd(lambda y: jnp.sin(y[0]) @ y.T),
        "polygamma": lambda x: special.polygamma(2, jnp.abs(x)), "cummax": lax.cummax,
        "vmap": jax.vmap(lambda r: jnp.convolve(r, r[:3])),
    }),
    ((A, PLACES), {
        "index": lambda x, k: x[k], "pairs": lambda x, k: x[k, k], "rows": lambda x, k: x[k, 1:3],
        "columns": lambda x, k: x[1:3, k], "take": lambda x, k: jnp.take(x, k + 2, 0, mode="fill"),
        "set": lambda x, k: x.at[k].set(1.0), "add": lambda x, k: x.at[k].add(x[k]),
        "multiply": lambda x, k: x.at[k].multiply(2.0), "max": lambda x, k: x.at[:, k].max(0.3),
        "drop": lambda x, k: x.at[k + 2].add(1.0), "slice": lambda x, k: x.at[k, 1:3].set(0.0),
        "take_along": lambda x, k: jnp.take_along_axis(x, k[None, :], axis=1),
        "segment_sum": lambda x, k: jax.ops.segment_sum(x[:3], k, 4),
        "one_hot": lambda x, k: nn.one_hot(k, 5) * x[0, 0],
        "dynamic_slice": lambda x, k: lax.dynamic_slice(x, (k[0], k[1]), (2, 3)),
        "dynamic_update": lambda x, k: lax.dynamic_update_slice(x, x[:2, :3], (k[0], k[2])),
        "vmap of a slice": lambda x, k: jax.vmap(
            lambda r, i: lax.dynamic_slice(r, (i,), (2,)))(x[:3], k),
        "vmap of a write": lambda x, k: jax.vmap(lambda r, i: r.at[i].add(3.0))(x[:3], k),
    }),
    ((DEFINITE, SQUARE), {
        "solve": jnp.linalg.solve, "kron": jnp.kron, "matmul": jnp.matmul,
        "einsum": lambda x, y: jnp.einsum("ij,kj->ki", x, y),
        "cho_solve": lambda x, y: linalg.cho_solve((jnp.linalg.cholesky(x), True), y),
        "expm": lambda x, y: linalg.expm(y * 0.1), "lu": lambda x, y: linalg.lu(y),
    }),
    ((TRIANGLE, SQUARE), {"solve_triangular": lambda x, y: linalg.solve_triangular(
        x, y, lower=True, trans=1, unit_diagonal=True)}),
    ((IMAGE, KERNEL), {
        "conv": _convolved, "strides": lambda x, k: _convolved(x, k, (2, 2)),
        "lhs_dilation": lambda x, k: _convolved(x, k, padding=((1, 2), (2, -1)),
                                                lhs_dilation=(2, 3)),
        "depthwise": lambda x, k: _convolved(x, k[:, :, :1, :3], feature_group_count=3),
        "batch groups": lambda x, k: _convolved(x, k, batch_group_count=2),
        "grad x": lambda x, k: jax.grad(lambda v: (_convolved(v, k, (2, 2)) ** 2).sum())(x),
        "grad k": lambda x, k: jax.grad(lambda v: (_convolved(x, v, (2, 2)) ** 2).sum())(k),
        "max_pool": lambda x, _: _pooled(x),
        "grad of max_pool": lambda x, _: jax.grad(lambda v: (_pooled(v) ** 2).sum())(x),
        "avg_pool": lambda x, _: lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 1, 2, 1),
                                                   "SAME", window_dilation=(1, 2, 1, 1)),
        "resize": lambda x, _: jax.image.resize(x, (2, 5, 11, 3), "cubic"),
    }),
    ((KEY,), {
        "random.normal": lambda k: jax.random.normal(_key(k), (5,)),
        "random.split": lambda k: jax.random.key_data(jax.random.split(_key(k))),
        "random.randint": lambda k: jax.random.randint(_key(k), (6,), 0, 100),
        "random.permutation": lambda k: jax.random.permutation(_key(k), 10),
        "random.gamma": lambda k: jax.random.gamma(_key(k), 2.0, (2,)),
        "random.categorical": lambda k: jax.random.categorical(_key(k), jnp.zeros((3, 4))),
    }),
)


def functions() -> Iterator[tuple[str, Callable[..., Any], tuple[Any, ...]]]:
    """Names, functions and arguments: float64 and int64, which JAX narrows by default."""
    for module, names, arguments in _NAMED:
        for name in names.split():
            yield f"{name} of {arguments[0].dtype}", getattr(module, name), arguments
    for arguments, table in _WRITTEN:
        for name, function in table.items():
            yield name, function, arguments
