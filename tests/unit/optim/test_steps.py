"""Optimisers in compiled steps: schedules, counts of steps, states, loss scaling."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft import amp, nn, optim
from weft.nn.state_dict import StateDictError
from weft.support.errors import InvalidInputError


def _weight() -> nn.Parameter:
    return nn.Parameter(np.array([1.0, -2.0], np.float32))


def test_a_schedule_changes_a_compiled_step_without_compiling_it_again():
    weight = _weight()
    optimizer = optim.SGD([weight], lr=1.0)
    schedule = optim.lr_scheduler.ExponentialLR(optimizer, 0.5)

    @weft.train_step
    def step():
        optimizer.zero_grad()
        weight.sum().backward()
        optimizer.step()

    for _ in range(6):
        step()
        schedule.step()
    expected = np.array([1, -2]) - sum(0.5**i for i in range(6))
    np.testing.assert_allclose(weight.detach().numpy(), expected, rtol=1e-6)
    assert "1 program(s)" in step.explain()

    @weft.train_step
    def wrong():
        schedule.step()

    with pytest.raises(InvalidInputError, match="outside"):
        wrong()


def test_a_compiled_step_with_a_scaler_skips_bad_gradients():
    weight = _weight()
    optimizer = optim.Adam([weight], lr=0.1)
    scaler = amp.GradScaler(init_scale=4.0, growth_interval=2)

    @weft.train_step
    def step(factor):
        optimizer.zero_grad()
        scaler.scale((weight * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()

    for factor in (1.0, float("inf"), 1.0):
        step(weft.tensor(factor))
    assert optimizer.state[weight]["step"].item() == 2
    assert scaler.get_scale() == 2.0
    np.testing.assert_allclose(weight.detach().numpy(), [0.8, -2.2], rtol=1e-5)


def test_parameters_without_a_gradient_keep_their_count():
    first, second = _weight(), _weight()
    optimizer = optim.Adam([first, second])
    assert not optimizer.state_dict()["state"]
    for both in (True, False, True):
        optimizer.zero_grad()
        (first.sum() + second.sum() if both else first.sum()).backward()
        optimizer.step()
    assert [optimizer.state[p]["step"].item() for p in (first, second)] == [3, 2]
    other = optim.Adam([_weight(), _weight()], lr=5.0)
    other.load_state_dict(optimizer.state_dict())
    assert other.param_groups[0]["lr"] == 1e-3
    found, wanted = other.state_dict()["state"], optimizer.state_dict()["state"]
    for i in (0, 1):
        for name, value in wanted[i].items():
            np.testing.assert_array_equal(found[i][name].numpy(), value.numpy())


def test_wrong_arguments_are_explained():
    weight = _weight()
    for make, text in ((lambda: optim.SGD([]), "no parameters"),
                       (lambda: optim.SGD(weight), "list of parameters"),
                       (lambda: optim.SGD([weight, weight]), "two groups"),
                       (lambda: optim.SGD([weight], lr=-1.0), "negative"),
                       (lambda: optim.Adam([weight], betas=(0.9, 1.0)), "beta"),
                       (lambda: optim.SGD([weight], nesterov=True), "Nesterov"),
                       (lambda: optim.Adam([weight * 2]), "leaf")):
        with pytest.raises(InvalidInputError, match=text):
            make()
    with pytest.raises(StateDictError, match="does not fit Adam"):
        optim.Adam([weight]).load_state_dict(
            optim.Adam([_weight(), _weight()]).state_dict())


def test_averaged_models():
    model = nn.Linear(1, 1, bias=False)
    mean = optim.swa_utils.AveragedModel(model)
    moving = optim.swa_utils.AveragedModel(model, avg_fn=optim.swa_utils.get_ema_avg_fn(0.5))
    for value in (1.0, 3.0, 8.0):
        nn.init.constant_(model.weight, value)
        mean.update_parameters(model)
        moving.update_parameters(model)
    assert mean.module.weight.item() == pytest.approx(4.0)
    assert moving.module.weight.item() == pytest.approx(5.0)
