"""Decisions: the shortest estimate wins, and every other algorithm has its reason."""

from __future__ import annotations

import pytest

from weft.strategy.decision import Candidate, Rejected, choose, time_text
from weft.support.errors import InternalError


def test_the_shortest_estimate_is_chosen_and_the_others_are_compared_with_it():
    found = choose(
        [Candidate("slow", 2.5e-3, "s"), Candidate("fast", 1e-3, "f"),
         Candidate("equal", 1e-3, "e"), Candidate("generic", 0.4, "g")],
        [Rejected("impossible", "stride 2")],
    )
    assert (found.algorithm, found.plan, found.seconds) == ("fast", "f", 1e-3)
    assert str(found).splitlines() == [
        "fast, estimated 1.0 ms",
        "  not impossible: stride 2",
        "  not slow (2.5 ms): 2.5 times as long",
        "  not equal (1.0 ms): as long; the first of equals is taken",
        "  not generic (400.0 ms): 400 times as long",
    ]


def test_an_empty_call_takes_no_time():
    found = choose([Candidate("a", 0.0, None), Candidate("b", 1e-6, None)])
    assert str(found.rejected[0]) == "not b (1.0 us): the best takes no time"


def test_no_candidate_is_an_internal_error_with_the_reasons():
    with pytest.raises(InternalError, match="no algorithm applies") as caught:
        choose([], [Rejected("gemm", "three operands")])
    assert "gemm: three operands" in str(caught.value)


@pytest.mark.parametrize(("seconds", "text"), [
    (2.0, "2.0 s"), (1.0, "1.0 s"), (0.25, "250.0 ms"), (1.26e-5, "12.6 us"), (3e-10, "0.3 ns"),
    (0.0, "0.0 ns"),
])
def test_times_are_printed_in_a_unit_that_fits(seconds, text):
    assert time_text(seconds) == text
