"""Tensors: values, recording, evaluation, gradients."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.eager.program_cache import cache_info


def test_a_training_loop_compiles_one_program_that_repeats() -> None:
    weft.manual_seed(1)
    w = weft.randn(3, 2, requires_grad=True)
    x = weft.randn(5, 2)
    misses = []
    for _ in range(5):
        loss = ((x @ w.T).tanh() ** 2).sum()
        w.grad = None
        loss.backward()
        with weft.no_grad():
            w -= 0.1 * w.grad
        loss.item()
        misses.append(cache_info().misses)
    assert misses[1] == misses[-1]
    assert w.is_leaf
    assert w.requires_grad


def test_gradients_are_those_of_calculus() -> None:
    x = weft.tensor([0.5, -1.0, 2.0], dtype="float64", requires_grad=True)
    (x.exp() * x).sum().backward()
    value = x.detach().numpy()
    np.testing.assert_allclose(x.grad.numpy(), np.exp(value) * (1 + value), rtol=1e-14)


def test_shape_errors_are_raised_at_the_line_that_records_the_operator() -> None:
    x, y = weft.ones(2, 3), weft.ones(4, 3)
    with pytest.raises(weft.WeftError) as raised:
        x + y
    assert __file__ in str(raised.value)
