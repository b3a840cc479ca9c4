"""Optimisers and schedules agree with torch's over 20 steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.unit.optim.twins import STEPS, twins_of
from weft import nn, optim

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
SCHEDULES: list[tuple[str, dict[str, Any]]] = [
    ("StepLR", {"step_size": 3, "gamma": 0.5}),
    ("MultiStepLR", {"milestones": [2, 5, 5, 9], "gamma": 0.3}), ("ExponentialLR", {"gamma": 0.9}),
    ("ConstantLR", {"factor": 0.5, "total_iters": 4}), ("LinearLR", {"total_iters": 6}),
    ("LambdaLR", {"lr_lambda": lambda e: 1 / (1 + e)}),
    ("MultiplicativeLR", {"lr_lambda": lambda e: 0.9 + e / 1000}),
    ("PolynomialLR", {"total_iters": 7, "power": 2.0}),
    ("CosineAnnealingLR", {"T_max": 6, "eta_min": 0.01}),
    ("CosineAnnealingWarmRestarts", {"T_0": 3, "T_mult": 2}),
    ("OneCycleLR", {"max_lr": 0.5, "total_steps": 25}),
    ("OneCycleLR", {"max_lr": 0.5, "epochs": 5, "steps_per_epoch": 5, "three_phase": True,
                    "anneal_strategy": "linear"}),
]
@pytest.mark.torch
@pytest.mark.parametrize(("name", "options"), OPTIMISERS, ids=str)
def test_an_optimiser_agrees_with_torch(name: str, options: dict[str, Any]):
    ours, theirs, our_optimiser, their_optimiser = twins_of(name, options)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
    mine, wanted = our_optimiser.state_dict(), their_optimiser.state_dict()
    assert mine["state"].keys() == wanted["state"].keys() or not any(wanted["state"].values())
    assert set(mine["param_groups"][0]) <= set(wanted["param_groups"][0])
    expected = {k: v for k, v in wanted["state"].get(0, {}).items() if v is not None}
    assert mine["state"].get(0, {}).keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_allclose(np.asarray(mine["state"][0][key]), np.asarray(value),
                                   rtol=1e-4, atol=1e-6, err_msg=key)


@pytest.mark.torch
@pytest.mark.parametrize(("name", "options"), SCHEDULES, ids=lambda x: str(x)[:40])
def test_a_schedule_agrees_with_torch(name: str, options: dict[str, Any]):
    import torch

    theirs = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.2, momentum=0.9)
    ours = optim.SGD([nn.Parameter(np.zeros(1, np.float32))], lr=0.2, momentum=0.9)
    their_schedule = getattr(torch.optim.lr_scheduler, name)(theirs, **options)
    our_schedule = getattr(optim.lr_scheduler, name)(ours, **options)
    for _ in range(STEPS):
        for key in ("lr", "momentum"):
            expected = theirs.param_groups[0][key]
            assert ours.param_groups[0][key] == pytest.approx(expected, rel=1e-9, abs=1e-12)
            assert ours.param_groups[0].tensor(key).item() == pytest.approx(expected, abs=1e-12)
        theirs.step()
        their_schedule.step()
        our_schedule.step()
        assert our_schedule.get_last_lr() == pytest.approx(their_schedule.get_last_lr())


def _composed(library: Any, optimiser: Any) -> list[Any]:
    s = library
    return [s.SequentialLR(optimiser, [s.LinearLR(optimiser, 0.1, total_iters=4),
                                       s.CosineAnnealingLR(optimiser, 8)], [5])]


@pytest.mark.torch
@pytest.mark.parametrize("kind", ["sequential", "chained", "swa"])
def test_composed_schedules_agree_with_torch(kind: str):
    import torch

    theirs = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.2)
    ours = optim.SGD([nn.Parameter(np.zeros(1, np.float32))], lr=0.2)
    pairs = []
    for library, swa, optimiser in ((torch.optim.lr_scheduler, torch.optim.swa_utils, theirs),
                                    (optim.lr_scheduler, optim.swa_utils, ours)):
        if kind == "swa":
            pairs.append(swa.SWALR(optimiser, swa_lr=0.05, anneal_epochs=6))
        elif kind == "chained":
            pairs.append(library.ChainedScheduler([
                library.ConstantLR(optimiser, 0.1, 3), library.ExponentialLR(optimiser, 0.9)]))
        else:
            pairs.append(library.SequentialLR(
                optimiser, [library.LinearLR(optimiser, 0.1, total_iters=4),
                            library.CosineAnnealingLR(optimiser, 8),
                            library.ExponentialLR(optimiser, 0.5)], [5, 12]))
    for _ in range(STEPS):
        assert ours.param_groups[0]["lr"] == pytest.approx(theirs.param_groups[0]["lr"])
        theirs.step()
        for schedule in pairs:
            schedule.step()


@pytest.mark.torch
def test_reduce_on_plateau_agrees_with_torch():
    import torch

    theirs = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.2)
    ours = optim.SGD([nn.Parameter(np.zeros(1, np.float32))], lr=0.2)
    options = {"factor": 0.5, "patience": 1, "cooldown": 1, "threshold": 0.05}
    pair = (torch.optim.lr_scheduler.ReduceLROnPlateau(theirs, **options),
            optim.lr_scheduler.ReduceLROnPlateau(ours, **options))
    for metric in (1, 0.8, 0.79, 0.79, 0.78, 0.9, 0.9, 0.9, 0.2, 0.3, 0.3, 0.3, 0.3):
        for schedule in pair:
            schedule.step(metric)
        assert ours.param_groups[0]["lr"] == pytest.approx(theirs.param_groups[0]["lr"])
