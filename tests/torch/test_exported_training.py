"""Models exported in training mode: running averages and keys are inputs."""

from __future__ import annotations

import numpy as np
import pytest

import weft

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]
nn = torch.nn
KEY = np.array([0, 7], np.uint32)


def exported(*layers: nn.Module, shape: tuple[int, ...]) -> tuple[nn.Module, object]:
    model = nn.Sequential(*layers).train()
    return model, torch.export.export(model, (torch.zeros(shape),))


def test_batch_norm_updates_its_averages() -> None:
    torch.manual_seed(0)
    model, program = exported(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, momentum=0.2), nn.ReLU(),
                              nn.BatchNorm2d(4, affine=False), shape=(2, 3, 8, 8))
    mod = weft.compile(program)
    x = torch.randn(2, 3, 8, 8)
    fed = {name.replace(".", "_"): value.numpy() for name, value in model.named_buffers()}
    outputs = mod.run(None, {"input": x.numpy()} | {f"b_{n}": v for n, v in fed.items()})
    found = dict(zip([p.name for p in mod.outputs], outputs, strict=True))
    wanted = model(x).detach().numpy()
    np.testing.assert_allclose(outputs[0], wanted, rtol=1e-4, atol=1e-5)
    for name, value in model.named_buffers():  # torch has updated them
        np.testing.assert_allclose(found["b_" + name.replace(".", "_")], value, rtol=1e-5,
                                   atol=1e-6)


def test_averages_as_state() -> None:
    model, program = exported(nn.BatchNorm1d(3), shape=(5, 3))
    names = [f"b_0_{n}" for n in ("running_mean", "running_var", "num_batches_tracked")]
    mod = weft.compile(program, state={n: n for n in names})
    assert [p.name for p in mod.inputs] == ["input"]
    for name, value in model.named_buffers():
        mod.state["b_" + name.replace(".", "_")][...] = value.numpy()
    for seed in range(3):
        x = torch.randn(5, 3, generator=torch.Generator().manual_seed(seed))
        np.testing.assert_allclose(mod(x.numpy()), model(x).detach(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(mod.state["b_0_running_var"], model[0].running_var, rtol=1e-5)
    assert mod.state["b_0_num_batches_tracked"] == 3


def test_dropout_takes_a_key() -> None:
    _, program = exported(nn.Dropout(0.25), nn.Dropout(0.5), shape=(200, 50))
    mod = weft.compile(program)
    assert [p.name for p in mod.inputs] == ["input", "key"]
    x = np.ones((200, 50), np.float32)
    y = mod(x, KEY)
    assert set(np.unique(y)) == {np.float32(0), np.float32(8 / 3)}
    assert abs((y == 0).mean() - 0.625) < 0.02
    np.testing.assert_array_equal(y, mod(x, KEY))
