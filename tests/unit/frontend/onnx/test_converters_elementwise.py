"""Elementwise converters against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.frontend.onnx.onnx_cases import assert_agrees, run_weft, single

RNG = np.random.default_rng(7)
X = RNG.uniform(-2, 2, (2, 3, 4)).astype(np.float32)
POSITIVE = RNG.uniform(0.1, 3, (2, 3, 4)).astype(np.float32)
ROW = RNG.uniform(0.5, 2, (4,)).astype(np.float32)
FLAGS = RNG.integers(0, 2, (2, 3, 4)).astype(bool)
INTS = RNG.integers(-9, 9, (2, 3, 4)).astype(np.int64)


@pytest.mark.parametrize(
    "op",
    [
        "Abs",
        "Ceil",
        "Cos",
        "Erf",
        "Exp",
        "Floor",
        "Neg",
        "Relu",
        "Round",
        "Sigmoid",
        "Sign",
        "Sin",
        "Tanh",
        "Identity",
        "Reciprocal",
        "Softplus",
    ],
)
def test_unary(op: str) -> None:
    assert_agrees(*single(op, [X]))


@pytest.mark.parametrize("op", ["Log", "Sqrt"])
def test_unary_of_positive_numbers(op: str) -> None:
    assert_agrees(*single(op, [POSITIVE]))


def test_not() -> None:
    assert_agrees(*single("Not", [FLAGS]))


@pytest.mark.parametrize(
    "op", ["Add", "Sub", "Mul", "Div", "Less", "Greater", "Equal", "LessOrEqual", "GreaterOrEqual"]
)
@pytest.mark.parametrize("swap", [False, True])
def test_binary_broadcasts(op: str, swap: bool) -> None:
    assert_agrees(*single(op, [ROW, X] if swap else [X, ROW]))


@pytest.mark.parametrize("op", ["And", "Or"])
def test_logic(op: str) -> None:
    assert_agrees(*single(op, [FLAGS, FLAGS[:, :1]]))


def test_division_of_integers_truncates() -> None:
    assert_agrees(*single("Div", [INTS, np.int64([3, -2, 7, -5])]))


@pytest.mark.parametrize("fmod", [0, 1])
def test_mod_of_integers(fmod: int) -> None:
    assert_agrees(*single("Mod", [INTS, np.int64([3, -2, 7, -5])], fmod=fmod))


@pytest.mark.parametrize("op", ["Sum", "Mean", "Max", "Min"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_variadic(op: str, count: int) -> None:
    assert_agrees(*single(op, [X, ROW, X[:1]][:count]))


@pytest.mark.parametrize("exponent", [ROW, np.int64(2), np.float32(0.5)])
def test_power_takes_the_dtype_of_the_base(exponent: np.ndarray) -> None:
    assert_agrees(*single("Pow", [POSITIVE, np.asarray(exponent)]))


def test_power_of_integers() -> None:
    assert_agrees(*single("Pow", [INTS.astype(np.int32), np.asarray(np.int32(3))]))


@pytest.mark.parametrize("to", [1, 6, 7, 9, 11])
def test_cast(to: int) -> None:
    assert_agrees(*single("Cast", [X * 3], to=to))


def test_where() -> None:
    assert_agrees(*single("Where", [FLAGS[0], X, ROW]))


@pytest.mark.parametrize("bounds", [{"min": -0.5, "max": 0.5}, {"min": 0.0}, {"max": 1.0}, {}])
def test_clip_by_attributes(bounds: dict[str, float]) -> None:
    assert_agrees(*single("Clip", [X], opset=7, **bounds))


@pytest.mark.parametrize("constant", [(), (1, 2), (1,), (2,)])
def test_clip_by_inputs(constant: tuple[int, ...]) -> None:
    low, high = np.asarray(np.float32(-0.5)), np.asarray(np.float32(0.5))
    assert_agrees(*single("Clip", [X, low, high], opset=13, constant=constant))


@pytest.mark.parametrize("bounds", [(None, 0.5), (-0.5, None), (None, None)])
def test_clip_with_one_bound(bounds: tuple[float | None, float | None]) -> None:
    arrays = [None if b is None else np.asarray(np.float32(b)) for b in bounds]
    fixed = [i + 1 for i, a in enumerate(arrays) if a is not None]
    assert_agrees(*single("Clip", [X, *arrays], opset=13, constant=fixed))


def test_clip_keeps_large_integers_exact() -> None:
    x = np.int64([2**60 + 1, -(2**60) - 1, 5])
    bound = np.asarray(np.int64(2**60))
    model, feeds = single("Clip", [x, -bound, bound], opset=13, constant=(1, 2))
    (result,) = run_weft(model, feeds)
    assert result.tolist() == [2**60, -(2**60), 5]


@pytest.mark.parametrize("op", ["LeakyRelu", "Elu"])
@pytest.mark.parametrize("attrs", [{}, {"alpha": 0.3}])
def test_activation_with_alpha(op: str, attrs: dict[str, float]) -> None:
    assert_agrees(*single(op, [X], **attrs))


def test_elu_does_not_overflow() -> None:
    assert_agrees(*single("Elu", [np.float32([-200, 0, 200])]))


@pytest.mark.parametrize("attrs", [{}, {"alpha": 0.4, "beta": 0.1}])
def test_hard_sigmoid(attrs: dict[str, float]) -> None:
    assert_agrees(*single("HardSigmoid", [X * 3], **attrs))


def test_hard_swish() -> None:
    assert_agrees(*single("HardSwish", [X * 3]))


def test_prelu() -> None:
    assert_agrees(*single("PRelu", [X, ROW]))


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu(approximate: str) -> None:
    assert_agrees(*single("Gelu", [X], opset=20, approximate=approximate))


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize(
    ("opset", "axis"),
    [(o, a) for o in (7, 11, 13, 17) for a in (None, 0, 1, 2, -1) if o >= 11 or a != -1],
)
def test_softmax_flattens_before_opset_13(op: str, opset: int, axis: int | None) -> None:
    attrs = {} if axis is None else {"axis": axis}
    assert_agrees(*single(op, [X], opset=opset, **attrs))
