"""Gradients, optimisers and sessions of symbols: loss, gradients and updates are one graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft import te
from weft.compat.symbol import (
    SGD,
    Adam,
    Graph,
    Group,
    NodeEntry,
    Session,
    Symbol,
    Variable,
    factor_schedule,
    gradients,
    op,
    reset_attr,
    set_attr,
    to_module,
)
from weft.ir import OPS, OpPattern
from weft.support.errors import InvalidInputError, OptionError, PassError
from weft.transform import evaluate

RNG = np.random.default_rng(3)
IMAGE = (2, 3, 4, 4)

LAYERS: dict[str, Any] = {
    "dense": lambda x: op.dense(op.flatten(x), units=2),
    "conv2d": lambda x: op.conv2d(x, channels=2, kernel_size=(3, 3), padding=(1, 1)),
    "batch_norm": lambda x: op.batch_norm(x)[0],
    "global_avg_pool2d": op.global_avg_pool2d,
    "avg_pool2d": lambda x: op.avg_pool2d(x, pool_size=(2, 2), strides=(2, 2)),
    "dropout": op.dropout,
    "upsampling": lambda x: op.upsampling(x, scale=2),
    "prelu": op.prelu,
    "split": lambda x: op.concatenate(op.split(x, indices_or_sections=(1,), axis=1), x, axis=1),
    "take": lambda x: op.take(x, Variable("i", shape=(3,), dtype="int32"), axis=0),
    "erf": op.erf,
}


def value_of(symbol: Symbol, values: dict[str, np.ndarray]) -> Any:
    mod = to_module(symbol.entries)
    return evaluate(mod, [values[p.name] for p in mod["main"].params])


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_are_slopes(name: str):
    x = Variable("x", shape=IMAGE)
    y = LAYERS[name](x)
    loss = op.sum(y * y)
    variables = [v for v in loss.list_input_variables() if v.name != "i"]
    facts = Graph(loss).apply("InferShape")
    index = facts.index()
    shapes = {index.nodes[n].name: facts.attrs["shape"][index.node_row_ptr[n]]
              for n in index.input_nodes}
    values = {n: np.int32([1, 0, 1]) if n == "i" else RNG.uniform(0.5, 1.5, s).astype(np.float32)
              for n, s in shapes.items()}
    found = value_of(Group(gradients(loss, variables)), values)
    found = found if isinstance(found, tuple | list) else [found]
    for variable, gradient in zip(variables, found, strict=True):
        direction = RNG.normal(size=shapes[variable.name])
        moved = [(values[variable.name] + step * direction).astype(np.float32)
                 for step in (1e-2, -1e-2)]
        ends = [value_of(loss, {**values, variable.name: value}) for value in moved]
        slope = (float(ends[0]) - float(ends[1])) / 2e-2
        np.testing.assert_allclose((gradient * direction).sum(), slope, rtol=2e-2, atol=5e-2)


def test_entries_and_lists_are_taken_everywhere():
    x, w = Variable("x", shape=(2, 3)), Variable("w", shape=(2, 3))
    h = op.tanh(x * w)
    inner, = gradients([h], [NodeEntry(h.node)], grad_ys=[w])
    assert inner is not None
    values = {"x": RNG.normal(size=(2, 3)).astype(np.float32),
              "w": RNG.normal(size=(2, 3)).astype(np.float32)}
    np.testing.assert_array_equal(value_of(Group([inner]), values), values["w"])
    total = op.elemwise_sum([x, w], h.entries[0], num_args=3)
    same = gradients(Group([total]), [[x], w.entries])
    assert len(same) == 2
    dx, dw = value_of(Group(same), values)
    slopes = 1 - np.tanh(values["x"] * values["w"]) ** 2
    np.testing.assert_allclose(dx, 1 + slopes * values["w"], rtol=1e-5)
    np.testing.assert_allclose(dw, 1 + slopes * values["x"], rtol=1e-5)
    with pytest.raises(OptionError, match="not a symbol"):
        gradients(total, [1.0])  # type: ignore[list-item]
    with pytest.raises(OptionError, match="does not fit"):
        gradients(total, x, grad_ys=[x, w])


def test_options_have_the_names_of_nnvm():
    x, other = Variable("x", shape=(3,)), Variable("other", shape=(3,))
    y = op.exp(x) * x
    made, = gradients(y, x, aggregate_fun=lambda parts: op.elemwise_sum(*parts, name="together"))
    assert made.node.name == "together"
    mirrored, = gradients(y, x, mirror_fun=lambda node: node.op is not None
                          and node.op.name == "exp")
    assert "_mirror" in mirrored.debug_str()
    value = RNG.normal(size=3).astype(np.float32)
    for one in (made, mirrored):
        got = weft.compile(to_module(one.entries))(value)
        np.testing.assert_allclose(got, np.exp(value) * (1 + value), rtol=1e-5)
    with pytest.raises(PassError, match="no path"):
        gradients(y, [x, other])
    assert gradients(y, other, zero_ops=["zeros_like"])[0].node.op.name == "zeros_like"
    hinted, = gradients(y, other, attr_hint_fun=op.elemwise_add)
    assert hinted.node.op.name == "elemwise_add"
    both = gradients(x + other, [x, other], copy_op="copy")
    assert [g.node.op.name for g in both] == ["_backward___add_symbol__"] * 2
    twice = gradients(x + other, [x, x], copy_op="copy")
    assert twice[1].node.op.name == "copy"


def test_gradients_are_kept_in_files():
    x = Variable("x", shape=(2, 3))
    net = Group(gradients(op.sum(op.split(x, indices_or_sections=(1,), axis=1)[1]), x))
    again = Graph.from_json(Graph(net).json()).symbol
    value = {"x": np.zeros((2, 3), np.float32)}
    np.testing.assert_array_equal(value_of(again, value), [[0, 1, 1]] * 2)


def classes() -> tuple[Symbol, list[Symbol], dict[str, np.ndarray], dict[str, np.ndarray]]:
    """A softmax regression: loss, variables, their values, and a batch."""
    x, y = Variable("x"), Variable("y")
    weight, bias = Variable("weight", shape=(4, 3)), Variable("bias", shape=(3,))
    logits = op.broadcast_add(op.matmul(x, weight), bias)
    loss = -op.mean(op.sum(op.log_softmax(logits) * y, axis=(1,)))
    rng = np.random.default_rng(0)
    data = rng.normal(size=(32, 4)).astype(np.float32)
    labels = np.eye(3, dtype=np.float32)[(data[:, 0] > 0) * 1 + (data[:, 1] > 0)]
    values = {"weight": np.zeros((4, 3), np.float32), "bias": np.zeros(3, np.float32)}
    return loss, [weight, bias], values, {"x": data, "y": labels}


def by_hand(values: dict[str, np.ndarray], batch: dict[str, np.ndarray], steps: int
            ) -> list[float]:
    """The losses of gradient descent with a rate of 0.5."""
    w, b = (values[n].astype(np.float64) for n in ("weight", "bias"))
    x, y = batch["x"], batch["y"]
    losses = []
    for _ in range(steps):
        logits = x @ w + b
        p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        losses.append(-np.log((p * y).sum(1)).mean())
        w, b = w - 0.5 * x.T @ (p - y) / 32, b - 0.5 * (p - y).sum(0) / 32
    return losses


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_a_session_trains(target: str):
    loss, (weight, bias), values, batch = classes()
    d_weight, d_bias = gradients(loss, [weight, bias])
    train = Group([op._assign(weight, weight - 0.5 * d_weight),
                   op._assign(bias, bias - 0.5 * d_bias)])
    with weft.config(cuda="emulate"):
        session = Session(values, target=target)
        found = [float(session.run([loss, train], batch)[0]) for _ in range(4)]
        found.append(float(session.run(loss, batch)))
    np.testing.assert_allclose(found, by_hand(values, batch, 5), rtol=1e-4)
    assert not np.shares_memory(session.variables["bias"], values["bias"])


def test_updates_compile_with_a_state():
    loss, variables, values, batch = classes()
    step = Group([loss, SGD(0.5).minimize(loss, variables)])
    mod = weft.compile(step, state=step.states(), inputs={"x": (32, 4), "y": (32, 3)})
    found = [float(mod(**batch)[0]) for _ in range(3)]
    np.testing.assert_allclose(found, by_hand(values, batch, 3), rtol=1e-4)


def test_adam_counts_its_steps():
    loss, variables, values, batch = classes()
    train = Adam(factor_schedule(0.1, 2, 0.5), epsilon=1e-8).minimize(loss, variables)
    session = Session(values)
    for _ in range(3):
        session.run([train], batch)
    assert float(session.variables["adam_t"]) == 3
    # The first step is the rate in the direction of the sign; later ones are close to it here.
    moved = np.abs(session.variables["bias"])
    assert 0.15 < moved.max() < 0.26


def test_a_decayed_and_clipped_step():
    w = Variable("w", shape=(2,))
    train = SGD(0.1, wd=0.5, clip_gradient=1.0, rescale_grad=2.0).minimize(op.sum(w * w), w)
    session = Session({"w": np.float32([4, 0.1])})
    np.testing.assert_allclose(session.run(train), [4 - 0.1 * (1 + 2), 0.1 - 0.1 * (0.4 + 0.05)],
                               rtol=1e-6)
    with pytest.raises(InvalidInputError, match="'v' has no value"):
        session.run(op.exp(Variable("v")))


@pytest.fixture
def slots():
    """Remove the slots and operators that a test sets."""
    before, found = set(OPS), []

    def put(name: str, key: str, value: object) -> None:
        found.append((name, key))
        set_attr(name, key, value, plevel=20)

    yield put
    for name, key in found:
        reset_attr(name, key)
    for name in set(OPS) - before:
        OPS.remove(name)


def cube(x: te.Tensor, attrs: object) -> te.Tensor:
    del attrs
    return te.compute(x.shape, lambda *i: x[i] * x[i] * x[i])


def test_slots_decide_how_a_node_is_compiled(slots: Any):
    x = Variable("x", shape=(4, 8))
    value = np.full((4, 8), 2, np.float32)
    scheduled = []
    slots("relu", "FTVMCompute", cube)
    slots("relu", "FTVMSchedule", lambda ctx: scheduled.append(ctx.target.kind))
    y = op.relu(x)
    mod = weft.compile(Group([y, gradients(op.sum(y), x)]))
    assert [a[0, 0] for a in mod(value)] == [8, 1]  # the gradient stays that of relu
    assert set(scheduled) == {"cpu"}
    slots("relu", "FGradient", lambda node, dys: [dys[0] * 3.0 * node.get_children()[0]])
    assert weft.compile(gradients(op.sum(op.relu(x)), x)[0])(value)[0, 0] == 6
    slots("tanh", "FGradient", lambda node, dys: [*dys, *dys])
    with pytest.raises(PassError, match="for each input"):
        gradients(op.tanh(x), x)
    slots("dense", "FTVMSchedule", lambda ctx: None)
    with pytest.raises(OptionError, match="several operators"):
        weft.compile(op.dense(x, units=2))


def test_patterns_decide_fusion(slots: Any):
    x = Variable("x", shape=(4, 8))
    net = op.exp(op.relu(x + 1.0))
    assert len(weft.compile(net).manifest.steps) == 1
    slots("relu", "TOpPattern", OpPattern.OPAQUE)
    assert len(weft.compile(net).manifest.steps) == 3
    slots("exp", "TOpPattern", OpPattern.INJECTIVE)
    assert weft.compile(net).manifest.steps[-1].op == "symbol.exp.injective"


def test_slots_of_names_dtypes_and_unread_inputs(slots: Any):
    slots("tanh", "FListInputNames", lambda attrs: ("angle",))
    assert op.tanh(name="t").list_input_names() == ["t_angle"]
    slots("cast", "FInferType", lambda attrs, ins, outs: (["float16"], [attrs.dtype]))
    graph = Graph(op.cast(Variable("x", shape=(2,)), dtype="int32")).apply("InferType")
    assert graph.attrs["dtype"] == ["float16", "int32"]
    x = Variable("x", shape=(2,), dtype="float32")
    h = op.exp(op.exp(x))
    net = op.reshape_like(op.exp(h), h)
    plan = ("InferShape", "InferType", "PlanMemory")
    before = Graph(net).apply(*plan).attrs["storage_allocated_bytes"]
    slots("reshape_like", "FIgnoreInputs", lambda attrs: (1,))
    assert Graph(net).apply(*plan).attrs["storage_allocated_bytes"] < before
