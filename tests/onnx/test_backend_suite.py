"""A part of the suite of the ``onnx`` package; ``tests.onnx.count`` runs the whole of it."""

from __future__ import annotations

import warnings

import pytest

from tests.onnx.suite import load_exclusions, load_suite

with warnings.catch_warnings():  # the suite computes infinities on purpose
    warnings.simplefilter("ignore")
    SUITE = load_suite()
EXCLUDED = load_exclusions()
# Every so many tests of the suite; ``make test-onnx`` and CI run all of them.
STRIDE = 20


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
        for name in list(SUITE)[::STRIDE]
    ],
)
def test_onnx_backend(name: str) -> None:
    SUITE[name]()
