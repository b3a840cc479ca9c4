"""Schedules against torch's: 50 steps under many options, resumed, saved and loaded, chained."""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft import nn, optim
from weft.support.errors import InvalidInputError

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:The epoch parameter"),
              pytest.mark.filterwarnings("ignore:the epoch argument")]

STEPS = 50
RATES = (0.2, 0.05)


class Decay:
    """A function that is an object, whose attributes are state."""

    def __init__(self, by: float) -> None:
        self.by = by

    def __call__(self, epoch: int) -> float:
        return self.by**epoch


def _chained(s: Any, o: Any, **_: Any) -> Any:
    return s.ChainedScheduler([s.ConstantLR(o, 0.1, 3), s.ExponentialLR(o, 0.9)])


def _sequential(s: Any, o: Any, **_: Any) -> Any:
    return s.SequentialLR(o, [s.LinearLR(o, 0.1, total_iters=4), s.CosineAnnealingLR(o, 8),
                              s.ExponentialLR(o, 0.5)], [5, 12])


def _sequential_restarts(s: Any, o: Any, **_: Any) -> Any:
    return s.SequentialLR(o, [s.ConstantLR(o, 0.5, 6), s.CosineAnnealingWarmRestarts(o, 5, 2)],
                          [7])


def _chained_twice(s: Any, o: Any, **_: Any) -> Any:
    return s.ChainedScheduler([s.StepLR(o, 6, 0.7), s.MultiplicativeLR(o, lambda e: 0.98),
                               s.CosineAnnealingLR(o, 30)], o)


# name, options; a function makes a composed schedule
SCHEDULES: list[tuple[str | Callable[..., Any], dict[str, Any]]] = [
    ("StepLR", {"step_size": 3, "gamma": 0.5}), ("StepLR", {"step_size": 1, "gamma": 0.0}),
    ("StepLR", {"step_size": 30}),
    ("MultiStepLR", {"milestones": [2, 5, 5, 9], "gamma": 0.3}),
    ("MultiStepLR", {"milestones": [0, 20]}),
    ("ExponentialLR", {"gamma": 0.9}), ("ExponentialLR", {"gamma": 1.02}),
    ("ConstantLR", {"factor": 0.5, "total_iters": 4}), ("ConstantLR", {}),
    ("LinearLR", {"total_iters": 6}), ("LinearLR", {"start_factor": 1.0, "end_factor": 0.0}),
    ("LinearLR", {"start_factor": 0.1, "end_factor": 0.7, "total_iters": 60}),
    ("PolynomialLR", {"total_iters": 7, "power": 2.0}), ("PolynomialLR", {"total_iters": 80}),
    ("CosineAnnealingLR", {"T_max": 6, "eta_min": 0.01}), ("CosineAnnealingLR", {"T_max": 50}),
    ("CosineAnnealingLR", {"T_max": 1}),
    ("LambdaLR", {"lr_lambda": lambda e: 1 / (1 + e)}),
    ("LambdaLR", {"lr_lambda": [lambda e: 0.9**e, Decay(0.8)]}),
    ("MultiplicativeLR", {"lr_lambda": lambda e: 0.9 + e / 1000}),
    ("MultiplicativeLR", {"lr_lambda": [lambda e: 0.5, lambda e: 0.97]}),
    ("CosineAnnealingWarmRestarts", {"T_0": 3, "T_mult": 2}),
    ("CosineAnnealingWarmRestarts", {"T_0": 7, "eta_min": 0.001}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 4}),
    ("CyclicLR", {"base_lr": [0.01, 0.02], "max_lr": [0.1, 0.3], "step_size_up": 3,
                  "step_size_down": 9, "mode": "triangular2"}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 5, "mode": "exp_range",
                  "gamma": 0.97, "base_momentum": 0.7, "max_momentum": 0.95}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 5, "scale_fn": Decay(0.9),
                  "scale_mode": "cycle"}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 5, "cycle_momentum": False,
                  "scale_fn": lambda n: 1 / (1 + n), "scale_mode": "iterations"}),
    ("OneCycleLR", {"max_lr": 0.5, "total_steps": 55}),
    ("OneCycleLR", {"max_lr": [0.5, 0.1], "total_steps": 50, "div_factor": 10,
                    "final_div_factor": 100, "cycle_momentum": False}),
    ("OneCycleLR", {"max_lr": 0.5, "epochs": 10, "steps_per_epoch": 6, "three_phase": True,
                    "anneal_strategy": "linear", "pct_start": 0.2}),
    ("SWALR", {"swa_lr": 0.05, "anneal_epochs": 6}), ("SWALR", {"swa_lr": 0.05}),
    ("SWALR", {"swa_lr": [0.05, 0.3], "anneal_strategy": "linear"}),
    ("SWALR", {"swa_lr": 0.05, "anneal_epochs": 0}),
    (_chained, {}), (_sequential, {}), (_sequential_restarts, {}), (_chained_twice, {}),
]
PLATEAUS: list[dict[str, Any]] = [
    {"factor": 0.5, "patience": 1, "cooldown": 1, "threshold": 0.05}, {},
    {"mode": "max", "patience": 0, "threshold_mode": "abs", "threshold": 0.1},
    {"mode": "max", "patience": 2, "min_lr": [0.1, 0.01]},
    {"patience": 0, "threshold_mode": "abs", "min_lr": 0.02, "eps": 0.01},
]


class Side:
    """An optimiser and a schedule of weft or of torch."""

    def __init__(self, is_torch: bool, optimiser: str = "SGD", rate: Any = float) -> None:
        library = torch if is_torch else weft
        self.schedules = library.optim.lr_scheduler
        self.swa = library.optim.swa_utils
        weights = [np.ones(2, np.float32) for _ in RATES]
        parameters = [torch.nn.Parameter(torch.tensor(w)) if is_torch else nn.Parameter(w)
                      for w in weights]
        groups = [{"params": [p], "lr": rate(library.tensor(lr)) if rate is not float else lr}
                  for p, lr in zip(parameters, RATES, strict=True)]
        options = {"momentum": 0.9} if optimiser == "SGD" else {}
        self.optimiser = getattr(library.optim, optimiser)(groups, **options)
        self.schedule: Any = None

    def make(self, name: str | Callable[..., Any], **options: Any) -> Any:
        if callable(name):
            self.schedule = name(self.schedules, self.optimiser)
        else:
            owner = self.swa if name == "SWALR" else self.schedules
            self.schedule = getattr(owner, name)(self.optimiser, **copy.deepcopy(options))
        return self.schedule

    def step(self, *arguments: Any) -> None:
        self.optimiser.step()
        self.schedule.step(*arguments)

    def present(self) -> list[float]:
        """The learning rates and momenta of the groups."""
        return [float(value) for group in self.optimiser.param_groups
                for value in (group["lr"], group.get("momentum", group.get("betas", [0])[0]
                                                     if "betas" in group else 0))]


def _both(**options: Any) -> tuple[Side, Side]:
    return Side(False, **options), Side(True, **options)


def _check(ours: Side, theirs: Side, what: object = "") -> None:
    np.testing.assert_allclose(ours.present(), theirs.present(), rtol=1e-9, atol=1e-12,
                               err_msg=str(what))


def _run(ours: Side, theirs: Side, steps: int = STEPS) -> None:
    for number in range(steps):
        _check(ours, theirs, number)
        for side in (ours, theirs):
            side.step()
        np.testing.assert_allclose(np.float64(ours.schedule.get_last_lr()),
                                   np.float64(theirs.schedule.get_last_lr()), rtol=1e-9,
                                   atol=1e-12)


def identified(value: Any) -> str:
    """The id of a case, which is the same in every process: functions by their names."""
    return re.sub(r"<function ([\w.<>]+) at \w+>", r"\1", str(value))[:40]


@pytest.mark.parametrize("optimiser", ["SGD", "Adam"])
@pytest.mark.parametrize(("name", "options"), SCHEDULES, ids=identified)
def test_values_are_those_of_torch(name: Any, options: dict[str, Any], optimiser: str):
    ours, theirs = _both(optimiser=optimiser)
    for side in (ours, theirs):
        side.make(name, **options)
    _run(ours, theirs)


@pytest.mark.parametrize(("name", "options"), SCHEDULES, ids=identified)
def test_a_saved_schedule_goes_on(name: Any, options: dict[str, Any]):
    ours, theirs = _both()
    for side in (ours, theirs):
        side.make(name, **options)
    _run(ours, theirs, 8)
    state = copy.deepcopy(ours.schedule.state_dict())
    again = Side(False)
    again.make(name, **options)
    again.optimiser.load_state_dict(ours.optimiser.state_dict())
    again.schedule.load_state_dict(state)
    _run(again, theirs, 20)


@pytest.mark.parametrize(("name", "options"), [
    case for case in SCHEDULES if isinstance(case[0], str) and case[0] != "SWALR"],
    ids=identified)
def test_a_schedule_made_with_last_epoch_goes_on(name: str, options: dict[str, Any]):
    ours, theirs = _both()
    for side in (ours, theirs):
        side.make(name, **options)
        for _ in range(5):
            side.step()
        state = side.optimiser.state_dict()
        side.optimiser = type(side.optimiser)(
            [{"params": g["params"]} for g in side.optimiser.param_groups], lr=1.0)
        side.optimiser.load_state_dict(state)
        side.make(name, last_epoch=4, **options)
    _run(ours, theirs, 12)


def test_a_resumed_schedule_keeps_the_learning_rate():
    ours = Side(False)
    for name, options in (("ExponentialLR", {"gamma": 0.9}), ("LinearLR", {}),
                          ("PolynomialLR", {"total_iters": 9}),
                          ("CosineAnnealingLR", {"T_max": 5}),
                          ("MultiplicativeLR", {"lr_lambda": lambda e: 0.9})):
        ours.make(name, **options)
        ours.step()
        before = ours.present()
        ours.make(name, last_epoch=0, **options)
        assert ours.present() == before, name


@pytest.mark.parametrize(("name", "options"), [
    case for case in SCHEDULES if case[0] in ("StepLR", "ExponentialLR", "LambdaLR", "LinearLR",
                                              "CosineAnnealingLR", "MultiplicativeLR",
                                              "CosineAnnealingWarmRestarts")],
    ids=identified)
def test_an_epoch_may_be_given(name: str, options: dict[str, Any]):
    ours, theirs = _both()
    for side in (ours, theirs):
        side.make(name, **options)
        side.optimiser.step()
    for epoch in (1, 4, 2, 17, None, None, 0, None):
        for side in (ours, theirs):
            side.schedule.step(epoch)
        _check(ours, theirs, epoch)


@pytest.mark.parametrize("options", PLATEAUS, ids=str)
def test_plateaus_are_those_of_torch(options: dict[str, Any]):
    ours, theirs = _both()
    metrics = [1, 0.8, 0.79, 0.79, 0.78, 0.9, 0.9, 0.9, 0.2, *np.linspace(0.3, 0.4, 30)]
    for side in (ours, theirs):
        side.make("ReduceLROnPlateau", **options)
    for number, metric in enumerate(metrics):
        for side in (ours, theirs):
            side.step(metric)
        _check(ours, theirs, number)
        if number == 6:
            state = copy.deepcopy(ours.schedule.state_dict())
            ours.make("ReduceLROnPlateau", **options).load_state_dict(state)


def test_a_learning_rate_may_be_a_tensor():
    ours, theirs = _both(rate=lambda tensor: tensor)
    rates = [group["lr"] for group in ours.optimiser.param_groups]
    for side in (ours, theirs):
        side.make("CosineAnnealingLR", T_max=20)
    for _ in range(STEPS):
        for side in (ours, theirs):
            side.step()
        np.testing.assert_allclose(ours.present(), theirs.present(), rtol=1e-4, atol=1e-6)
    assert all(g["lr"] is r for g, r in zip(ours.optimiser.param_groups, rates, strict=True))


def test_warnings_are_those_of_torch():
    def messages(is_torch: bool) -> list[str]:
        side = Side(is_torch)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            side.make("ExponentialLR", gamma=0.5).step()
            side.schedule.step()
            side.schedule.step(4)
            side.schedule.get_lr()
        return [word for w in found for word in ("before `optimizer", "epoch", "get_last_lr")
                if word.replace("`", "") in str(w.message).replace("`", "")]

    assert messages(is_torch=False) == ["before `optimizer", "epoch", "get_last_lr"]
    assert set(messages(is_torch=True)) == set(messages(is_torch=False))


def test_wrong_arguments_are_explained():
    side = Side(False)
    s, o = side.schedules, side.optimiser
    for make, text in (
            (lambda: s.CyclicLR(o, 0.1, 0.2, mode="sine"), "mode"),
            (lambda: s.CyclicLR(o, [0.1], 0.2), "param_groups"),
            (lambda: s.OneCycleLR(o, 0.1), "total_steps"),
            (lambda: s.LambdaLR(o, [3, 4]), "function"),
            (lambda: s.ConstantLR(o, 2.0), "out of range"),
            (lambda: s.ExponentialLR(o, 0.5, last_epoch=3), "initial_lr"),
            (lambda: s.ExponentialLR(torch.optim.SGD([torch.zeros(1)]), 0.5), "optimizer of weft"),
            (lambda: s.ChainedScheduler([s.ReduceLROnPlateau(o)]), "metric"),
            (lambda: s.SequentialLR(o, [s.ConstantLR(o)], [2]), "milestone"),
            (lambda: side.swa.SWALR(o, 0.1, anneal_strategy="sine"), "anneal_strategy"),
            (lambda: s.ReduceLROnPlateau(o, factor=2.0), "factor")):
        with pytest.raises(InvalidInputError, match=text):
            make()


def test_averaged_models_are_those_of_torch():
    averages = []
    for library in (torch, weft):
        model = library.nn.Linear(1, 1, bias=False)
        found = [library.optim.swa_utils.AveragedModel(model, **options(library.optim.swa_utils))
                 for options in (lambda s: {}, lambda s: {"avg_fn": s.get_ema_avg_fn(0.5)},
                                 lambda s: {"multi_avg_fn": s.get_ema_multi_avg_fn(0.9)},
                                 lambda s: {"multi_avg_fn": s.get_swa_multi_avg_fn()})]
        for value in (1.0, 3.0, 8.0, 2.5):
            library.nn.init.constant_(model.weight, value)
            for average in found:
                average.update_parameters(model)
        averages.append([average.module.weight.item() for average in found])
    np.testing.assert_allclose(averages[1], averages[0], rtol=1e-6)
    assert isinstance(optim.swa_utils.AveragedModel(nn.Linear(1, 1)).n_averaged.item(), int)
