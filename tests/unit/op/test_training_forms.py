"""Batch norm and dropout of training against torch's definitions, on any number of threads."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft import op
from weft.ir.expr import Expr, Function, const, var
from weft.runtime.devices.cpu.threads import set_num_threads

KEY = np.array([11, 12], np.uint32)


def norm(x: Expr, vectors: list[Expr], **attrs: object) -> Expr:
    result: Expr = op.nn.batch_norm_training(x, *vectors, **attrs)
    return result


@pytest.mark.parametrize("n", [2, 5])
def test_running_averages_over_a_symbolic_batch(n: int) -> None:
    """The unbiased variance divides by a number that only run time knows."""
    vectors = [var(name, (3,), "float32") for name in ("g", "b", "m", "v")]
    x = var("x", ("n", 3, 4), "float32")
    mod = weft.compile(Function((x, *vectors), norm(x, list(vectors), momentum=0.25)))
    rng = np.random.default_rng(0)
    data = rng.normal(size=(n, 3, 4)).astype(np.float32)
    given = [rng.uniform(0.5, 2, 3).astype(np.float32) for _ in range(4)]
    y, mean, variance, new_mean, new_variance = mod(data, *given)
    np.testing.assert_allclose(mean, data.mean((0, 2)), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(variance, data.var((0, 2)), rtol=1e-5)
    np.testing.assert_allclose(new_mean, 0.75 * given[2] + 0.25 * mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(new_variance, 0.75 * given[3] + 0.25 * data.var((0, 2), ddof=1),
                               rtol=1e-5)
    wanted = (data - data.mean((0, 2), keepdims=True)) / np.sqrt(
        data.var((0, 2), keepdims=True) + 1e-5)
    np.testing.assert_allclose(y, wanted * given[0][:, None] + given[1][:, None], rtol=1e-4,
                               atol=1e-5)


def test_one_element_has_no_unbiased_variance() -> None:
    vectors = [const(np.ones(3, np.float32)) for _ in range(4)]
    x = var("x", (1, 3), "float32")
    results = weft.compile(Function((x,), norm(x, list(vectors))))(np.ones((1, 3), np.float32))
    assert np.isnan(results[4]).all()
    assert np.isfinite(np.concatenate([r.ravel() for r in results[:4]])).all()


def test_a_mask_is_the_same_on_any_number_of_threads_and_in_any_dtype() -> None:
    masks = []
    for dtype, threads in (("float32", 1), ("float32", 2), ("float64", 1), ("float16", 1)):
        key, x = var("key", (2,), "uint32"), var("x", (300, 70), dtype)
        mod = weft.compile(Function((key, x), op.random.dropout(key, x, rate=0.3)))
        set_num_threads(threads)
        try:
            _, y, mask = mod(KEY, np.ones((300, 70), dtype))
        finally:
            set_num_threads(None)
        np.testing.assert_array_equal(mask, y != 0)
        masks.append(mask)
    assert abs(masks[0].mean() - 0.7) < 0.01
    for other in masks[1:]:
        np.testing.assert_array_equal(masks[0], other)
