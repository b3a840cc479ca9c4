"""Graphs built in Python: names, scopes, edges, types, and the programs they become."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import weft
from weft.graph import Graph, default_graph
from weft.ir.virtual_device import VirtualDevice
from weft.ir.visitor import post_order
from weft.support.errors import (
    AttrsError,
    InvalidInputError,
    InvalidModelError,
    RegistryError,
    TargetError,
    TypeInferenceError,
    UnsupportedModelError,
)

X = np.arange(-3, 3, dtype=np.float32).reshape(2, 3)


def small() -> Graph:
    g = Graph()
    x = g.placeholder((2, 3), name="x")
    with g.name_scope("layer"):
        h = g.op.nn.relu(x + 1, name="act")
    g.op.tanh(h, name="y")
    return g


def test_a_graph_compiles_and_runs_in_part():
    mod = weft.compile(small())
    assert [s.name for s in mod.inputs] == ["x"]
    assert [s.name for s in mod.outputs] == ["y"]
    np.testing.assert_allclose(mod(X), np.tanh(np.maximum(X + 1, 0)), rtol=1e-6)
    for name in ("layer/act", "layer/act:0"):
        np.testing.assert_array_equal(mod.run([name], {"x": X})[0], np.maximum(X + 1, 0))
    np.testing.assert_allclose(mod.run(None, {"layer/act": X})[0], np.tanh(X), rtol=1e-6)


def test_outputs_and_inputs_cut_the_graph():
    g = small()
    mod = weft.compile(g, outputs=["layer/add", "y:0"], inputs={"x": (4, 3)})
    assert [s.shape for s in mod.outputs] == [(4, 3), (4, 3)]
    part = weft.compile(g, inputs={"layer/act": (5,)})
    assert [(s.name, s.shape) for s in part.inputs] == [("layer/act", (5,))]
    assert weft.compile(g, inputs={"x": ("n", 3)})(X[:1]).shape == (1, 3)


def test_names_are_unique_in_scopes():
    g = Graph()
    with g.name_scope("a") as first:
        x = g.placeholder((1,), name="x")
        with g.name_scope("b"):
            y = g.op.tanh(x)
    with g.name_scope("a") as second:
        z = g.op.tanh(y)
        with g.name_scope(None):
            top = g.op.tanh(z)
    with g.name_scope(first):
        again = g.op.tanh(z, name="x")
    assert (first, second) == ("a/", "a_1/")
    assert [t.name for t in (x, y, z, top, again)] == \
        ["a/x:0", "a/b/tanh:0", "a_1/tanh:0", "tanh:0", "a/x_1:0"]


def test_control_dependencies_become_barriers():
    g = Graph()
    x = g.placeholder((3,), name="x")
    first = g.op.exp(x)
    with g.control_dependencies([first]):
        second = g.op.tanh(x)
        constant = g.constant(2.0)
        with g.control_dependencies(None):
            free = g.op.sin(x)
    assert second.node.control_inputs == (first.node,)
    assert free.node.control_inputs == ()
    barriers = [n for n in post_order(g.to_module([second, constant, free])["main"])
                if getattr(getattr(n, "op", None), "name", "") == "annotation.barrier"]
    assert len(barriers) == 2
    group = g.group(first, free)
    with g.control_dependencies([group]):
        last = g.op.cos(x)
    barrier = g.to_module([last])["main"].body.args[0]
    assert len(barrier.args[1].fields) == 2


def regions(g: Graph, *outputs) -> list[tuple[str, str, bool]]:
    nodes = post_order(g.to_module(outputs)["main"])
    return [(n.attrs.device, n.attrs.colocate, n.attrs.constrain_body) for n in nodes
            if getattr(getattr(n, "op", None), "name", "") == "annotation.on_device"]


def test_devices_annotate_the_borders_of_regions():
    g = Graph()
    x = g.placeholder((3,), name="x")
    a = g.op.exp(x)
    with g.device("sim:1"):
        b = g.op.tanh(g.op.sin(a))
        with g.device(":2"):
            c = g.op.cos(b)
    assert [t.node.device for t in (a, b, c)] == ["", "sim:1", "sim:2"]
    assert regions(g, c) == [("", "", False), ("sim:1", "", True), ("sim:2", "", True)]
    with g.device(lambda node: "/device:GPU:0" if node.op == "tanh" else None):
        d, e = g.op.tanh(x), g.op.exp(x)
    assert (d.node.device, e.node.device) == (str(VirtualDevice.parse("/device:GPU:0")), "")
    with g.device("sim:1"), g.device(None):
        assert g.op.exp(x).node.device == ""


def test_colocation_groups_have_one_name():
    g = Graph()
    x = g.placeholder((3,), name="x")
    a, b = g.op.exp(x), g.op.sin(x)
    with g.colocate_with(a):
        c = g.op.tanh(b)
        with g.colocate_with(b):
            d = g.op.cos(x)
    assert d.node.colocated_with == ("exp", "sin")
    groups = {group for _, group, _ in regions(g, c, d, a, b)}
    assert len(groups) == 1
    assert groups != {""}


def test_contexts_belong_to_one_thread():
    g = Graph()
    names = []
    with g.name_scope("main"), g.device("sim:1"):
        def build():
            names.append(g.placeholder((1,), name="x").node)
        thread = threading.Thread(target=build)
        thread.start()
        thread.join()
    assert (names[0].name, names[0].device) == ("x", "")


def test_default_graph():
    g = Graph()
    with g.as_default():
        assert default_graph() is g
    with pytest.raises(InvalidModelError, match="no default graph"):
        default_graph()


def test_types_values_and_operands():
    g = Graph()
    x = g.placeholder(("n", 4), "float16", name="x")
    parts = g.op.split(x, indices_or_sections=2, axis=1)
    joined = g.op.concatenate([parts[1], parts[0]], axis=0)
    assert str(joined.type) == "Tensor[(2*n, 2), float16]"
    assert (x * 2).dtype.name == "float16"
    shape = g.op.shape_of(g.constant(np.zeros((5, 6), np.float32)))
    assert (shape + 1).value.tolist() == [6, 7]
    with g.control_dependencies([shape]):
        pass
    y = g.call("annotation.barrier", x, [parts[0], shape])
    assert y.node.attrs["_operands"] == (-1, 2)
    assert parts[0].consumers == (joined.node, y.node)


def line_of(error) -> str:
    return str(error.value.where)


def test_errors_name_the_line_and_leave_the_graph_as_it_was():
    g = small()
    x = g.tensor("x")
    before = [n.name for n in g.nodes], g.num_edges
    with pytest.raises(TypeInferenceError, match="do not broadcast") as error:
        g.op.add(x, np.ones(7, np.float32))
    assert "test_building.py" in line_of(error)
    with pytest.raises(AttrsError, match="no attribute"):
        g.op.split(x, sections=2)
    with pytest.raises(AttrsError, match="takes 2 arguments"):
        g.op.add(x)
    with pytest.raises(UnsupportedModelError, match=r"unknown operator 'nn\.rellu'"):
        g.call("nn.rellu", x)
    with pytest.raises(RegistryError, match=r"did you mean 'nn\.relu'"):
        g.op.nn.rellu(x)
    with pytest.raises(InvalidModelError, match="invalid node name"):
        g.op.tanh(x, name="a b")
    with pytest.raises(InvalidModelError, match="not part of this graph"):
        g.op.add(x, Graph().placeholder((2, 3)))
    with pytest.raises(TargetError), g.device("/job:worker/cpu:0"):
        pass
    assert ([n.name for n in g.nodes], g.num_edges) == before
    assert g.op.tanh(x).name == "tanh:0"


def test_errors_of_feeds_and_fetches():
    g = small()
    for outputs, inputs, match in (
        ([], None, "nothing to run"), (["yy"], None, "no tensor 'yy'"),
        (["y", "y"], None, "fetched more than once"), (["y:1"], None, "no tensor 'y:1'"),
        (["y"], {"y": None}, "both fed and fetched"), (["y"], {"z": None}, "no tensor 'z'"),
        (["y"], {"x": None, "x:0": None}, "fed more than once"),
    ):
        with pytest.raises((InvalidInputError, InvalidModelError), match=match):
            g.to_module(outputs, inputs)
