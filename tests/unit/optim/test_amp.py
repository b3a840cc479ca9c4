"""Mixed precision: dtypes under autocast, and the scale of losses."""

from __future__ import annotations

import numpy as np

import weft
from weft import amp, nn, optim


def test_products_are_narrow_and_losses_wide():
    layer, x = nn.Linear(4, 3), weft.ones(2, 4)
    with amp.autocast():
        y = layer(x)
        loss = nn.functional.mse_loss(y, weft.zeros(2, 3))
        assert amp.is_autocast_enabled()
        with amp.autocast(enabled=False):
            assert layer(x).dtype == weft.float32
    assert y.dtype == weft.bfloat16
    assert loss.dtype == weft.float32
    assert layer(x).dtype == weft.float32
    loss.backward()
    assert layer.weight.grad.dtype == weft.float32
    wide = nn.functional.mse_loss(layer(x), weft.zeros(2, 3))
    np.testing.assert_allclose(loss.item(), wide.item(), rtol=0.02)


def _scaled_step(scaler: amp.GradScaler, parameter: nn.Parameter, factor: float) -> None:
    optimiser = optim.SGD([parameter], lr=1.0, momentum=0.5)
    scaler.scale((parameter * factor).sum()).backward()
    scaler.step(optimiser)
    scaler.update()
    parameter.grad = None


def test_the_scale_adapts_and_bad_steps_change_nothing():
    parameter = nn.Parameter(np.array([1.0, 2.0], np.float32))
    scaler = amp.GradScaler(init_scale=8.0, growth_interval=2)
    _scaled_step(scaler, parameter, 0.5)
    np.testing.assert_array_equal(parameter.detach().numpy(), [0.5, 1.5])
    assert scaler.get_scale() == 8.0
    _scaled_step(scaler, parameter, float("inf"))
    np.testing.assert_array_equal(parameter.detach().numpy(), [0.5, 1.5])
    assert scaler.get_scale() == 4.0
    _scaled_step(scaler, parameter, 0.5)
    _scaled_step(scaler, parameter, 0.5)
    assert scaler.get_scale() == 8.0
    other = amp.GradScaler()
    other.load_state_dict(scaler.state_dict())
    assert other.state_dict() == scaler.state_dict()
