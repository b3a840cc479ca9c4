"""Layers agree with torch's: results, gradients, buffers, names of the state."""

import pytest

from tests.unit.nn.twin_table import ALL, SAMPLE
from tests.unit.nn.twins import Twin, check


@pytest.mark.torch
@pytest.mark.parametrize("twin", SAMPLE, ids=lambda t: t.label)
def test_a_layer_agrees_with_torch(twin: Twin):
    check(twin)


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("twin", [t for t in ALL if t not in SAMPLE], ids=lambda t: t.label)
def test_all_layers_agree_with_torch(twin: Twin):
    check(twin)
