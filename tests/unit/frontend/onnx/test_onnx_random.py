"""Random operators and dropout of ONNX models: keys, seeds, and the shape of distributions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import weft
from weft.support.errors import InvalidInputError, UnsupportedModelError

KEY = np.array([3, 4], np.uint32)


def built(nodes: list[Any], shape: tuple[Any, ...] = (400, 50), **constants: Any) -> Any:
    """A model from ``x`` to ``y``."""
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def dropout(**attrs: Any) -> Any:
    return built([helper.make_node("Dropout", ["x", "r", "t"], ["y"], **attrs)],
                 r=np.float32(0.25), t=True)


def test_dropout_takes_a_key() -> None:
    mod = weft.compile(dropout())
    assert [p.name for p in mod.inputs] == ["x", "key"]
    x = np.ones((400, 50), np.float32)
    y = mod(x, KEY)
    assert set(np.unique(y)) == {np.float32(0), np.float32(4 / 3)}
    assert abs((y == 0).mean() - 0.25) < 0.02
    np.testing.assert_array_equal(y, mod(x, KEY))
    assert (y != mod(x, KEY + 1)).any()
    with pytest.raises(InvalidInputError, match="key"):
        mod.run(None, {"x": x})


def test_a_seed_needs_no_key() -> None:
    mod, other = weft.compile(dropout(seed=3)), weft.compile(dropout(seed=-4))
    x = np.ones((400, 50), np.float32)
    np.testing.assert_array_equal(mod(x), mod(x))
    assert (mod(x) != other(x)).any()


def test_two_operators_draw_different_numbers() -> None:
    model = built([helper.make_node("RandomNormalLike", ["x"], ["a"], mean=1.0, scale=2.0),
                   helper.make_node("RandomNormalLike", ["x"], ["b"]),
                   helper.make_node("Sub", ["a", "b"], ["y"])], ("n", 50))
    y = weft.compile(model)(np.zeros((400, 50), np.float32), KEY)
    assert abs(y.mean() - 1) < 0.1
    assert abs(y.var() - 5) < 0.2


def test_distributions() -> None:
    uniform = built([helper.make_node("RandomUniform", [], ["a"], shape=[400, 50], low=2.0,
                                      high=4.0),
                     helper.make_node("Add", ["x", "a"], ["y"])])
    y = weft.compile(uniform)(np.zeros((400, 50), np.float32), KEY)
    assert 2 <= y.min() < 2.1 < 3.9 < y.max() < 4
    share = built([helper.make_node("Bernoulli", ["x"], ["y"])])
    y = weft.compile(share)(np.full((400, 50), 0.3, np.float32), KEY)
    assert set(np.unique(y)) == {0, 1}
    assert abs(y.mean() - 0.3) < 0.02
    drawn = built([helper.make_node("Multinomial", ["x"], ["m"], sample_size=50),
                   helper.make_node("Cast", ["m"], ["y"], to=TensorProto.FLOAT)], (400, 50))
    logs = np.log(np.eye(50, dtype=np.float32)[7] + 1e-30) * np.ones((400, 1), np.float32)
    assert (weft.compile(drawn)(logs, KEY) == 7).all()


def test_a_key_in_a_loop_is_refused() -> None:
    bodies = {}
    for name, op in (("then_branch", "RandomNormalLike"), ("else_branch", "Identity")):
        out = helper.make_tensor_value_info(name, TensorProto.FLOAT, (400, 50))
        bodies[name] = helper.make_graph([helper.make_node(op, ["x"], [name])], name, [], [out])
    nodes = [helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
             helper.make_node("Cast", ["s"], ["c"], to=TensorProto.BOOL),
             helper.make_node("If", ["c"], ["y"], **bodies)]
    with pytest.raises(UnsupportedModelError, match="random numbers"):
        weft.compile(built(nodes))


def test_dropout_whose_mode_is_computed_is_refused() -> None:
    nodes = [helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
             helper.make_node("Cast", ["s"], ["t"], to=TensorProto.BOOL),
             helper.make_node("Dropout", ["x", "r", "t"], ["y"])]
    with pytest.raises(UnsupportedModelError, match="training_mode"):
        weft.compile(built(nodes, r=np.float32(0.25)))
