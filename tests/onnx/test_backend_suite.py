"""Every CPU test of the ``onnx`` package's suite passes, or is excluded and fails."""

from __future__ import annotations

import warnings

import pytest

from tests.onnx.suite import load_exclusions, load_suite

pytestmark = pytest.mark.slow

with warnings.catch_warnings():  # the suite computes infinities on purpose
    warnings.simplefilter("ignore")
    SUITE = load_suite()
EXCLUDED = load_exclusions()


def test_exclusions_are_tests_with_reasons() -> None:
    assert [name for name in EXCLUDED if name not in SUITE] == []
    assert [name for name, reason in EXCLUDED.items() if len(reason) < 8] == []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.xfail(reason=EXCLUDED[name], strict=True))
        if name in EXCLUDED
        else name
        for name in SUITE
    ],
)
def test_onnx_backend(name: str) -> None:
    SUITE[name]()
