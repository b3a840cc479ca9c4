"""The distributions of random functions, by moments and frequencies of many draws."""

from __future__ import annotations

import math

import numpy as np
import pytest

import weft
from weft.support.errors import InvalidInputError

COUNT = 20000


@pytest.fixture(autouse=True)
def _seeded():
    weft.manual_seed(3)


def drawn(name, *args):
    return getattr(weft.zeros(COUNT), name)(*args).numpy().astype(np.float64)


@pytest.mark.parametrize(("name", "args", "mean", "deviation"), [
    ("uniform_", (-1.0, 3.0), 1.0, 4 / math.sqrt(12)),
    ("normal_", (2.0, 0.5), 2.0, 0.5),
    ("exponential_", (2.0,), 0.5, 0.5),
    ("bernoulli_", (0.3,), 0.3, math.sqrt(0.21)),
    ("geometric_", (0.25,), 4.0, math.sqrt(0.75) / 0.25),
    ("random_", (10,), 4.5, math.sqrt(99 / 12)),
    ("log_normal_", (0.0, 0.25), math.exp(0.03125),
     math.sqrt((math.exp(0.0625) - 1) * math.exp(0.0625)))])
def test_moments(name, args, mean, deviation):
    found = drawn(name, *args)
    assert abs(found.mean() - mean) < 5 * deviation / math.sqrt(COUNT)
    assert abs(found.std() / deviation - 1) < 0.06


def test_quartiles_of_the_cauchy_distribution():
    low, middle, high = np.quantile(drawn("cauchy_", 1.0, 2.0), [0.25, 0.5, 0.75])
    assert abs(middle - 1) < 0.1
    assert abs((high - low) / 4 - 1) < 0.1


def test_multinomial_without_replacement():
    weights = weft.tensor([0.1, 0.2, 0.3, 0.4]).expand(COUNT, 4)
    found = weft.multinomial(weights, 2).numpy()
    assert (found[:, 0] != found[:, 1]).all()
    first = np.bincount(found[:, 0], minlength=4) / COUNT
    np.testing.assert_allclose(first, [0.1, 0.2, 0.3, 0.4], atol=0.015)
    # The second is drawn by the weights of those that are left.
    pair = np.mean((found[:, 0] == 3) & (found[:, 1] == 2))
    assert abs(pair - 0.4 * 0.3 / 0.6) < 0.015
    with pytest.raises(InvalidInputError, match="without replacement"):
        weft.multinomial(weft.ones(3), 4)


def test_normal_with_tensors():
    found = weft.normal(weft.tensor([0.0, 100.0]).expand(COUNT // 2, 2), weft.tensor([1.0, 5.0]))
    np.testing.assert_allclose(found.mean(0).numpy(), [0.0, 100.0], atol=0.3)
    np.testing.assert_allclose(found.std(0).numpy(), [1.0, 5.0], rtol=0.05)


def test_poisson():
    found = weft.poisson(weft.tensor([0.5, 4.0, 30.0]).expand(2000, 3)).numpy()
    np.testing.assert_allclose(found.mean(0), [0.5, 4.0, 30.0], rtol=0.08)
    np.testing.assert_allclose(found.var(0), [0.5, 4.0, 30.0], rtol=0.2)


def test_draws_repeat_from_a_seed_and_move_the_generator():
    generator = weft.Generator(5)
    first = weft.rand(3, generator=generator)
    second = weft.rand_like(first, generator=generator)
    assert first.tolist() != second.tolist()
    assert weft.rand(3, generator=generator.manual_seed(5)).tolist() == first.tolist()


def test_integers_cover_their_range():
    found = weft.randint_like(weft.zeros(1000), 2, 5)
    assert sorted(set(found.tolist())) == [2.0, 3.0, 4.0]
    assert sorted(weft.randperm(6, dtype=weft.int32).tolist()) == list(range(6))
