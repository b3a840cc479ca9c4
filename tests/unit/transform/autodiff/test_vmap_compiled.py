"""Vectorised programs in machine code, with fixed and with symbolic batches."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.unit.transform.autodiff.networks import inputs_of, transformer
from weft.transform.autodiff.batching.vectorize import vectorized
from weft.transform.autodiff.reverse.gradient import Gradient


@pytest.mark.slow
def test_gradients_of_a_transformer_for_each_example():
    """Per-example gradients: weights are shared, and no operator runs example by example."""
    mod = Gradient()(transformer(1))
    count = len(mod["main"].params)
    in_axes = (0, *(None,) * (count - 1))
    batched, repeated = vectorized(mod, axis_size=3, in_axes=in_axes)
    assert repeated == []
    inputs = inputs_of(mod)
    examples = np.stack([inputs[0], 2 * inputs[0], -inputs[0]])
    value, *grads = weft.compile(batched)(examples, *inputs[1:])
    one = weft.compile(mod)
    for i, example in enumerate(examples):
        expected, *slopes = one(example, *inputs[1:])
        np.testing.assert_allclose(value[i], expected, rtol=1e-4, atol=1e-6)
        for got, wanted in zip(grads, slopes, strict=True):
            np.testing.assert_allclose(got[i], wanted, rtol=2e-3, atol=2e-5)


@pytest.mark.slow
def test_symbolic_batch_is_one_program():
    model = weft.compile(weft.vmap(transformer(1), {"x": 0}))
    assert model.manifest.symbols
    mod = transformer(1)
    inputs = inputs_of(mod)
    one = weft.compile(mod)
    for size in (1, 3):
        examples = np.stack([inputs[0] * (i + 1) for i in range(size)])
        got = model(examples, *inputs[1:])
        for i in range(size):
            np.testing.assert_allclose(got[i], one(examples[i], *inputs[1:]), rtol=1e-4)
