"""PyTorch's own operator samples, a few of each; ``python -m tests.torch.opinfo`` runs ten."""

from __future__ import annotations

import pytest

from tests.torch.opinfo_names import CONFIGURATIONS, EXCLUSIONS, load_expected, load_lines

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

EXCLUDED, EXPECTED = load_lines(EXCLUSIONS), load_expected()
# How many samples of each operator, by configuration.
COUNTS = (3, 2, 1, 1)
# Below these the numbers of operators that weft computes itself shall not fall.
COMPUTED = (560, 450, 410, 305)


def test_every_operator_is_expected_or_excluded() -> None:
    from tests.torch.opinfo_samples import operators, supports

    with_floats = {n for n, op in operators().items() if supports(op, "float32", gradients=False)}
    assert with_floats - {*EXCLUDED, *EXPECTED} == set()
    assert {*EXCLUDED, *EXPECTED} - set(operators()) == set()
    assert [name for name, reason in EXCLUDED.items() if len(reason) < 8] == []


def test_the_count_does_not_sink() -> None:
    for column, least in enumerate(COMPUTED):
        assert [states[column] for states in EXPECTED.values()].count("computed") >= least


@pytest.mark.sample(0.035)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [n for n in EXPECTED if n not in EXCLUDED])
def test_samples(name: str) -> None:
    from tests.torch.opinfo_run import Status, run_operator

    for (dtype, gradients), count, expected in zip(CONFIGURATIONS, COUNTS, EXPECTED[name],
                                                   strict=True):
        outcome = run_operator(name, dtype, count, gradients=gradients)
        assert outcome.status not in (Status.RAISES, Status.WRONG), outcome
        assert (outcome.status is Status.NO_SAMPLES) == (expected == "-"), outcome
        if expected == "computed":
            # The first samples may all have sizes that data decides, which torch does not trace.
            depends_on_data = (outcome.status is Status.NOT_TRACED
                               and "DataDependentOutputException" in outcome.detail)
            assert outcome.status is Status.COMPUTED or depends_on_data, outcome
