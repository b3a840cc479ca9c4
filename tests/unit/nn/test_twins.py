"""Layers agree with torch's: results, gradients, buffers, names of the state.

One of each family; ``make test-layers`` compares all of them.
"""

import pytest

from tests.unit.nn.twin_table import SAMPLE
from tests.unit.nn.twins import Twin, check


@pytest.mark.torch
@pytest.mark.parametrize("twin", SAMPLE, ids=lambda t: t.name)
def test_a_layer_agrees_with_torch(twin: Twin):
    check(twin)
