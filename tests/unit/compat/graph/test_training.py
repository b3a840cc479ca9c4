"""Training of graphs: gradients, optimisers, and variables of sessions on every device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.compat.graphdef import GraphDef, NodeDef, from_graphdef
from weft.graph import (
    AdagradOptimizer,
    AdamOptimizer,
    FunctionRef,
    GradientDescentOptimizer,
    Graph,
    MomentumOptimizer,
    Optimizer,
    Session,
    Tensor,
)
from weft.support.errors import InvalidModelError, OptionError, RegistryError
from weft.transform import evaluate

X = np.float32([1.1, 0.9])


def values_of(g: Graph, outputs: list[Any], *args: np.ndarray) -> Any:
    return evaluate(g.to_module(outputs), list(args))


def defined(g: Graph, name: str, body: Callable[..., list[Tensor]], *args: Any) -> FunctionRef:
    """A function of the library; ``args`` are shapes, or ``()`` of int32 for ``"i"``."""
    inner = Graph()
    inputs = [inner.placeholder((), "int32", name=f"a{i}") if shape == "i"
              else inner.placeholder(shape, name=f"a{i}") for i, shape in enumerate(args)]
    return g.define_function(name, inner, inputs, body(*inputs))


def test_gradients_are_tensors_of_the_graph():
    g = Graph()
    x, unused = g.placeholder((2,), name="x"), g.placeholder((2,), name="unused")
    h = g.op.exp(x, name="h")
    y = g.op.multiply(h, x, name="y")
    with g.name_scope("back"):
        dx, dh, none = g.gradients([y], [x, h, unused])
    assert (dx.name, dh.name, none) == ("back/gradients:0", "back/gradients:1", None)
    twice, = g.gradients(dx, x, grad_ys=[g.constant(np.float32([1, 10]))])
    found = values_of(g, [dx, dh, twice], X)
    expected = [np.exp(X) * (1 + X), X, np.exp(X) * (2 + X) * [1, 10]]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
    assert g.gradients(unused, x) == [None]
    with pytest.raises(OptionError, match="does not fit"):
        g.gradients([y], [x], grad_ys=[None, None])
    with pytest.raises(InvalidModelError, match="not a tensor of this graph"):
        g.gradients(y, Graph().placeholder((2,)))
    with pytest.raises(InvalidModelError, match="floating-point"):
        g.gradients(g.constant(1), x)


def test_gradients_of_operators_of_tensorflow_see_known_shapes():
    g = Graph()
    x = g.placeholder((2, 3), name="x")
    flat = g.call("Reshape", x, np.int32([3, 2]))
    y = g.call("Sum", g.call("Square", flat), np.int32(0))
    dx, = g.gradients([y], [x])
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(values_of(g, [dx], value), 2 * value)


def test_gradients_go_through_loops_branches_and_functions():
    g = Graph()
    cond = defined(g, "cond", lambda i, _: [i < 3], "i", (2,))
    body = defined(g, "body", lambda i, a: [i + 1, a * a], "i", (2,))
    square = defined(g, "square", lambda a: [a * a], (2,))
    negate = defined(g, "negate", lambda a: [-a], (2,))
    v, p = g.placeholder((2,), name="v"), g.placeholder((), "bool", name="p")
    _, looped = g.call("While", g.constant(0), v, cond=cond, body=body, name="loop")
    chosen = g.call("If", p, looped, then_branch=square, else_branch=negate)
    dv, = g.gradients([chosen], [v])
    for flag, expected in ((True, 16 * X ** 15), (False, -8 * X ** 7)):
        np.testing.assert_allclose(values_of(g, [dv], X, np.array(flag)), expected, rtol=1e-5)
    again, = g.gradients(g.gradients(looped, [v]), [v])
    mod = weft.compile(g, outputs=[again.name])
    np.testing.assert_allclose(mod(X), 56 * X ** 6, rtol=1e-4)


def test_gradients_of_users_are_taken():
    g = Graph()
    tripled = defined(g, "tripled", lambda a, dy: [a * dy * 3.0], (2,), (2,))
    inner = Graph()
    a = inner.placeholder((2,), name="a")
    double = g.define_function("double", inner, [a], [a + a], gradient=tripled.name)
    v = g.placeholder((2,), name="v")
    dv, = g.gradients(g.call(double.name, v), v)
    np.testing.assert_allclose(values_of(g, [dv], X), 3 * X, rtol=1e-6)


def test_a_gradient_takes_that_of_each_result():
    g = Graph()
    square = defined(g, "square", lambda a: [a * a], (2,))
    x = g.placeholder((2,), name="x")
    with pytest.raises(InvalidModelError, match="takes that of each result"):
        g.call("SymbolicGradient", x, f=square)
    node = NodeDef("d", "SymbolicGradient", ("x", "x"), attrs={"f": square})
    whole = g.as_graph_def()
    mod = from_graphdef(GraphDef((*whole.nodes, node), whole.versions, whole.library))
    np.testing.assert_allclose(evaluate(mod, [X]), 2 * X * X, rtol=1e-6)


def regression() -> tuple[Graph, Tensor, dict[str, np.ndarray]]:
    g = Graph()
    x, y = g.placeholder((4, 3), name="x"), g.placeholder((4, 2), name="y")
    w = g.variable(np.full((2, 3), 0.5, np.float32), name="w")
    error = g.op.nn.dense(x, w) + g.variable(np.zeros(2, np.float32), name="b") - y
    rng = np.random.default_rng(0)
    batch = {"x": rng.normal(size=(4, 3)).astype(np.float32),
             "y": rng.normal(size=(4, 2)).astype(np.float32)}
    return g, g.op.mean(error * error, name="loss"), batch


def way(kind: str, g: np.ndarray, s: dict[str, np.ndarray], step: int) -> np.ndarray:
    """The direction of a step in NumPy; ``s`` holds the slots."""
    if kind in ("momentum", "nesterov"):
        s["m"] = 0.9 * s["m"] + g
        return g + 0.9 * s["m"] if kind == "nesterov" else s["m"]
    if kind == "adagrad":
        s["v"] = s["v"] + g * g
        return g / np.sqrt(0.1 + s["v"])
    if kind == "adam":
        s["m"], s["v"] = 0.9 * s["m"] + 0.1 * g, 0.999 * s["v"] + 0.001 * g * g
        rate = np.sqrt(1 - 0.999 ** step) / (1 - 0.9 ** step)
        return rate * s["m"] / (np.sqrt(s["v"]) + 1e-8)
    return g


def by_hand(batch: dict[str, np.ndarray], steps: int, kind: str) -> list[float]:
    """The losses of the optimisers below, in NumPy."""
    w, b = np.full((2, 3), 0.5), np.zeros(2)
    slots = [{"m": np.zeros_like(p), "v": np.zeros_like(p)} for p in (w, b)]
    losses = []
    for step in range(1, steps + 1):
        error = batch["x"] @ w.T + b - batch["y"]
        losses.append(float((error ** 2).mean()))
        grads = error.T @ batch["x"] / 4, error.sum(0) / 4
        w, b = (p - 0.1 * way(kind, g, s, step) for p, g, s in zip((w, b), grads, slots,
                                                                   strict=True))
    return losses


OPTIMIZERS: dict[str, Optimizer] = {
    "gradient": GradientDescentOptimizer(0.1), "momentum": MomentumOptimizer(0.1, 0.9),
    "nesterov": MomentumOptimizer(0.1, 0.9, use_nesterov=True),
    "adagrad": AdagradOptimizer(0.1), "adam": AdamOptimizer(0.1)}


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_optimisers_are_nodes(kind: str):
    g, loss, batch = regression()
    count = g.variable(0, name="count")
    step = OPTIMIZERS[kind].minimize(loss, count)
    mod = g.to_module([loss, step])
    inputs = [p.name for p in mod["main"].params]
    state = {**g.initial_values(), **batch}
    found = []
    for _ in range(3):
        values = evaluate(mod, [state[name] for name in inputs])
        outputs = dict(zip(mod.attrs["output_names"], values, strict=True))
        found.append(float(outputs["loss:0"]))
        state |= {variable: outputs[name] for name, variable in mod.attrs["state"].items()}
    np.testing.assert_allclose(found, by_hand(batch, 3, kind), rtol=1e-4)
    assert state["count"] == 3


def test_an_optimiser_needs_variables():
    g = Graph()
    loss = g.op.sum(g.placeholder((2,), name="x"))
    g.variable(np.zeros(2, np.float32), name="unused")
    with pytest.raises(InvalidModelError, match="no variable has a gradient"):
        AdamOptimizer().minimize(loss)


DEVICES: dict[str, dict[str, Any]] = {
    "cpu": {}, "cuda": {"target": "cuda"}, "sim": {"devices": ["sim:0", "sim:1"]}}


@pytest.mark.parametrize("device", DEVICES)
def test_a_session_trains_on_every_device(device: str):
    g, loss, batch = regression()
    train = GradientDescentOptimizer(0.1).minimize(loss)
    with weft.config(cuda="emulate"):
        session = Session(g, **DEVICES[device])
        before = session.run([loss, "w"], batch)
        losses = [float(session.run([loss, train], batch)[0]) for _ in range(2)]
        after = session.run(loss, batch)
        expected = by_hand(batch, 3, "gradient")
        np.testing.assert_allclose([*losses, after], expected, rtol=1e-4)
        np.testing.assert_allclose(before[0], expected[0], rtol=1e-5)
        assert before[1].tolist() == np.full((2, 3), 0.5).tolist()
        assert not np.array_equal(session.variables["w"], before[1])
        for name, value in g.initial_values().items():
            session.set_variable(name, value)
        np.testing.assert_allclose(session.run([loss, train], batch)[0], expected[0], rtol=1e-5)


def test_variables_stay_variables():
    g, loss, batch = regression()
    mod = g.to_module([loss])
    assert mod.attrs["read_only"] == ("w", "b")
    assert [p.name for p in mod["main"].params] == ["x", "y", "w", "b"]
    compiled = weft.compile(g, outputs=["loss"])
    assert [spec.name for spec in compiled.inputs] == ["x", "y"]
    np.testing.assert_allclose(compiled(**batch), by_hand(batch, 1, "gradient")[0], rtol=1e-5)
    session = Session(g)
    assert session.run("w").shape == (2, 3)
    session.set_variable("w", 0)
    np.testing.assert_allclose(session.run(loss, batch), (batch["y"] ** 2).mean(), rtol=1e-5)


def test_reads_and_writes_follow_control_edges():
    g = Graph()
    v = g.variable(np.float32(1), name="v")
    before = g.op.add(v, 0.0, name="before")
    with g.control_dependencies([before]):
        write = g.assign_add(v, 10.0)
    with g.control_dependencies([write]):
        after = g.op.add(v, 0.0, name="after")
    mod = g.to_module([before, after])
    assert [float(r) for r in evaluate(mod, [np.float32(1)])] == [1, 11, 11]


def test_names_of_operators_can_be_asked_for():
    g = Graph()
    assert hasattr(g.op, "add")
    assert hasattr(g.op.nn, "dense")
    assert not hasattr(g.op, "no_such_operator")
    assert getattr(g.op, "tahn", None) is None
    with pytest.raises(RegistryError, match="unknown operator 'tahn'"):
        _ = g.op.tahn
