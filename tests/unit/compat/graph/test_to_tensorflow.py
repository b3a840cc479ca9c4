"""Graphs of weft's operators as graphs of TensorFlow's: equal names, types and values."""

from __future__ import annotations

import numpy as np
import pytest

from weft.compat.graph import Graph, import_graph, to_tensorflow
from weft.compat.graphdef import graph_def_bytes, parse_graph_def
from weft.support.errors import UnsupportedModelError
from weft.transform.analysis.reference import evaluate

RNG = np.random.default_rng(3)


def f(*shape):
    return RNG.uniform(0.5, 2, shape).astype(np.float32)


CASES = {
    "add": ([f(2, 3), f(3)], {}), "power": ([f(2, 3), f(2, 3)], {}), "erf": ([f(4)], {}),
    "less": ([f(3), f(3)], {}), "nn.relu": ([f(3) - 1], {}),
    "nn.matmul": ([f(3, 2), f(3, 4)], {"transpose_a": True}),
    "nn.dense": ([f(2, 3), f(4, 3)], {}), "nn.softmax": ([f(2, 3)], {"axis": -1}),
    "nn.log_softmax": ([f(2, 3)], {"axis": 1}), "nn.bias_add": ([f(2, 3, 4, 4), f(3)], {}),
    "clip": ([f(4)], {"a_min": 0.7, "a_max": 1.2}), "sum": ([f(2, 3, 4)], {"axis": (0, 2)}),
    "mean": ([f(2, 3, 4)], {"axis": 1, "exclude": True, "keepdims": True}),
    "max": ([f(2, 3)], {}), "argmax": ([f(2, 3)], {"axis": 1, "dtype": "int32"}),
    "reshape": ([f(2, 6)], {"newshape": (3, -1)}), "expand_dims": ([f(2)], {"axis": 0}),
    "squeeze": ([f(2, 1)], {"axis": 1}), "transpose": ([f(2, 3, 4)], {"axes": (1, 2, 0)}),
    "split": ([f(2, 6)], {"indices_or_sections": (1, 4), "axis": 1}),
    "strided_slice": ([f(4, 5, 6)], {"begin": (1, 5), "end": (3, 0), "strides": (1, -2),
                                     "axes": (0, 2)}),
    "nn.pad": ([f(2, 3), np.float32(7)], {"pad_width": ((1, 0), (0, 2))}),
    "nn.conv2d": ([f(1, 4, 6, 6), f(2, 2, 3, 3)], {"padding": (1, 1), "groups": 2}),
    "nn.max_pool2d": ([f(1, 2, 6, 6)], {"pool_size": (3, 3), "strides": (2, 2),
                                        "padding": (1, 1)}),
    "nn.avg_pool2d": ([f(1, 6, 6, 2)], {"pool_size": (2, 2), "strides": (2, 2),
                                        "layout": "NHWC"}),
    "nn.batch_norm": ([f(1, 3, 2, 2), f(3), f(3), f(3), f(3)], {}),
    "tile": ([f(2, 3)], {"reps": (2, 1)}), "broadcast_to": ([f(1, 3)], {"shape": (2, 3)}),
    "cast": ([f(3)], {"dtype": "int32"}), "nn.leaky_relu": ([f(3) - 1], {"alpha": 0.3}),
}


@pytest.mark.parametrize("op", CASES)
def test_values_stay(op):
    arrays, attrs = CASES[op]
    g = Graph()
    inputs = [g.placeholder(a.shape, name=f"x{i}") for i, a in enumerate(arrays)]
    g.call(op, *inputs, name="scope/y", **attrs)
    made = Graph()
    import_graph(parse_graph_def(graph_def_bytes(to_tensorflow(g).as_graph_def())), made)
    names = [f"scope/y:{i}" for i in range(len(g.find_node("scope/y").outputs))]
    wanted, got = (evaluate(graph.to_module(names), arrays) for graph in (g, made))
    for a, b in zip(*([x] if len(names) == 1 else x for x in (got, wanted)), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_names_devices_and_control_edges_stay():
    g = Graph()
    x = g.placeholder((2, 3), name="x")
    with g.name_scope("a"), g.device("sim:1"):
        y = g.op.sum(x, axis=1, name="y")
    with g.control_dependencies([y]):
        g.op.concatenate([x, x], axis=0, name="z")
    made = to_tensorflow(g)
    assert [(n.name, n.op, n.device) for n in made.op_nodes] == [
        ("x", "Placeholder", ""), ("a/y/axis", "Const", "sim:1"), ("a/y", "Sum", "sim:1"),
        ("z/axis", "Const", ""), ("z", "ConcatV2", "")]
    assert made.find_node("z").definition().inputs == ("x", "x", "z/axis", "^a/y")


def test_what_tensorflow_lacks_is_listed():
    g = Graph()
    x = g.placeholder((2, 3), name="x")
    for _ in range(2):
        g.op.special.airy_ai(x)
    g.op.nn.rms_norm(x, np.ones(3, np.float32))
    with pytest.raises(UnsupportedModelError, match="without a counterpart") as error:
        to_tensorflow(g)
    assert error.value.notes == ("operator special.airy_ai: 2 nodes (airy_ai, airy_ai_1)",
                                 "operator nn.rms_norm: 1 node (rms_norm)")
    g = Graph()
    g.op.nn.softmax(g.placeholder((2, 3), name="x"), axis=0)
    with pytest.raises(UnsupportedModelError, match="another axis than the last"):
        to_tensorflow(g)
