"""Optimisers agree with torch's over 20 steps of a badly scaled loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.unit.optim.twins import twins_of

OPTIMISERS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "maximize": True}),
    ("Adam", {"lr": 0.01}),
    ("Adam", {"lr": 0.01, "betas": (0.8, 0.95), "weight_decay": 0.1, "amsgrad": True}),
    ("AdamW", {"lr": 0.01, "weight_decay": 0.1}),
    ("AdamW", {"lr": 0.01, "amsgrad": True, "maximize": True}),
    ("RMSprop", {"lr": 0.01}),
    ("RMSprop", {"lr": 0.01, "momentum": 0.5, "centered": True, "weight_decay": 0.1}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "initial_accumulator_value": 0.2}),
    ("Adadelta", {"lr": 1.0, "weight_decay": 0.1}), ("Adamax", {"lr": 0.01}),
    ("NAdam", {"lr": 0.01, "weight_decay": 0.1}),
    ("NAdam", {"lr": 0.01, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("RAdam", {"lr": 0.01}),
    ("RAdam", {"lr": 0.01, "weight_decay": 0.1, "decoupled_weight_decay": True}),
]


@pytest.mark.torch
@pytest.mark.parametrize(("name", "options"), OPTIMISERS, ids=str)
def test_an_optimiser_agrees_with_torch(name: str, options: dict[str, Any]):
    ours, theirs, our_optimiser, their_optimiser = twins_of(name, options)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
    mine, wanted = our_optimiser.state_dict(), their_optimiser.state_dict()
    assert mine["state"].keys() == wanted["state"].keys() or not any(wanted["state"].values())
    assert set(mine["param_groups"][0]) == set(wanted["param_groups"][0])
    expected = {k: v for k, v in wanted["state"].get(0, {}).items() if v is not None}
    assert mine["state"].get(0, {}).keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_allclose(np.asarray(mine["state"][0][key]), np.asarray(value),
                                   rtol=1e-4, atol=1e-6, err_msg=key)
