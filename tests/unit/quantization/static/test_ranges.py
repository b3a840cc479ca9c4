"""Ranges of activations, and the integers that they give."""

from __future__ import annotations

import numpy as np
import pytest

from weft.quantization.static.ranges import (
    METHODS,
    Histogram,
    quantizer_of,
    stored_weight,
    weight_scales,
)
from weft.support.errors import InvalidInputError, OptionError

RNG = np.random.default_rng(0)


def seen(*batches: np.ndarray) -> Histogram:
    found = Histogram()
    for batch in batches:
        found.add(batch.astype(np.float32))
    return found


def rounding_error(values: np.ndarray, found: Histogram, method: str) -> float:
    q = quantizer_of(found, method, 99.9, "uint8")
    stored = np.clip(np.rint(values / q.scale) + q.zero, 0, 255)
    return float(np.square((stored - q.zero) * q.scale - values).mean())


def test_batches_extend_the_range() -> None:
    found = seen(RNG.uniform(-1, 1, 5000), RNG.uniform(2, 3, 5000), np.array([-4.0]))
    assert found.low == -4
    assert 2.9 < found.high <= 3
    assert found.counts.sum() == 10001
    assert abs(found.counts[found.centres > 1.5].sum() - 5000) <= 1


@pytest.mark.parametrize("method", METHODS)
def test_few_outliers_cost_least_with_clipping(method) -> None:
    values = np.concatenate([RNG.normal(size=20000), [40.0, -35.0]])
    found = seen(values)
    low, high = METHODS[method](found, 99.9)
    if method == "minmax":
        assert (low, high) == (found.low, found.high)
    else:
        assert -35 < low < -2
        assert 2 < high < 40
    if method == "mse":
        errors = {m: rounding_error(values, found, m) for m in METHODS}
        assert errors["mse"] == min(errors.values())
        assert errors["mse"] < 0.96 * errors["minmax"]


def test_values_of_one_sign_have_their_zero_at_the_end() -> None:
    assert quantizer_of(seen(RNG.uniform(0, 5, 99)), "percentile", 99, "uint8").zero == 0
    assert quantizer_of(seen(RNG.uniform(-5, 0, 99)), "minmax", 99, "uint8").zero == 255
    symmetric = quantizer_of(seen(np.array([-2.0, 8.0])), "minmax", 99, "int8")
    assert symmetric.zero == 0
    assert symmetric.scale == pytest.approx(8 / 127)


def test_constant_and_tiny_tensors_have_a_finite_scale() -> None:
    assert quantizer_of(seen(np.zeros(4)), "kl", 99, "uint8").scale == 1
    assert quantizer_of(seen(np.array([1e-45])), "minmax", 99, "uint8").scale > 0
    scales = weight_scales(np.zeros((2, 3), np.float32), 0)
    assert (scales > 0).all()
    assert not stored_weight(np.zeros((2, 3), np.float32), scales, 0).any()


def test_bad_input() -> None:
    with pytest.raises(InvalidInputError, match="not finite"):
        seen(np.array([1.0, np.nan]))
    with pytest.raises(OptionError, match="unknown calibration 'entropy'"):
        quantizer_of(seen(np.array([1.0])), "entropy", 99, "uint8")
