"""Counterparts of TensorFlow's ``subgraph_test``, case by case (names as there).

A fed tensor is an input of the module and a fetched one an output, so there are no ``_Recv``,
``_Send``, ``_Arg`` and ``_Retval`` nodes; the cases with and without the function convention are
the same here. Targets that are only run are ``^name``. Weights (``TestParams``) are placeholders.
"""

from __future__ import annotations

import pytest

from weft.graph import Graph, Tensor
from weft.ir.expr import Call
from weft.ir.visitor import post_order
from weft.support.errors import InvalidInputError, WeftError


def network() -> Graph:
    g = Graph()
    w1, w2 = (g.placeholder((), name=n) for n in ("W1", "W2"))
    inputs = g.call("split", g.placeholder((4,), name="feed"), indices_or_sections=2, name="input")
    t1 = g.op.multiply(w1, inputs[1], name="t1")
    t2 = g.op.multiply(w2, t1, name="t2")
    g.op.nn.relu(t2, name="t3_a")
    g.op.nn.relu(t2, name="t3_b")
    return g


def chain() -> Graph:
    g = Graph()
    x = g.placeholder((2,), name="a")
    for name in "bcdef":
        x = g.op.nn.relu(x, name=name)
    return g


def subgraph(g: Graph, fed: str, fetch: str, targets: str = ""):
    """Inputs, outputs and number of calls of the module."""
    outputs = [*fetch.split(), *(f"^{t}" for t in targets.split())]
    mod = g.to_module(outputs, fed.split() or None)
    calls = sum(isinstance(n, Call) for n in post_order(mod["main"]))
    return " ".join(mod.attrs["input_names"]), " ".join(mod.attrs["output_names"]), calls


def test_targets1():
    assert subgraph(network(), "", "t1") == ("W1 feed", "t1", 2)


def test_targets2():
    assert subgraph(network(), "", "t2 t3_a") == ("W1 W2 feed", "t2 t3_a", 4)


def test_targets_that_are_only_run():
    """A target without effect adds nothing to what is fetched."""
    assert subgraph(network(), "", "t1", "t2 t3_a") == ("W1 feed", "t1", 2)


def test_fed_outputs1():
    assert subgraph(network(), "input:1", "t2") == ("W1 W2 input:1", "t2", 2)


def test_fed_ref_node():
    assert subgraph(network(), "W1:0 feed", "t1") == ("W1:0 feed", "t1", 2)


def test_fed_outputs2():
    """What is fed and not needed stays an input, as callers pass it."""
    assert subgraph(network(), "input:1 t1 W2", "t2") == ("W2 input:1 t1", "t2", 1)


def test_fetch_outputs1():
    found = subgraph(network(), "", "W2 input:1 t1 t2", "t2")
    assert found == ("W1 W2 feed", "W2 input:1 t1 t2", 3)


def test_fetch_outputs2():
    assert subgraph(network(), "", "t3_a", "t2") == ("W1 W2 feed", "t3_a", 4)


def test_chain_of_fools():
    assert subgraph(chain(), "c:0", "b:0 e:0") == ("a c:0", "b:0 e:0", 3)


@pytest.mark.parametrize(("fed", "fetch", "targets", "match"), [
    ("c:0", "b:0 c:0", "", "both fed and fetched"), ("foo:0", "c:0", "", "no tensor 'foo:0'"),
    ("", "foo:0", "", "no tensor 'foo:0'"), ("", "", "foo", r"no tensor '\^foo'"),
    ("", "", "", "nothing to run"), ("", "b b", "", "fetched more than once"),
    ("c c:0", "d", "", "fed more than once"), ("", "", "d", "nothing to fetch"),
])
def test_errors(fed, fetch, targets, match):
    with pytest.raises(InvalidInputError, match=match):
        subgraph(chain(), fed, fetch, targets)


def test_fed_outputs_preserves_output_shapes():
    mod = network().to_module(["t2"], {"input:1": None})
    types = dict(zip(mod.attrs["input_names"], (str(p.checked_type) for p in mod["main"].params),
                     strict=True))
    assert types["input:1"] == "Tensor[(2,), float32]"


def test_feeding_cuts_what_cannot_be_lowered():
    """Nodes behind a fed tensor with a declared type are not lowered at all."""
    g = Graph()
    x = g.placeholder((2,), name="x")
    broken = g.call("Relu6", x, name="r", T=x.dtype)
    broken.node.op = "NoSuchOperator"
    y = g.op.tanh(Tensor(g.op.exp(x, name="e").node, 0), name="y")
    assert y.dtype == x.dtype
    g.update_edge(broken.node, 0, y.node, 0)
    with pytest.raises(WeftError, match="NoSuchOperator"):
        g.to_module(["y"])
    assert g.to_module(["y"], {"r": (2,)}).attrs["input_names"] == ("r",)
