"""Gradients at kinks, poles and ties, where the slope says nothing: those of torch and JAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from weft import op
from weft.ir.expr import Expr, Function, var
from weft.ir.module import IRModule
from weft.ir.typing.infer import infer_type
from weft.transform.analysis.reference import evaluate
from weft.transform.autodiff.reverse.gradient import Gradient

INF, NAN = np.inf, np.nan


def gradients(function: Callable[..., Expr], *points: Any) -> list[np.ndarray]:
    """Of the sum of the result, in float64 unless the points are arrays of another dtype."""
    arrays = [np.asarray(p, None if isinstance(p, np.ndarray) else np.float64) for p in points]
    params = tuple(var(f"x{n}", a.shape, a.dtype.name) for n, a in enumerate(arrays))
    module = infer_type(IRModule.from_expr(Function(params, op.sum(function(*params)))))
    with np.errstate(all="ignore"):
        _, found = evaluate(Gradient(training=False)(module), arrays)
    return [np.asarray(f) for f in found]


def _along_first(operator: Any, **attrs: Any) -> Callable[[Expr], Expr]:
    return lambda x: operator(x, axis=(0,), **attrs)


@pytest.mark.parametrize(("function", "points", "expected"), [
    (op.nn.relu, [[-1, 0, 1]], [[0, 0, 1]]),
    (lambda x: op.nn.leaky_relu(x, alpha=0.1), [[-1, 0, 1]], [[0.1, 0.1, 1]]),
    (op.abs, [[-1, 0, 1]], [[-1, 0, 1]]),
    (op.sign, [[-1, 0, 1]], [[0, 0, 0]]),
    (lambda x: op.clip(x, a_min=-1.0, a_max=1.0), [[-2, -1, 0, 1, 2]], [[0, 1, 1, 1, 0]]),
    (op.sqrt, [[0, 1]], [[INF, 0.5]]),
    (op.log, [[0, 1]], [[INF, 1]]),
    (op.divide, [[1, 0], [0, 0]], [[INF, INF], [-INF, NAN]]),
    (op.power, [[0, 0, 2, 0], [2, 0, 0, 1]], [[0, 0, 0, 1], [0, 0, np.log(2), 0]]),
    (op.floor_mod, [[5, -5, 4], [3, 3, 2]], [[1, 1, 1], [-1, 2, -2]]),
], ids=["relu", "leaky_relu", "abs", "sign", "clip", "sqrt", "log", "divide", "power", "floor_mod"])
def test_points_without_a_slope(
    function: Callable[..., Expr], points: Sequence[Any], expected: Sequence[Any]
) -> None:
    for found, wanted in zip(gradients(function, *points), expected, strict=True):
        np.testing.assert_allclose(found, wanted)


@pytest.mark.parametrize(("function", "points", "expected"), [
    (op.maximum, [[1, 2, 3], [1, 3, 2]], [[0.5, 0, 1], [0.5, 1, 0]]),
    (op.minimum, [[1, 2, 3], [1, 3, 2]], [[0.5, 1, 0], [0.5, 0, 1]]),
    (_along_first(op.max), [[1, 3, 3]], [[0, 0.5, 0.5]]),
    (_along_first(op.min), [[1, 1, 3]], [[0.5, 0.5, 0]]),
    (lambda x, u: op.scatter_elements(x, np.array([0, 0, 1]), u, reduction="max"),
     [[1, 5, 2], [1, 1, 3]], [[1 / 3, 1, 1], [1 / 3, 1 / 3, 0]]),
    (lambda x: op.nn.max_pool1d(x, pool_size=(3,)), [[[[1, 1, 1, 1]]]], [[[[1, 1, 0, 0]]]]),
    (lambda x: op.cummax(x, axis=0), [[1, 2, 2, 1]], [[1, 1, 2, 0]]),
    (lambda x: op.multiply(op.sort(x, axis=0), np.array([1.0, 2.0, 3.0])), [[2, 2, 1]],
     [[2, 3, 1]]),
], ids=["maximum", "minimum", "max", "min", "scatter", "max_pool", "cummax", "sort"])
def test_ties(
    function: Callable[..., Expr], points: Sequence[Any], expected: Sequence[Any]
) -> None:
    """Extremes share evenly; windows, runs and sorts choose one, as their forward passes do."""
    for found, wanted in zip(gradients(function, *points), expected, strict=True):
        np.testing.assert_allclose(found, wanted)


@pytest.mark.parametrize(("function", "points", "expected"), [
    (_along_first(op.prod), [[0, 2, 3]], [[6, 0, 0]]),
    (_along_first(op.prod), [[0, 0, 3]], [[0, 0, 0]]),
    (lambda x: op.cumprod(x, axis=0), [[2, 0, 3, 4]], [[1, 32, 0, 0]]),
    (lambda x, u: op.scatter_elements(x, np.array([0, 0, 1]), u, reduction="mul"),
     [[0, 5, 2], [2, 3, 0]], [[6, 0, 1], [0, 0, 5]]),
], ids=["prod", "prod of two zeros", "cumprod", "scatter"])
def test_products_with_zeros(
    function: Callable[..., Expr], points: Sequence[Any], expected: Sequence[Any]
) -> None:
    for found, wanted in zip(gradients(function, *points), expected, strict=True):
        np.testing.assert_allclose(found, wanted)


def test_the_branch_of_where_that_is_not_taken_is_multiplied_by_zero() -> None:
    """As in torch and JAX: choose the argument of ``sqrt``, not its result."""
    zero, one = np.float64(0), np.float64(1)
    (late,) = gradients(lambda x: op.where(op.greater(x, zero), op.sqrt(x), x), [-1, 4])
    assert np.isnan(late[0])
    (early,) = gradients(
        lambda x: op.where(op.greater(x, zero),
                           op.sqrt(op.where(op.greater(x, zero), x, one)), x), [-1, 4])
    np.testing.assert_allclose(early, [1, 0.25])


def test_hidden_scores_have_no_gradient() -> None:
    (found,) = gradients(lambda x: op.multiply(op.nn.softmax(x), np.arange(1.0, 4.0)),
                         [-INF, 0, 1])
    assert found[0] == 0
    assert np.isfinite(found).all()


@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (1, 3), (2, 1), (1, 1)])
def test_empty_and_single_axes_broadcast(shape: tuple[int, ...]) -> None:
    """The gradient of an operand of size 1 is summed over the axis, also over an empty one."""
    x, row = np.ones(shape), np.full((1, shape[1]), 2.0)
    found_x, found_row = gradients(op.multiply, x, row)
    assert found_x.shape == shape
    np.testing.assert_allclose(found_x, 2.0)
    np.testing.assert_allclose(found_row, np.full((1, shape[1]), float(shape[0])))


def test_straight_through_quantization() -> None:
    """Rounding counts as the identity; what is clipped has no gradient."""
    x = np.array([0.3, -2.6, 99.0, -99.0], np.float32)
    scale = np.array(0.5, np.float32)
    found, of_scale = gradients(
        lambda x, s: op.qnn.simulated_quantize(x, s, np.int32(0), out_dtype="int8"), x, scale)
    np.testing.assert_allclose(found, [2.0, 2.0, 0.0, 0.0])
    np.testing.assert_allclose(of_scale, -(0.3 - 2.6) / 0.25, rtol=1e-6)
    (both,) = gradients(
        lambda x: op.qnn.simulated_dequantize(
            op.qnn.simulated_quantize(x, scale, np.int32(0), out_dtype="int8"), scale,
            np.int32(0)), x)
    np.testing.assert_allclose(both, [1.0, 1.0, 0.0, 0.0])


def test_integer_arguments_have_no_gradient() -> None:
    """The gradient of an index is no float, and the gradients of other arguments stay."""
    indices = np.array([2, 0, 2])
    found = gradients(lambda x, i: op.take(x, i, axis=0), [1.0, 2.0, 3.0], indices)
    assert len(found) == 1
    np.testing.assert_allclose(found[0], [1, 0, 2])
