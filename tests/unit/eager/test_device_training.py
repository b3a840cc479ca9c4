"""Models train on simulated devices and on the emulated GPU as on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from tests.unit.eager.device_training import MODELS, losses
from weft import nn
from weft.eager.node import DeviceMismatchError


@pytest.fixture(autouse=True)
def _emulated() -> Iterator[None]:
    with weft.config(cuda="emulate"):
        yield


@pytest.mark.sample(0.2, 1)
@pytest.mark.parametrize(("name", "where", "is_compiled", "rtol"), [
    *[pytest.param(name, "sim:0", True, 0, id=f"{name}-sim") for name in MODELS],
    *[pytest.param(name, "cuda", True, 1e-4, id=f"{name}-cuda") for name in MODELS],
    pytest.param("gpt", "sim:1", False, 1e-6, id="gpt-sim-eager"),
])
def test_models_train_to_the_losses_of_the_cpu(name: str, where: str, is_compiled: bool,
                                               rtol: float) -> None:
    found = losses(name, where, is_compiled=is_compiled)
    np.testing.assert_allclose(found, losses(name, "cpu"), rtol=rtol)


def _layer() -> Any:
    weft.manual_seed(3)
    return nn.Linear(2, 2)


def test_modules_move_with_their_buffers_and_gradients() -> None:
    layer = nn.BatchNorm1d(2)
    layer(weft.rand(3, 2)).sum().backward()
    again = layer.to("sim:0")
    assert again is layer
    tensors = [*layer.parameters(), *layer.buffers(), *[p.grad for p in layer.parameters()]]
    assert {str(t.device) for t in tensors} == {"sim:0"}
    assert layer.num_batches_tracked.dtype == weft.int64
    assert {str(t.device) for t in layer.cpu().state_dict().values()} == {"cpu"}
    assert str(nn.Linear(2, 2, device="sim:0").weight.device) == "sim:0"


def test_state_of_optimisers_lies_where_the_parameters_lie() -> None:
    layer = _layer()
    optimizer = weft.optim.Adam(layer.parameters())
    layer.to("sim:0")  # after the optimiser was made
    x = weft.ones(1, 2, device="sim:0")
    layer(x).sum().backward()
    optimizer.step()
    state = optimizer.state[layer.weight]
    assert (str(state["exp_avg"].device), str(state["step"].device)) == ("sim:0", "cpu")
    saved = {**optimizer.state_dict()}
    other = _layer().to("sim:1")
    there = weft.optim.Adam(other.parameters())
    there.load_state_dict(saved)
    other.load_state_dict(layer.state_dict())
    for one, where, moved in ((layer, "sim:0", optimizer), (other, "sim:1", there)):
        moved.zero_grad()
        one(x.to(where)).sum().backward()
        moved.step()
    assert str(there.state[other.weight]["exp_avg"].device) == "sim:1"
    assert other.weight.tolist() == layer.weight.tolist()


def test_jit_and_train_step_run_where_the_tensors_are_or_on_a_device() -> None:
    x = weft.tensor([1.0, 2.0])
    double = weft.jit(lambda t: t * 2 + weft.ones(2, device=t.device))
    assert (str(double(x.to("sim:0")).device), double(x).device.type) == ("sim:0", "cpu")
    moved = weft.jit(lambda t: t * 2 + weft.ones(2), device="sim:0")
    assert (str(moved(x).device), moved(np.ones(2, np.float32)).tolist()) == ("sim:0", [3, 3])
    layer = _layer().to("sim:0")
    step = weft.train_step(lambda t: layer(t).sum(), device="sim:0")
    assert str(step(weft.ones(1, 2)).device) == "sim:0"
    with pytest.raises(DeviceMismatchError, match="same device"):
        weft.train_step(lambda t: layer(t).sum())(weft.ones(1, 2))
    with pytest.raises(DeviceMismatchError, match="several devices"):
        weft.jit(lambda t: (t.to("sim:0") + 1, t.to("sim:1") + 1))(x)


def test_gradients_flow_through_a_jitted_function_of_a_device() -> None:
    w = weft.ones(2, device="sim:0", requires_grad=True)
    weft.jit(lambda t: (t * t).sum())(w).backward()
    assert w.grad is not None
    assert w.grad.tolist() == [2, 2]


def test_checkpoints_go_from_device_to_device(tmp_path: Path) -> None:
    layer = _layer().to("sim:0")
    weft.save(layer.state_dict(), tmp_path / "layer")
    again = weft.load(tmp_path / "layer")
    assert str(again["weight"].device) == "sim:0"
    for place, expected in (("cpu", "cpu"), ({"sim:0": "sim:1"}, "sim:1"), ("cuda", "cuda:0")):
        found = weft.load(tmp_path / "layer", map_location=place)
        assert str(found["weight"].device) == expected
        assert found["weight"].tolist() == layer.weight.tolist()
    other = nn.Linear(2, 2)
    other.load_state_dict(again)
    assert (other.weight.device.type, other.weight.tolist()) == ("cpu", layer.weight.tolist())


def test_a_checkpoint_of_a_device_that_is_not_there(tmp_path: Path) -> None:
    weft.save(weft.ones(1, device="cuda"), tmp_path / "x")
    with weft.config(cuda="driver"), pytest.raises(weft.WeftError, match="map_location"):
        weft.load(tmp_path / "x", map_location={"cpu": "cuda:99", "cuda:0": "cuda:99"})
