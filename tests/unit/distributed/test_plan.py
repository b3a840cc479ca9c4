"""``weft.distributed.shard``: names, tables, and modules that run all devices of a mesh."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
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


def test_weights_of_a_file_are_cut_by_their_names(tmp_path: Path) -> None:
    """Also where an import would fold them: MatMul transposes its matrix."""
    weight = arrays()[1].T.copy()
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
              for name, shape in (("x", (8, 16)), ("y", (8, 32)))]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "fc.weight"], ["y"])], "g",
                              values[:1], values[1:],
                              [numpy_helper.from_array(weight, "fc.weight")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]),
              tmp_path / "net.onnx")
    plan = shard(tmp_path / "net.onnx", MESH, {"fc.weight": Sharding.of("model", None)})
    assert plan.weight_bytes == weight.nbytes // 2
    module = plan.compile()
    module.export(tmp_path / "net.weft")
    for run in (module, weft.load(tmp_path / "net.weft")):
        np.testing.assert_array_equal(run(arrays()[0]), arrays()[0] @ weight)


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


def test_a_profile_of_all_devices_has_the_bytes_of_each_collective() -> None:
    plan = shard(weft.parse(MODEL), MESH, {"x": Sharding.of("data", None),
                                           "w1": Sharding.of("model", None)})
    profile = plan.compile().profile(*arrays(), repeat=1)
    assert [(e.collective, e.axes) for e in profile.exchanges] == [("all_reduce", ("model",))]
    assert sum(e.nbytes for e in profile.exchanges) == plan.bytes_received
    assert "each device receives 256 bytes" in profile.table()
    alone = weft.compile(weft.parse(MODEL)).profile(*arrays(), repeat=1)
    assert "each device" not in alone.table()


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
    with pytest.raises(OptionError, match=r"do not divide dimension 0(.|\n)*tensor 'x'"):
        shard(model, Mesh({"data": 3}), {"x": Sharding.of("data", None)})
    with pytest.raises(OptionError, match="needs a size"):
        Mesh({"data": 0})
    with pytest.raises(OptionError, match="each of its places"):
        shard(model, MESH).compile(["sim:0"])
    with pytest.raises(PassError, match="with references"):
        shard(weft.parse("def @main(%x: Tensor[(4,), float32]) { ref_read(ref(%x)) }"), MESH)
    with pytest.raises(PassError, match="branches and loops on tensors only"):
        shard(weft.parse("""
            def @main(%f: fn(Tensor[(4,), float32]) -> Tensor[(4,), float32],
                      %x: Tensor[(4,), float32]) { %f(%x) }"""), MESH)
