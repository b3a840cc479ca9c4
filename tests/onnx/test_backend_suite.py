"""A part of the suite of the ``onnx`` package; ``tests.onnx.count`` runs the whole of it."""

from __future__ import annotations

import re
import warnings

import pytest

from tests.onnx.count import Outcome, run_one, summary
from tests.onnx.suite import How, load_exclusions, load_suite

with warnings.catch_warnings():  # the suite computes infinities on purpose
    warnings.simplefilter("ignore")
    SUITE = load_suite()
EXCLUDED = load_exclusions()
# Every so many tests of the suite; ``make test-onnx`` and CI run all of them.
STRIDE = 20


def test_exclusions_are_tests_with_reasons() -> None:
    assert [name for name in EXCLUDED if name not in SUITE] == []
    assert [name for name, reason in EXCLUDED.items() if len(reason) < 8] == []


def test_a_reason_with_figures_is_of_one_test() -> None:
    """What was measured was measured for the test that it excuses, or its expanded twin."""
    measured: dict[str, set[str]] = {}
    for name, reason in EXCLUDED.items():
        if re.search(r"\d\.\d", reason):
            base = re.sub(r"(_expanded|_opset\d+)$", "", name)
            measured.setdefault(reason.partition(" (as ")[0], set()).add(base)
    assert {reason: names for reason, names in measured.items() if len(names) > 1} == {}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.xfail(reason=EXCLUDED[name], strict=True))
        if name in EXCLUDED
        else name
        for name in list(SUITE)[::STRIDE]
    ],
)
def test_onnx_backend(name: str) -> None:
    SUITE[name]()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "how"), [
    ("test_relu", How.GIVEN), ("test_add_bcast", How.GIVEN),
    ("test_reshape_extended_dims", How.BOUND), ("test_tile", How.BOUND),
])
def test_how_a_test_was_compiled_is_counted(name: str, how: How) -> None:
    assert run_one(name) == Outcome(how=how)


def test_the_closing_line_tells_both_kinds_apart() -> None:
    results = {"a": Outcome(how=How.GIVEN), "b": Outcome(how=How.BOUND),
               "c": Outcome(how=How.GIVEN), "d": Outcome(failure="no")}
    assert summary(results, ["d"], 7) == (
        "3 passed, 1 failed of 4 CPU tests; of those that pass 2 were compiled as given, 1 with "
        "values of small inputs as constants; 7 excluded, 1 not as the exclusions say")
