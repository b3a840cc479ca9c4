"""``weft.distributed.shard``: names, tables, and modules that run all devices of a mesh."""

from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console

import weft
from weft.distributed import Mesh, Sharding, shard, visualize_sharding
from weft.support.errors import OptionError, PassError

MODEL = """
def @main(%x: Tensor[(8, 16), float32], %w1: Tensor[(32, 16), float32],
          %w2: Tensor[(16, 32), float32]) {
  let %h = nn.relu(nn.dense(%x, %w1));
  nn.softmax(add(nn.dense(%h, %w2), %x))
}"""
MESH = Mesh({"data": 2, "model": 2})


def arrays() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(-2, 3, s).astype(np.float32) for s in ((8, 16), (32, 16), (16, 32))]


@pytest.mark.parametrize("devices", [(), ("sim:0", "sim:1", "sim:2", "sim:3")])
def test_a_module_of_all_devices_gives_the_bits_of_one(devices: tuple[str, ...]) -> None:
    plan = shard(weft.parse(MODEL), MESH, {"x": Sharding.of("data", None),
                                           "w1": Sharding.of("model", None)})
    found = plan.compile(devices)(*arrays())
    np.testing.assert_array_equal(found, weft.compile(weft.parse(MODEL))(*arrays()))


def test_inner_tensors_and_outputs_are_cut_by_name() -> None:
    plan = shard(weft.parse(MODEL), MESH, {"h": Sharding.of("data", "model")},
                 outputs=[Sharding.of(None, "data")])
    assert plan.part.results == (Sharding.of(None, "data"),)
    np.testing.assert_array_equal(plan.compile()(*arrays()),
                                  weft.compile(weft.parse(MODEL))(*arrays()))


def test_a_training_step_is_cut_like_other_programs() -> None:
    """Data parallel: each device has the gradient of its rows, and an all-reduce adds them."""
    step = weft.value_and_grad(weft.parse("""
        def @main(%x: Tensor[(8, 4), float32], %w: Tensor[(6, 4), float32]) {
          let %y = nn.dense(%x, %w);
          sum(multiply(%y, %y))
        }"""), with_respect_to="w")
    plan = shard(step, Mesh({"data": 4}), {"x": Sharding.of("data", None)},
                 outputs=[None, Sharding.replicated(2)])
    assert plan.bytes_received == 2 * (6 * 4 + 1) * 4 * 3 / 4
    rng = np.random.default_rng(0)
    x, w = rng.integers(-2, 3, (8, 4)), rng.integers(-2, 3, (6, 4))
    value, gradient = plan.compile()(x.astype(np.float32), w.astype(np.float32))
    np.testing.assert_array_equal(value, ((x @ w.T) ** 2).sum())
    np.testing.assert_array_equal(gradient, 2 * (x @ w.T).T @ x)


def test_pictures_show_who_holds_what() -> None:
    text = io.StringIO()
    Console(file=text, width=60).print(
        visualize_sharding((16,), Sharding.of("model"), MESH))
    assert "0, 2" in text.getvalue()
    assert "1, 3" in text.getvalue()
    with pytest.raises(OptionError, match="two dimensions"):
        visualize_sharding((2, 2, 2), Sharding.replicated(3), MESH)


def test_wrong_names_sizes_and_devices_are_refused() -> None:
    model = weft.parse(MODEL)
    with pytest.raises(OptionError, match="no tensor 'z'"):
        shard(model, MESH, {"z": Sharding.of("data", None)})
    with pytest.raises(OptionError, match="do not divide dimension 0"):
        shard(model, Mesh({"data": 3}), {"x": Sharding.of("data", None)})
    with pytest.raises(OptionError, match="needs a size"):
        Mesh({"data": 0})
    with pytest.raises(OptionError, match="each of its places"):
        shard(model, MESH).compile(["sim:0"])
    with pytest.raises(PassError, match="operators on tensors only"):
        shard(weft.parse("""
            def @main(%c: Tensor[(), bool], %x: Tensor[(4,), float32]) {
              if (%c) { %x } else { negative(%x) }
            }"""), MESH)
