"""Costs of operations: records, estimates, and merging of models."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft.support.errors import OptionError
from weft.transform.placement.measured_costs import MIN_SECONDS, MeasuredCosts
from weft.transform.placement.task_graph import Link

runs = st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 1), st.integers(0, 1000)),
                max_size=20)


def model_of(records: list[tuple[str, float, int]]) -> MeasuredCosts:
    model = MeasuredCosts()
    for name, seconds, nbytes in records:
        model.record_count(name)
        model.record_time(name, seconds)
        model.record_size(name, nbytes, 1)
        model.record_memory(name, nbytes)
    return model


@given(runs, runs)
def test_merging_is_recording_all_runs_in_one_model(
    first: list[tuple[str, float, int]], second: list[tuple[str, float, int]]
) -> None:
    merged, local, together = model_of(first), model_of(first), model_of(first + second)
    merged.merge_from_global(model_of(second))
    renamed = [(name.upper(), seconds, nbytes) for name, seconds, nbytes in second]
    local.merge_from_local(model_of([*renamed, ("copy", 1.0, 1)]), {"A": "a", "B": "b", "C": "c"})
    assert "copy" not in local
    for model in (merged, local):
        for name in "abc":
            assert model.total_count(name) == together.total_count(name)
            assert model.total_seconds(name) == pytest.approx(together.total_seconds(name))
            assert model.size_estimate(name, 1) == together.size_estimate(name, 1)
            assert model.seconds_estimate(name) == pytest.approx(together.seconds_estimate(name))
            assert model.max_seconds(name) == together.max_seconds(name)
            assert model.max_memory(name) == together.max_memory(name)


@given(runs)
def test_estimates_are_means(records: list[tuple[str, float, int]]) -> None:
    model = model_of(records)
    for name in "abc":
        seconds = [one[1] for one in records if one[0] == name]
        mean = np.mean(seconds) if seconds else 0.0
        assert model.seconds_estimate(name) == pytest.approx(max(mean, MIN_SECONDS))
        assert model.max_seconds(name) == max(seconds, default=0.0)


def test_infrequent_operations_are_set_aside() -> None:
    model = MeasuredCosts()
    for name, count in (("often", 10), ("half", 5), ("seldom", 4), ("more", 20)):
        model.record_count(name, count)
        model.record_time(name, 1.0)
    assert model.total_count("seldom") == 4
    model.suppress_infrequent()  # the median is 7
    assert model.total_count("half") == 5
    assert model.total_count("seldom") == 4
    model.record_count("often", 90)
    model.record_count("more", 80)
    model.record_count("half", 45)
    model.suppress_infrequent()
    assert model.total_count("seldom") == 0
    assert model.seconds_estimate("seldom") == MIN_SECONDS
    assert set(model.measured_seconds()) == {"often", "half", "more"}


def test_profiles_are_recorded() -> None:
    mod = weft.compile(weft.parse(
        "def @main(%x: Tensor[(64), float32]) { sum(nn.softmax(%x)) }"))
    model = MeasuredCosts()
    for _ in range(3):
        model.record_profile(mod.profile(np.ones(64, np.float32), repeat=2))
    assert len(model) > 0
    assert all(model.total_count(name) == 3 and model.seconds_estimate(name) >= MIN_SECONDS
               for name in model)
    assert "runs" in model.table()


def test_copies_and_negative_times() -> None:
    assert Link(1e9, 1e-5).seconds(10**6) == pytest.approx(1e-5 + 1e-3)
    with pytest.raises(OptionError, match="negative"):
        MeasuredCosts().record_time("a", -1)
