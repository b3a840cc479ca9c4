"""The cost model that learns from measurements."""

from __future__ import annotations

import numpy as np
import pytest

from weft.tune.cost_model import LEAST_SAMPLES, Example, LearnedModel

pytestmark = pytest.mark.torch  # its environment has lightgbm, which brings scipy


def examples(count, seed):
    """Points whose gain the machine model misjudges: the third feature decides."""
    draw = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        features = tuple(draw.uniform(0, 4, 4))
        found.append((Example(features, (2.0,) * 4, float(draw.uniform(0.5, 2))),
                      2.0 ** (features[2] - 3)))
    return found


def test_what_is_learned_ranks_other_points():
    model = LearnedModel()
    for example, gain in examples(300, 0):
        model.add(example, gain)
    others = examples(50, 1)
    found = model.gains([example for example, _ in others])
    assert model.is_trained
    ranks = [np.argsort(np.argsort(values)) for values in (found, [gain for _, gain in others])]
    assert np.corrcoef(*ranks)[0, 1] > 0.95
    again = LearnedModel()
    for example, gain in examples(300, 0):
        again.add(example, gain)
    assert again.gains([example for example, _ in others]) == found


def test_few_samples_say_nothing():
    model = LearnedModel()
    known = examples(LEAST_SAMPLES - 1, 0)
    for example, gain in known:
        model.add(example, gain)
    assert model.gains([e for e, _ in known]) == [e.predicted_gain for e, _ in known]
