"""``weft.value_and_grad``: gradients compile and run like any program."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import weft
from weft.support.errors import InvalidModelError, PassError

TEXT = """
def @main(%x: Tensor[(5, 8), float32], %w: Tensor[(3, 8), float32]) {
  sum(multiply(tanh(nn.dense(%x, %w)), nn.dense(%x, %w)))
}
"""


def summed(model, **options):
    """The value, and the gradients of the sum of its elements."""
    return weft.value_and_grad(model, cotangent="ones", unused="zeros", **options)


def test_compiled_gradients_match_finite_differences():
    mod = summed(weft.parse(TEXT))
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((5, 8), (3, 8)))
    value, dx, dw = weft.compile(mod)(x, w)

    def loss(x: np.ndarray, w: np.ndarray) -> float:
        y = x.astype(np.float64) @ w.astype(np.float64).T
        return float(np.sum(np.tanh(y) * y))

    assert value == pytest.approx(loss(x, w), rel=1e-5)
    for array, gradient, at in ((x, dx, 0), (w, dw, 1)):
        direction = rng.standard_normal(array.shape)
        moved = [[x.astype(np.float64), w.astype(np.float64)] for _ in range(2)]
        moved[0][at] = moved[0][at] + 1e-5 * direction
        moved[1][at] = moved[1][at] - 1e-5 * direction
        slope = (loss(*moved[0]) - loss(*moved[1])) / 2e-5
        assert float(np.sum(gradient * direction)) == pytest.approx(slope, rel=1e-4)


def test_one_parameter_of_a_function():
    mod = weft.parse("def @main(%x: Tensor[(4,), float32], %y: Tensor[(4,), float32])"
                     " { multiply(%x, %y) }")
    value, dy = weft.compile(summed(mod["main"], with_respect_to=["y"]))(
        np.arange(4, dtype=np.float32), np.ones(4, np.float32)
    )
    np.testing.assert_array_equal(dy, value)


def test_an_unknown_parameter_is_refused():
    with pytest.raises(PassError, match="%z"):
        summed(weft.parse(TEXT), with_respect_to=["z"])


def slope_is_right(mod, inputs: list[np.ndarray], *, training: bool | None = None) -> None:
    """The compiled gradient of a float64 program against central differences of its value."""
    gradient = weft.compile(summed(mod, training=training))
    value, *slopes = gradient(*inputs)
    rng = np.random.default_rng(1)
    direction = [rng.standard_normal(x.shape) for x in inputs]
    ahead, behind = ([x + step * d for x, d in zip(inputs, direction, strict=True)]
                     for step in (1e-5, -1e-5))
    measured = (np.sum(gradient(*ahead)[0]) - np.sum(gradient(*behind)[0])) / 2e-5
    assert np.isfinite(value).all()
    assert sum(float(np.sum(s * d)) for s, d in zip(slopes, direction, strict=True)) \
        == pytest.approx(measured, rel=1e-6, abs=1e-7)


def test_a_gradient_that_is_stopped():
    mod = weft.parse("""
        def @main(%x: Tensor[(4,), float32]) {
          multiply(%x, annotation.stop_gradient(exp(%x)))
        }""")
    x = np.arange(4, dtype=np.float32)
    value, dx = weft.compile(summed(mod))(x)
    np.testing.assert_allclose(value, x * np.exp(x), rtol=1e-6)
    np.testing.assert_allclose(dx, np.exp(x), rtol=1e-6)
    for level in range(4):
        np.testing.assert_array_equal(weft.compile(mod, opt_level=level)(x), value)


NORMALISED = """
def @main(%x: Tensor[(5, 3, 4), float64], %g: Tensor[(3,), float64], %b: Tensor[(3,), float64],
          %m: Tensor[(3,), float64], %v: Tensor[(3,), float64]) {
  %0 = nn.batch_norm(%x, %g, %b, %m, %v);
  multiply(tanh(%0.0), cos(%x))
}"""


@pytest.mark.sample(0.4)
@pytest.mark.parametrize("options", ["", ", scale=False", ", center=False", ", epsilon=0.1",
                                     ", scale=False, center=False"])
@pytest.mark.parametrize("training", [False, True])
def test_batch_norm(options, training):
    """By the statistics it is given, or by those of the batch, as the caller says."""
    rng = np.random.default_rng(0)
    inputs = [rng.uniform(0.5, 2, s) for s in ((5, 3, 4), (3,), (3,), (3,), (3,))]
    mod = weft.parse(NORMALISED.replace("%v);", f"%v{options});"))
    slope_is_right(mod, inputs, training=training)
    value, _, _, _, d_mean, d_variance = weft.compile(summed(mod, training=training))(*inputs)
    x = inputs[0]
    if training:
        assert not d_mean.any() and not d_variance.any()  # noqa: PT018 - what is not read
        epsilon = 0.1 if "epsilon" in options else 1e-5
        wanted = (x - x.mean((0, 2), keepdims=True)) / np.sqrt(
            x.var((0, 2), keepdims=True) + epsilon)
        wanted = wanted * (1 if "scale" in options else inputs[1][:, None])
        wanted = wanted + (0 if "center" in options else inputs[2][:, None])
        np.testing.assert_allclose(value, np.tanh(wanted) * np.cos(x), rtol=1e-9)
    else:
        np.testing.assert_allclose(value, weft.compile(mod)(*inputs), rtol=1e-9)


def test_statistics_of_the_batch_are_results():
    mod = weft.parse(NORMALISED.replace("multiply(tanh(%0.0), cos(%x))", "(%0.1, %0.2)"))
    rng = np.random.default_rng(0)
    inputs = [rng.uniform(0.5, 2, s) for s in ((5, 3, 4), (3,), (3,), (3,), (3,))]
    mean, variance, *_ = weft.compile(summed(mod, training=True))(*inputs)
    np.testing.assert_allclose(mean, inputs[0].mean((0, 2)))
    np.testing.assert_allclose(variance, inputs[0].var((0, 2)))


def test_batch_norm_needs_a_word():
    with pytest.raises(PassError, match=r"ambiguous gradient of nn\.batch_norm") as caught:
        summed(weft.parse(NORMALISED))
    assert "training=True" in caught.value.help


def test_dropout_needs_a_word():
    text = "def @main(%x: Tensor[(4,), float32]) { %0 = nn.dropout(%x, rate=0.25); exp(%0.0) }"
    x = np.arange(4, dtype=np.float32)
    for training in (None, True):
        with pytest.raises(PassError, match=r"nn\.dropout with rate 0\.25") as caught:
            summed(weft.parse(text), training=training)
        assert "random.dropout" in caught.value.help
    for mod in (summed(weft.parse(text), training=False),
                summed(weft.parse(text.replace("0.25", "0.0")))):
        np.testing.assert_allclose(weft.compile(mod)(x)[1], np.exp(x), rtol=1e-6)


def test_dropout_from_a_key():
    """What the error says to write instead."""
    mod = weft.parse("""
        def @main(%x: Tensor[(64,), float32], %key: Tensor[(2,), uint32]) {
          %0 = random.dropout(%key, %x, rate=0.25);
          sum(%0.1)
        }""")
    x = np.ones(64, np.float32)
    value, dx = weft.compile(summed(mod))(x, np.array([7, 8], np.uint32))
    assert 0 < np.count_nonzero(dx) < 64
    np.testing.assert_allclose(value, dx.sum(), rtol=1e-6)
    assert set(np.unique(dx)) == {np.float32(0), np.float32(4 / 3)}


def test_dropout_by_a_mask_from_a_key():
    mod = weft.parse("""
        def @main(%x: Tensor[(64,), float32], %key: Tensor[(2,), uint32]) {
          %0 = random.bernoulli(%key, full(0.75, shape=(64,)));
          divide(multiply(%x, cast(%0.1, dtype="float32")), 0.75)
        }""")
    key = np.array([7, 8], np.uint32)
    x = np.ones(64, np.float32)
    value, dx = weft.compile(summed(mod))(x, key)
    assert 0 < np.count_nonzero(dx) < 64
    np.testing.assert_array_equal(value, dx * x)


def test_the_gradient_of_a_file(tmp_path):
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Exp", ["x"], ["y"])], "g", ports[:1], ports[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    (tmp_path / "m.ir").write_text("def @main(%x: Tensor[(2, 3), float32]) { exp(%x) }")
    x = np.ones((2, 3), np.float32)
    for given in (path, str(path), path.read_bytes(), model, tmp_path / "m.ir"):
        inputs = None if given == tmp_path / "m.ir" else {"x": (2, 3)}
        _, dx = weft.compile(summed(given, inputs=inputs))(x)
        np.testing.assert_allclose(dx, np.exp(x), rtol=1e-6)


@pytest.mark.parametrize("given", ["missing.onnx", 3, None])
def test_what_is_no_model(given):
    with pytest.raises(InvalidModelError):
        summed(given)


def test_bits_of_a_float_that_become_one_again():
    """A copied sign, say: the slope is 1 or -1, and was given as 0."""
    back = 'reinterpret(bitwise_and(reinterpret(%x, dtype="int32"), 2147483647), dtype="float32")'
    text = f"def @main(%x: Tensor[(4,), float32], %i: Tensor[(4,), int32]) {{ {back} }}"
    with pytest.raises(PassError, match="missing gradient of reinterpret"):
        summed(weft.parse(text))
    x, i = np.array([-1, -0.0, 2, 3], np.float32), np.arange(4, dtype=np.int32)
    for code, slope in (
        ('multiply(%x, reinterpret(%i, dtype="float32"))', i.view(np.float32)),
        ('where(less(reinterpret(%x, dtype="int32"), 0), negative(%x), multiply(%x, 2.0))',
         np.array([-1, -1, 2, 2], np.float32)),
    ):
        mod = weft.parse(text.replace(back, code))
        np.testing.assert_array_equal(weft.compile(summed(mod))(x, i)[1], slope)
