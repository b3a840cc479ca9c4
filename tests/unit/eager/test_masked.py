"""Functions over the elements where a mask holds, against NumPy's masked arrays."""

from __future__ import annotations

import math

import numpy as np
import pytest

import weft

X = np.array([[1.0, -2.0, 3.0], [4.0, 5.0, 0.5]], np.float32)
MASK = np.array([[True, False, True], [False, True, True]])
KEPT = np.ma.masked_array(X, ~MASK)


@pytest.mark.parametrize(("name", "wanted"), [
    ("sum", KEPT.sum(1)), ("prod", KEPT.prod(1)), ("mean", KEPT.mean(1)), ("amax", KEPT.max(1)),
    ("amin", KEPT.min(1)), ("var", KEPT.var(1, ddof=1)), ("std", KEPT.std(1, ddof=1)),
    ("argmax", [2, 1]), ("argmin", [0, 2]), ("median", [1.0, 0.5]),
    ("norm", np.sqrt((KEPT ** 2).sum(1))), ("logsumexp", np.log(np.exp(KEPT).sum(1)))])
def test_reductions(name, wanted):
    found = getattr(weft.masked, name)(weft.tensor(X), dim=1, mask=weft.tensor(MASK))
    np.testing.assert_allclose(found.tolist(), np.asarray(wanted), rtol=1e-6)


@pytest.mark.parametrize(("name", "wanted"), [
    ("softmax", np.exp(KEPT) / np.exp(KEPT).sum(1, keepdims=True)),
    ("softmin", np.exp(-KEPT) / np.exp(-KEPT).sum(1, keepdims=True))])
def test_normalisations_are_zero_where_the_mask_does_not_hold(name, wanted):
    found = getattr(weft.masked, name)(weft.tensor(X), 1, mask=weft.tensor(MASK))
    np.testing.assert_allclose(found.tolist(), wanted.filled(0), rtol=1e-6)


def test_masks_broadcast_and_may_hold_nowhere():
    x = weft.tensor(X)
    none = weft.tensor([[True], [False]])
    assert weft.masked.sum(x, 1, mask=none).tolist() == [2.0, 0.0]
    assert math.isnan(weft.masked.mean(x, 1, mask=none)[1].item())
    assert weft.masked.cumsum(x, 1, mask=weft.tensor(MASK)).tolist() == [[1, 1, 4], [0, 5, 5.5]]
    assert weft.masked.normalize(x, 1.0, 1, mask=none)[0].abs().sum().item() == pytest.approx(1.0)
    with pytest.raises(weft.WeftError, match="more axes"):
        weft.masked.sum(x, mask=weft.ones(1, 2, 3))
