"""The kernels in ``explain()``: predicted, measured, their limit, and what takes their time."""

from __future__ import annotations

import numpy as np
import pytest

import weft

PROGRAM = """
def @main(%x: Tensor[(8, 64), float32], %w: Tensor[(32, 64), float32]) {
  transpose(nn.dense(%x, %w), axes=[1, 0])
}
"""


def _cells(module: weft.runtime.executable.Executable, implementation: str) -> list[str]:
    (line,) = [line for line in module.explain().splitlines() if implementation in line]
    return line.split()


def test_kernels_are_listed_with_predictions_and_after_a_profile_with_times():
    module = weft.compile(weft.parse(PROGRAM))
    predicted, measured, limit, calls = _cells(module, "nn.dense.cpu")[:4]
    assert float(predicted) > 0
    assert (measured, limit, calls) == ("-", "-", "1")
    assert "mod.profile(inputs) measures them" in module.explain()
    module.profile(np.ones((8, 64), np.float32), np.ones((32, 64), np.float32), repeat=2)
    predicted, measured, limit, bound, calls = _cells(module, "nn.dense.cpu")[:5]
    assert float(measured) > 0
    assert bound in ("FMA", "bandwidth")


def test_copies_have_a_line_with_their_share_of_the_time():
    text = weft.compile(weft.parse(PROGRAM)).explain()
    assert "copies and changes of layout: 1 of 2 calls" in text


def test_what_takes_the_time_goes_with_the_artifact(tmp_path):
    module = weft.compile(weft.parse(PROGRAM))
    module.export(tmp_path / "net.weft")
    loaded = weft.load(tmp_path / "net.weft")
    steps = module.manifest.steps
    assert [s.spent for s in loaded.manifest.steps] == [s.spent for s in steps]
    assert steps[0].spent
    assert _cells(loaded, "nn.dense.cpu")[0] == _cells(module, "nn.dense.cpu")[0]


def test_specialisations_are_listed():
    module = weft.compile(weft.parse(
        "def @main(%x: Tensor[(n, 512), float32], %w: Tensor[(512, 512), float32]) "
        "{ nn.dense(%x, %w) }"))
    if not module.manifest.steps[0].variants:
        pytest.fail("the test needs a kernel with variants")
    assert "for some sizes" in module.explain()
