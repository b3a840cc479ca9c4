"""Real arithmetic between dequantize and quantize becomes integer arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.unit.transform.helpers import check_example
from weft import op
from weft.ir import Call, Expr, Function, IRModule, const, infer_type, var
from weft.ir.op import Op
from weft.ir.visitor import post_order
from weft.support.errors import InvalidModelError
from weft.transform import FakeQuantizationToInteger, evaluate

RNG = np.random.default_rng(0)
S, Z = const(0.05, "float32"), const(3, "int32")
WS = const(np.array([0.01, 0.02, 0.005, 0.03], np.float32))
NONE = const(0, "int32")


def test_example() -> None:
    check_example(FakeQuantizationToInteger())


def real(x: Expr, *parameters: Expr, **attrs: int) -> Expr:
    return op.qnn.dequantize(x, *(parameters or (S, Z)), **attrs)


def stored(x: Expr, scale: float = 0.08) -> Expr:
    return op.qnn.quantize(x, const(scale, "float32"), const(-5, "int32"))


def converted(body: Expr, *params: Expr) -> tuple[IRModule, IRModule, set[str]]:
    """The module before and after, and the operators after."""
    module = infer_type(IRModule.from_expr(Function(params, body)))
    after = FakeQuantizationToInteger()(module)
    names = {e.op.name for e in post_order(after["main"].body)
             if isinstance(e, Call) and isinstance(e.op, Op)}
    return module, after, names


def random_bytes(shape: tuple[int, ...]) -> np.ndarray:
    return RNG.integers(-128, 128, shape).astype(np.int8)


def check(body: Expr, *params: Expr, steps: int = 1) -> set[str]:
    """Integer results are as before, but for the rounding of intermediate steps."""
    module, after, names = converted(body, *params)
    inputs = [random_bytes(p.annotation.concrete_shape) for p in params]
    before, found = evaluate(module, inputs), evaluate(after, inputs)
    assert before.dtype == found.dtype
    np.testing.assert_allclose(found.astype(int), before.astype(int), atol=steps)
    np.testing.assert_array_equal(weft.compile(after, build_jobs=1)(*inputs), found)
    return names


def test_a_convolution_with_bias_and_relu() -> None:
    x = var("x", (1, 3, 6, 6), "int8")
    w = real(const(random_bytes((4, 3, 3, 3))), WS, NONE, axis=0)
    y = op.nn.conv2d(real(x), w, padding=(1, 1))
    y = op.nn.bias_add(y, const(RNG.normal(size=4).astype(np.float32)), axis=1)
    names = check(stored(op.nn.max_pool2d(stored_pool(y), pool_size=(2, 2))), x)
    assert "nn.conv2d" not in names
    assert {"qnn.conv2d", "qnn.requantize"} <= names


def stored_pool(y: Expr) -> Expr:
    """Between two operators of a model, quantised and back."""
    return real(stored(op.nn.relu(real(stored(y)))))


def test_a_product_with_stored_bias() -> None:
    x = var("x", (2, 8), "int8")
    w = real(const(random_bytes((4, 8))), WS, NONE, axis=0)
    scales = const(np.array([0.01, 0.02, 0.005, 0.03], np.float32) * np.float32(0.05))
    bias = real(const(np.array([100, -200, 3, 0], np.int32)), scales, NONE, axis=0)
    names = check(stored(op.nn.bias_add(op.nn.dense(real(x), w), bias, axis=1)), x)
    assert "nn.dense" not in names
    assert "qnn.dense" in names


@pytest.mark.parametrize(("build", "name"), [
    (op.add, "qnn.add"),
    (op.multiply, "qnn.mul"),
    (lambda a, b: op.concatenate([a, b], axis=1), "qnn.concatenate"),
    (lambda a, _: op.sigmoid(a), "qnn.sigmoid"),
    (lambda a, _: op.nn.softmax(a, axis=0), "qnn.softmax"),
    (lambda a, _: op.nn.leaky_relu(a, alpha=0.2), "qnn.leaky_relu"),
    (lambda a, _: op.transpose(a), "qnn.requantize"),
])
def test_operators_that_need_the_scale_of_their_result(build, name) -> None:
    x, y = var("x", (3, 4), "int8"), var("y", (3, 4), "int8")
    names = check(stored(build(real(x), real(y, const(0.02, "float32"), NONE)), 0.01), x, y,
                  steps=0)
    assert name in names
    assert "qnn.dequantize" not in names


def test_what_has_no_integer_form_stays_real() -> None:
    x = var("x", (3, 4), "int8")
    module, after, names = converted(stored(op.cos(real(x))), x)
    assert names == {"qnn.dequantize", "cos", "qnn.quantize"}
    assert after["main"] is module["main"]


def test_a_value_that_is_also_used_as_real_stays_there() -> None:
    x = var("x", (3, 4), "int8")
    value = op.nn.relu(real(x))
    body = op.add(op.cos(value), real(stored(value)))
    module, after, names = converted(body, x)
    data = random_bytes((3, 4))
    np.testing.assert_array_equal(evaluate(module, [data]), evaluate(after, [data]))
    assert {"cos", "nn.relu", "qnn.requantize"} <= names


@pytest.mark.parametrize("transposed", [(False, True), (True, False)])
def test_batches_of_matrices(transposed: tuple[bool, bool]) -> None:
    a, b = transposed
    x = var("x", (2, 5, 3) if a else (2, 3, 5), "int8")
    y = var("y", (2, 4, 5) if b else (2, 5, 4), "int8")
    names = check(stored(op.nn.matmul(real(x), real(y), transpose_a=a, transpose_b=b), 0.5), x, y)
    assert "qnn.batch_matmul" in names
    z = var("z", (2, 2, 3, 5), "int8")
    assert "nn.matmul" in check(stored(op.nn.matmul(real(z), real(y), transpose_b=b), 0.5), z, y)


def test_parts_that_share_a_scale_are_joined_as_integers() -> None:
    x, y = var("x", (2, 3), "int8"), var("y", (2, 4), "int8")
    for parameters, is_joined in (((S, Z), True), ((const(0.1, "float32"), Z), False)):
        body = op.concatenate([real(x), real(y, *parameters)], axis=1)
        _, after, _ = converted(stored(op.nn.relu(body)), x, y)
        (joined,) = [e for e in post_order(after["main"]) if str(getattr(e, "op", "")) ==
                     "concatenate"]
        assert (joined.checked_type.dtype.name == "int8") == is_joined
        check(stored(op.nn.relu(body)), x, y)


def test_a_pool_that_is_read_as_real_selects_integers() -> None:
    x = var("x", (1, 2, 4, 4), "int8")
    _, after, _ = converted(op.exp(op.nn.max_pool2d(real(x), pool_size=(2, 2))), x)
    (pool,) = [e for e in post_order(after["main"]) if "max_pool" in str(getattr(e, "op", ""))]
    assert pool.checked_type.dtype.name == "int8"


@pytest.mark.parametrize("opt_level", [0, 3])
@pytest.mark.parametrize("scale", [0.0, -0.5, float("nan"), float("inf")])
def test_scales_that_are_not_positive_are_refused(scale: float, opt_level: int) -> None:
    x = var("x", (2, 3), "int8")
    scales = const(np.array([0.1, scale, 0.2], np.float32))
    module = IRModule.from_expr(Function((x,), real(x, scales, NONE, axis=1)))
    with pytest.raises(InvalidModelError, match="a scale is not a positive number"):
        weft.compile(module, opt_level=opt_level)


def test_zero_points_that_the_integers_cannot_hold_are_refused() -> None:
    x = var("x", (2, 3), "float32")
    stored_x = op.qnn.quantize(x, S, const(-3, "int32"), out_dtype="uint8")
    y = var("y", (2, 3), "int8")
    requantized = op.qnn.requantize(y, S, Z, S, const(200, "int32"), out_dtype="int8")
    for parameter, body, says in ((x, stored_x, "range of uint8"),
                                  (y, requantized, "range of int8"),
                                  (y, real(y, S, const(128, "int32")), "range of int8")):
        with pytest.raises(InvalidModelError, match=says):
            weft.compile(IRModule.from_expr(Function((parameter,), body)))
