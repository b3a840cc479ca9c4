"""Ten functions of JAX through weft beside jax.jit, in one process on one thread.

``taskset -c 0 python -m benchmarks.jax_models`` prints the least CPU time of a call of each, from
rounds in which they take turns: other work on the machine changes it little. Needs weft[jax].
"""

from __future__ import annotations

import os

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
os.environ.setdefault("WEFT_THREADS", "1")

import math
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, nn

import weft

ROUNDS, SECONDS = 30, 0.02
_RNG = np.random.default_rng(0)


def _of(*shape: int) -> np.ndarray:
    return (_RNG.normal(size=shape) / math.sqrt(shape[-2] if len(shape) > 1 else 1)).astype(
        np.float32)


def mlp(x: Any, a: Any, b: Any, c: Any) -> Any:
    return nn.relu(nn.relu(x @ a) @ b) @ c


def normed_mlp(x: Any, a: Any, b: Any) -> Any:
    y = nn.gelu(nn.standardize(x) @ a) @ b
    return x + y


def attention(x: Any, q: Any, k: Any, v: Any, o: Any) -> Any:
    heads = [(x @ w).reshape(*x.shape[:2], 8, -1) for w in (q, k, v)]
    scores = jnp.einsum("bqhd,bkhd->bhqk", heads[0], heads[1]) / math.sqrt(heads[0].shape[-1])
    mixed = jnp.einsum("bhqk,bkhd->bqhd", nn.softmax(scores), heads[2])
    return mixed.reshape(x.shape) @ o


def transformer_block(x: Any, q: Any, k: Any, v: Any, o: Any, a: Any, b: Any) -> Any:
    return normed_mlp(x + attention(nn.standardize(x), q, k, v, o), a, b)


def _conv(x: Any, k: Any, stride: int = 1) -> Any:
    return lax.conv_general_dilated(x, k, (stride, stride), "SAME",
                                    dimension_numbers=("NHWC", "HWIO", "NHWC"))


def cnn(x: Any, a: Any, b: Any, c: Any) -> Any:
    y = nn.relu(_conv(nn.relu(_conv(x, a, 2)), b, 2))
    return y.mean((1, 2)) @ c


def residual_block(x: Any, a: Any, b: Any) -> Any:
    return nn.relu(x + _conv(nn.relu(_conv(x, a)), b))


def diffusion_block(x: Any, t: Any, a: Any, b: Any, c: Any) -> Any:
    y = _conv(nn.silu(nn.standardize(x, axis=(1, 2))), a) + (nn.silu(t) @ c)[:, None, None]
    return x + _conv(nn.silu(y), b)


def recurrent(x: Any, a: Any, b: Any) -> Any:
    def step(state: Any, row: Any) -> Any:
        state = jnp.tanh(row @ a + state @ b)
        return state, state

    return lax.scan(step, jnp.zeros((x.shape[1], b.shape[0])), x)[1]


def grad_of_mlp(x: Any, a: Any, b: Any, c: Any) -> Any:
    return jax.grad(lambda w: (mlp(x, *w) ** 2).mean())((a, b, c))


def grad_of_cnn(x: Any, a: Any, b: Any, c: Any) -> Any:
    return jax.grad(lambda w: (cnn(x, *w) ** 2).mean())((a, b, c))


_D = 256
_PROJECTIONS = [_of(_D, _D) for _ in range(4)]
_MLP = (_of(64, 512), _of(512, 1024), _of(1024, 512), _of(512, 10))
_CNN = (_of(4, 32, 32, 3), _of(3, 3, 3, 32), _of(3, 3, 32, 64), _of(64, 10))
_X, _WIDE = _of(2, 64, _D), (_of(_D, 4 * _D), _of(4 * _D, _D))
MODELS: dict[Callable[..., Any], tuple[np.ndarray, ...]] = {
    mlp: _MLP, normed_mlp: (_X, *_WIDE), attention: (_X, *_PROJECTIONS),
    transformer_block: (_X, *_PROJECTIONS, *_WIDE), cnn: _CNN,
    residual_block: (_of(2, 28, 28, 64), _of(3, 3, 64, 64), _of(3, 3, 64, 64)),
    diffusion_block: (_of(2, 16, 16, 64), _of(2, 128), _of(3, 3, 64, 64), _of(3, 3, 64, 64),
                      _of(128, 64)),
    recurrent: (_of(32, 8, 128), _of(128, 128), _of(128, 128)),
    grad_of_mlp: _MLP, grad_of_cnn: _CNN,
}


def seconds(run: Callable[[], Any]) -> float:
    """The CPU seconds of one of several calls."""
    count, begin = 0, time.process_time()
    while True:
        run()
        count += 1
        spent = time.process_time() - begin
        if spent >= SECONDS:
            return spent / count


def measured(model: Callable[..., Any], arrays: tuple[np.ndarray, ...]) -> tuple[float, float]:
    """The least seconds of a call by weft and by JAX, which agree."""
    compiled, jitted = weft.compile(model, example_inputs=arrays), jax.jit(model)
    given = [jnp.asarray(array) for array in arrays]

    def ours() -> Any:
        return compiled(*arrays)

    def theirs() -> Any:
        return jax.block_until_ready(jitted(*given))

    found, wanted = jax.tree.leaves(ours()), jax.tree.leaves(theirs())
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-2, atol=1e-3)
    times = [(seconds(ours), seconds(theirs)) for _ in range(ROUNDS)]
    return min(a for a, _ in times), min(b for _, b in times)


def main() -> None:
    """Print a row for each model, and the ratio of the sums of logarithms."""
    ratios = []
    print(f"{'model':20}{'weft':>10}{'jax.jit':>10}{'ratio':>8}  (ms of CPU)")
    for model, arrays in MODELS.items():
        ours, theirs = measured(model, arrays)
        ratios.append(ours / theirs)
        print(f"{model.__name__:20}{ours * 1e3:10.3f}{theirs * 1e3:10.3f}{ratios[-1]:8.2f}")
        sys.stdout.flush()
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    print(f"{'geometric mean':40}{mean:8.2f}")


if __name__ == "__main__":
    main()
