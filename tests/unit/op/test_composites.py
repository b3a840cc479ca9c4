"""Functions that build several calls, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from weft import op
from weft.ir.expr import Function, Tuple, var
from weft.support.errors import AttrsError
from weft.transform import evaluate

X = np.random.default_rng(0).normal(size=(3, 4, 2)).astype(np.float32)


def value(expr, x=X):
    return evaluate(Function((V,), expr), [x])


V = var("x", (3, 4, 2))


@pytest.mark.parametrize(("axis", "keepdims", "unbiased"),
                         [(None, False, False), (1, True, True), ((0, -1), False, False)])
def test_means_and_deviations(axis, keepdims, unbiased):
    attrs = {"axis": axis, "keepdims": keepdims, "unbiased": unbiased}
    kinds = {"axis": axis, "keepdims": keepdims, "ddof": int(unbiased)}
    mean, spread = value(Tuple(op.mean_variance(V, **attrs)))
    np.testing.assert_allclose(mean, X.mean(axis, keepdims=keepdims), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(spread, X.var(**kinds), rtol=1e-5)
    np.testing.assert_allclose(value(op.std(V, **attrs)), X.std(**kinds), rtol=1e-5)


@pytest.mark.parametrize("axis", [None, 1, (0, 2)])
def test_logsumexp_does_not_overflow(axis):
    large = X * 100
    wide = large.astype(np.float64)
    top = wide.max(axis, keepdims=True)
    want = np.log(np.exp(wide - top).sum(axis, keepdims=True)) + top
    got = value(op.logsumexp(V, axis=axis, keepdims=True), large)
    np.testing.assert_allclose(got, want, rtol=1e-5)
    assert value(op.logsumexp(V, axis=axis), large).shape == np.squeeze(want, axis).shape
    assert value(op.logsumexp(V), np.full_like(X, -np.inf)) == -np.inf


def test_segments_are_added_up():
    ids = np.array([2, 0, 2])
    got = value(op.segment_sum(V, ids, num_segments=4))
    np.testing.assert_allclose(got, [X[1], 0 * X[0], X[0] + X[2], 0 * X[0]], rtol=1e-6)
    with pytest.raises(AttrsError, match="one id for each row"):
        op.segment_sum(V, ids[:2], num_segments=4)
