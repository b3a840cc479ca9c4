"""Errors against float64, as a share of the largest result, for a case of each family that sums.

``python -m benchmarks.numerics`` measures many more beside torch and onnxruntime. The bounds here
are about twice what is measured, and below what one chain of additions makes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft

Exact = Callable[..., np.ndarray]


def windows(x: np.ndarray, size: int) -> np.ndarray:
    return np.lib.stride_tricks.sliding_window_view(x, (size, size), (2, 3))


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    powers = np.exp(x - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


def convolution(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return np.einsum("ncyxij,kcij->nkyx", windows(x, w.shape[-1]), w, optimize=True)


def layer_norm(x: np.ndarray, g: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * g + b


CASES: dict[str, tuple[str, tuple[tuple[int, ...], ...], Exact, float]] = {
    "GEMM": ("nn.matmul(%a, %b)", ((64, 4096), (4096, 64)), np.matmul, 4e-7),
    "row by matrix": ("nn.matmul(%a, %b)", ((1, 8192), (8192, 64)), np.matmul, 3e-7),
    "batched GEMM": ("nn.batch_matmul(%a, %b, transpose_b=False)",
                     ((2, 64, 2048), (2, 2048, 64)), np.matmul, 6e-7),
    "direct convolution": ("nn.conv2d(%a, %b)", ((1, 256, 12, 12), (32, 256, 3, 3)),
                           convolution, 5e-7),
    "pointwise convolution": ("nn.conv2d(%a, %b)", ((1, 1024, 8, 8), (32, 1024, 1, 1)),
                              convolution, 5e-7),
    "sum of rows": ("sum(%a, axis=[1])", ((16, 20_000),), lambda x: x.sum(1), 3e-7),
    "sum of columns": ("sum(%a, axis=[0])", ((20_000, 16),), lambda x: x.sum(0), 3e-7),
    "sum of everything": ("sum(%a)", ((1000, 1000),), np.sum, 3e-7),
    "mean of columns": ("mean(%a, axis=[0])", ((20_000, 16),), lambda x: x.mean(0), 3e-7),
    "variance": ("variance(%a, mean(%a, axis=[1], keepdims=True), axis=[1])",
                 ((16, 20_000),), lambda x: x.var(1), 4e-7),
    "pooling": ("nn.avg_pool2d(%a, pool_size=[64, 64])", ((1, 8, 128, 128),),
                lambda x: windows(x, 64).mean((4, 5)), 5e-7),
    "softmax of columns": ("nn.softmax(%a, axis=0)", ((5000, 16),),
                           lambda x: softmax(x, 0), 4e-7),
    "attention": ("nn.attention(%a, %b, %c)",
                  ((1, 2, 64, 16), (1, 2, 4096, 16), (1, 2, 4096, 16)),
                  lambda q, k, v: softmax(q @ k.swapaxes(-1, -2), -1) @ v, 2e-6),
    "layer norm": ("nn.layer_norm(%a, %b, %c)", ((8, 20_000), (20_000,), (20_000,)),
                   layer_norm, 4e-7),
}


def compiled(call: str, shapes: tuple[tuple[int, ...], ...]) -> Any:
    parameters = ", ".join(f"%{name}: Tensor[{shape!r}, float32]"
                           for name, shape in zip("abc", shapes, strict=False))
    with weft.config(winograd=False):
        return weft.compile(weft.parse(f"def @main({parameters}) {{ {call} }}"))


@pytest.mark.sample(0.4)
@pytest.mark.parametrize("name", CASES)
def test_error_of_normal_data(name: str) -> None:
    call, shapes, exact, limit = CASES[name]
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    expected = exact(*(a.astype(np.float64) for a in arrays))
    found = compiled(call, shapes)(*arrays)
    assert np.abs(found - expected).max() <= limit * np.abs(expected).max()


def test_convolution_of_data_with_an_offset() -> None:
    """Where the weights of a window cancel, errors are those of sums before they cancel."""
    rng = np.random.default_rng(0)
    x = (1000 + rng.normal(size=(1, 256, 12, 12))).astype(np.float32)
    w = rng.normal(size=(64, 256, 3, 3))
    w = (w - w.mean((2, 3), keepdims=True)).astype(np.float32)
    expected = convolution(x.astype(np.float64), w.astype(np.float64))
    found = compiled("nn.conv2d(%a, %b)", (x.shape, w.shape))(x, w)
    assert np.abs(found - expected).max() <= 3e-4 * np.abs(expected).max()
