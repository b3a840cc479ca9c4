"""Edges of the standard that a compiler gets wrong in silence, against onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import weft
from tests.onnxruntime_peer import run_onnxruntime
from tests.unit.frontend.onnx.onnx_cases import make_model, single

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


@pytest.mark.sample(0.4)
@pytest.mark.parametrize("size", [0, 1, 6])
@pytest.mark.parametrize("step", [-1, -2, -(2**63), 1, 3, 2**63 - 1])
def test_slice_clamps_starts_and_ends(size: int, step: int) -> None:
    """An end of 2**63 - 1 behind a negative step is left out: onnxruntime reads it as -1."""
    bounds = [-(2**63), -7, -6, -1, 0, 5, 6, 2**63 - 1]
    x = np.arange(size, dtype=np.float32)
    rng = np.random.default_rng(size + step % 97)
    ends = bounds[:-1] if step < 0 else bounds
    for _ in range(6):
        start, end = rng.choice(bounds), rng.choice(ends)
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


@pytest.mark.sample(0.4)
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


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("op", ["ReduceMean", "ReduceLogSumExp", "ReduceL2"])
def test_reductions_of_integers_round_towards_zero(op: str, dtype: str) -> None:
    x = np.array([[-7, 8, 9], [0, -4, 6], [-1, -1, 0]], dtype)
    assert_compiled_agrees(op, [x], axes=[1], keepdims=0)
    assert_compiled_agrees(op, [x], keepdims=1)


@pytest.mark.parametrize("opset", [10, 17, 18])
@pytest.mark.parametrize("op", ["Softsign", "ThresholdedRelu"])
def test_functions_are_there_before_the_format_gave_them_bodies(op: str, opset: int) -> None:
    x = np.array([-3.0, -0.5, 0.0, 0.5, 1.0, 1.5, 90.0], np.float32)
    assert_compiled_agrees(op, [x], opset=opset)


@pytest.mark.parametrize("value", [-INF, 1.0, INF])
@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("shape", [(1, 2, 5), (2, 1, 3, 4), (1, 2, 2, 3, 2)])
def test_places_of_the_largest_lie_inside(shape: tuple[int, ...], order: int, value: float) -> None:
    """Also where the window starts in the padding, and all of its elements are the smallest."""
    axes = len(shape) - 2
    for x in (np.full(shape, value, np.float32), np.round(4 * draw(*shape))):
        assert_compiled_agrees("MaxPool", [x], outputs=2, kernel_shape=[2] * axes,
                               pads=[1] * 2 * axes, storage_order=order if axes == 2 else 0)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_flatten_of_a_size_that_data_decides(axis: int) -> None:
    """Two times an unknown size is another unknown size."""
    x = np.array([[1, 0, 2], [0, 3, 4]], np.float32)
    nodes = [helper.make_node("NonZero", ["x"], ["p"]),
             helper.make_node("Flatten", ["p"], ["y"], axis=axis)]
    model = make_model(nodes, {"x": (x.shape, TensorProto.FLOAT)}, ["y"])
    (expected,) = run_onnxruntime(model, {"x": x})
    np.testing.assert_array_equal(weft.compile(model)(x), expected)


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@pytest.mark.parametrize("op", ["Hardmax", "Softmax", "LogSoftmax"])
def test_old_softmaxes_take_all_axes_behind_one_together(op: str, axis: int) -> None:
    assert_compiled_agrees(op, [draw(2, 3, 2, 2)], opset=11, axis=axis, rtol=1e-5)


@pytest.mark.parametrize("attrs", [{}, {"axis": 0}, {"axis": 1}])
def test_unique_of_booleans(attrs: dict[str, int]) -> None:
    x = np.array([[True, False, True], [True, True, True], [True, False, True]])
    model, _ = single("Unique", [x], outputs=4, **attrs)
    expected = ReferenceEvaluator(model).run(None, {"x0": x})
    for actual, value in zip(weft.compile(model)(x), expected, strict=True):
        assert actual.dtype == value.dtype
        np.testing.assert_array_equal(actual, value)


@pytest.mark.parametrize("op", ["LeakyRelu", "HardSwish"])
def test_numbers_of_the_format_have_32_bits_beside_doubles_too(op: str) -> None:
    assert_compiled_agrees(op, [np.array([-17.0, -0.3, 0.7])], opset=18, rtol=1e-12)
