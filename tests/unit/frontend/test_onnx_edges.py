"""Edges of the standard that a compiler gets wrong in silence, against onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import weft
from tests.unit.frontend.onnx_cases import run_onnxruntime, single

INF, NAN = np.inf, np.nan


def assert_compiled_agrees(
    op: str, arrays: Sequence[np.ndarray | None], *, rtol: float = 1e-6, **options: Any
) -> None:
    """Compiled code gives onnxruntime's shapes, dtypes and values, infinities and NaN included."""
    model, feeds = single(op, arrays, **options)
    expected = run_onnxruntime(model, feeds)
    result = weft.compile(model)(*feeds.values())
    for a, e in zip(result if isinstance(result, tuple) else (result,), expected, strict=True):
        assert (a.shape, a.dtype) == (np.shape(e), np.asarray(e).dtype)
        np.testing.assert_allclose(a, e, rtol=rtol, atol=0)


def draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).uniform(-1, 1, shape).astype(np.float32)


@pytest.mark.parametrize("size", [0, 1, 6])
@pytest.mark.parametrize("step", [-1, -2, -(2**63), 1, 3, 2**63 - 1])
def test_slice_clamps_starts_and_ends(size: int, step: int) -> None:
    bounds = [-(2**63), -7, -6, -1, 0, 5, 6, 2**63 - 1]
    x = np.arange(size, dtype=np.float32)
    rng = np.random.default_rng(size + step % 97)
    for start, end in rng.choice(bounds, (6, 2)).tolist():
        rest = [np.array([v], np.int64) for v in (start, end, 0, step)]
        assert_compiled_agrees("Slice", [x, *rest], constant=(1, 2, 3, 4))


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [("ii", [(3, 3)]), ("iij", [(3, 3, 2)]), ("ii,jk", [(3, 3), (2, 4)]), ("...ii", [(2, 3, 3)]),
     ("i...i", [(3, 2, 3)]), ("ij,jj", [(2, 3), (3, 3)]), ("ii,i", [(3, 3), (3,)]),
     ("iji,jk", [(3, 2, 3), (2, 4)]), ("ba,ab", [(2, 3), (3, 2)]), ("cab", [(2, 3, 4)])],
)
def test_einsum_without_arrow(equation: str, shapes: list[tuple[int, ...]]) -> None:
    arrays = [draw(*s) for s in shapes]
    assert_compiled_agrees("Einsum", arrays, equation=equation, rtol=1e-5)


@pytest.mark.parametrize("op", ["Softplus", "Mish", "Celu", "Elu", "Selu", "HardSwish"])
@pytest.mark.parametrize("shape", [(), (1,), (2, 7)])
def test_activations_keep_shapes_and_digits(op: str, shape: tuple[int, ...]) -> None:
    values = [-80.0, -50.0, -20.0, -16.7, -5.0, -1.0, 0.0, 0.1, 1.0, 20.0, 90.0, INF, NAN]
    x = np.resize(np.array(values if shape else -16.7, np.float32), shape)
    with np.errstate(all="ignore"):
        assert_compiled_agrees(op, [x], opset=18, rtol=4e-6)


def test_gemm_with_beta_zero_does_not_read_c() -> None:
    a, b, c = draw(2, 3), draw(3, 4), np.full((2, 4), NAN, np.float32)
    assert_compiled_agrees("Gemm", [a, b, c], beta=0.0, rtol=1e-5)


@pytest.mark.parametrize("strides", [(1,), (2,), (3,), (1, 2), (2, 3)])
@pytest.mark.parametrize("taps", [1, 2, 3, 4])
@pytest.mark.parametrize("where", ["data", "kernel"])
def test_transposed_convolution_multiplies_no_zeros_of_its_own(
    strides: tuple[int, ...], taps: int, where: str
) -> None:
    rng = np.random.default_rng(taps)
    x = rng.integers(-3, 4, (1, 2, *(4 - i for i in range(len(strides))))).astype(np.float32)
    w = rng.integers(-3, 4, (2, 1, *(taps for _ in strides))).astype(np.float32)
    target = x if where == "data" else w
    target.reshape(-1)[rng.integers(target.size)] = INF
    dilations = [1 + (taps + i) % 3 for i in range(len(strides))]
    assert_compiled_agrees("ConvTranspose", [x, w], constant=(1,), strides=strides,
                           dilations=dilations, pads=[taps // 3] * 2 * len(strides))
