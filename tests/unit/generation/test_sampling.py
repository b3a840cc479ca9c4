"""Filters against definitions written out, and draws against their distribution."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.generation import RandomStream, Sampling, candidates, choose_tokens
from weft.generation import sampling as sampling_module
from weft.support.errors import OptionError

NONE = np.empty(0, np.int64)


def distribution(logits: np.ndarray, s: Sampling) -> np.ndarray:
    """Probabilities of one row by the definitions, one filter after the other."""
    scores = logits.astype(np.float64) / s.temperature
    order = np.argsort(-scores, kind="stable")
    keep = np.zeros(len(scores), bool)
    keep[order[:s.top_k or len(scores)]] = True
    p = np.where(keep, np.exp(scores - scores.max()), 0)
    p /= p.sum()
    if s.top_p < 1:
        before = np.cumsum(p[order]) - p[order]
        p[order[before >= s.top_p]] = 0
        p /= p.sum()
    p[p < s.min_p * p.max()] = 0
    return p / p.sum()


@settings(max_examples=60, deadline=None)
@given(rows=st.integers(1, 3), vocab=st.integers(1, 40), seed=st.integers(0, 99),
       temperature=st.floats(0.2, 3), top_k=st.none() | st.integers(1, 50),
       top_p=st.just(1.0) | st.floats(0.05, 0.99), min_p=st.just(0.0) | st.floats(0.01, 0.9))
def test_filters_follow_their_definitions(
    rows: int, vocab: int, seed: int, temperature: float, top_k: int | None, top_p: float,
    min_p: float,
) -> None:
    logits = np.random.default_rng(seed).normal(0, 2, (rows, vocab)).astype(np.float32)
    params = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    found = candidates(logits, params).dense(vocab)
    for row, expected in zip(found, logits, strict=True):
        np.testing.assert_allclose(row, distribution(expected, params), atol=2e-6)


def test_top_p_of_a_flat_distribution_needs_more_than_the_few_candidates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sampling_module, "FEW", 4)
    logits = np.random.default_rng(0).normal(0, 0.1, (2, 50)).astype(np.float32)
    params = Sampling(temperature=1.0, top_p=0.8)
    for row, expected in zip(candidates(logits, params).dense(50), logits, strict=True):
        np.testing.assert_allclose(row, distribution(expected, params), atol=2e-6)


def test_draws_have_the_distribution() -> None:
    """Chi-squared over 20,000 draws; 0.999 quantile for 7 degrees of freedom."""
    logits = np.random.default_rng(3).normal(0, 1, (1, 8)).astype(np.float32)
    params = Sampling(temperature=0.8)
    stream, draws = RandomStream(5), 20_000
    found = candidates(np.repeat(logits, draws, 0), params)
    tokens = found.choose(np.array([stream.uniform() for _ in range(draws)]))
    expected = draws * distribution(logits[0], params)
    counts = np.bincount(tokens, minlength=8)
    assert ((counts - expected) ** 2 / expected).sum() < 24.3


def test_a_row_does_not_depend_on_the_rows_beside_it() -> None:
    logits = np.random.default_rng(1).normal(0, 1, (5, 30)).astype(np.float32)
    params = [Sampling(temperature=1.0), Sampling(), Sampling(temperature=0.7, top_k=5),
              Sampling(temperature=1.0), Sampling(temperature=1.3, top_p=0.6)]
    together = choose_tokens(logits, params, [RandomStream(i) for i in range(5)], [NONE] * 5)
    for row in range(5):
        alone = choose_tokens(logits[row:row + 1], params[row:row + 1], [RandomStream(row)], [NONE])
        assert together[row] == alone[0]


def test_repetition_penalty_divides_positive_and_multiplies_negative_logits() -> None:
    logits = np.array([[2.0, -1.0, 1.5, 0.0]], np.float32)
    seen = [np.array([0, 1, 0])]
    found = sampling_module.penalize(logits[0], seen[0], 2.0)
    np.testing.assert_array_equal(found, [1.0, -2.0, 1.5, 0.0])
    params = [Sampling(repetition_penalty=2.0)]
    assert choose_tokens(logits, params, [RandomStream(0)], seen)[0] == 2
    assert logits[0, 0] == 2.0


def test_a_uniform_close_to_one_gives_a_possible_token() -> None:
    logits = np.array([[3.0, 2.0, -np.inf]], np.float32)
    found = candidates(logits, Sampling(temperature=1.0))
    assert found.choose(np.array([1.0]))[0] == 1
    assert found.choose(np.array([0.0]))[0] == 0


@settings(max_examples=100, deadline=None)
@given(size=st.integers(1, 1500), seed=st.integers(0, 99), zeros=st.floats(0, 0.99),
       uniform=st.floats(0, 1, exclude_max=True) | st.sampled_from([0.0, 1 - 2.0**-53]))
def test_the_search_in_blocks_is_that_in_all_prefix_sums(
    size: int, seed: int, zeros: float, uniform: float,
) -> None:
    rng = np.random.default_rng(seed)
    weights = np.where(rng.random(size) < zeros, 0, rng.integers(1, 9, size)).astype(np.float32)
    weights[rng.integers(size)] = 1
    found = sampling_module.Candidates(None, weights[None]).choose(np.array([uniform]))[0]
    sums = np.cumsum(weights, dtype=np.float64)
    assert weights[found] > 0
    assert sums[found] - weights[found] <= uniform * sums[-1] + 1e-9
    assert uniform * sums[-1] <= sums[found] + 1e-9


@pytest.mark.parametrize(("option", "value"), [
    ("temperature", 0.0), ("temperature", -1.0), ("temperature", float("nan")),
    ("temperature", float("inf")), ("top_k", 0), ("top_k", -3), ("top_p", 0.0), ("top_p", 1.5),
    ("top_p", float("nan")), ("min_p", -0.1), ("min_p", 1.0), ("repetition_penalty", 0.0),
])
def test_options_out_of_range_are_refused(option: str, value: float) -> None:
    with pytest.raises(OptionError, match=f"invalid {option}"):
        Sampling(**{"temperature": 1.0, option: value})


def test_filters_without_a_temperature_are_refused() -> None:
    with pytest.raises(OptionError, match="need a temperature"):
        Sampling(top_k=5)
    with pytest.raises(OptionError, match="key out of range"):
        RandomStream(-1)
