"""Graphs to modules and back, and to GraphDef and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.compat.graph import Graph, expand_inline_functions, from_module, import_graph
from weft.compat.graphdef import graph_def_bytes, graph_def_text, parse_graph_def
from weft.ir.structural import structural_equal
from weft.support.errors import InvalidModelError, UnsupportedModelError
from weft.transform.analysis.reference import evaluate

X = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)
UNARY = ("tanh", "nn.relu", "sigmoid", "negative")
TF_UNARY = ("Tanh", "Relu", "Sigmoid", "Neg")
BINARY = ("add", "multiply", "maximum")
TF_BINARY = ("AddV2", "Mul", "Maximum")
step = st.tuples(st.integers(0, 7), st.integers(0, 50), st.integers(0, 50), st.booleans(),
                 st.sampled_from(["", "sim:1", "cpu"]), st.booleans())


def build(steps, unary=UNARY, binary=BINARY) -> Graph:
    """A random graph of matrices, with control edges, devices and name scopes."""
    g = Graph()
    values = [g.placeholder((2, 3), name="x"), g.constant(np.ones((2, 3), np.float32))]
    for kind, a, b, waits, device, scoped in steps:
        x, y = values[a % len(values)], values[b % len(values)]
        with g.device(device or None), g.name_scope("s" if scoped else None), \
                g.control_dependencies([y] if waits else None):
            values.append(g.call(unary[kind % 4], x) if kind < 4 else
                          g.call(binary[kind % 3], x, y))
    return g


@settings(max_examples=40, deadline=None)
@given(st.lists(step, min_size=1, max_size=12))
def test_random_graphs_survive_modules(steps):
    mod = build(steps).to_module()
    again, outputs = from_module(mod)
    back = again.to_module(outputs)
    assert structural_equal(back["main"], mod["main"])
    assert len(again.copy()) == len(again)


@settings(max_examples=40, deadline=None)
@given(st.lists(step, min_size=1, max_size=12))
def test_random_graphs_survive_files(steps):
    g = build(steps, TF_UNARY, TF_BINARY)
    for form in (graph_def_bytes, graph_def_text):
        read = parse_graph_def(form(g.as_graph_def()))
        copy = Graph()
        import_graph(read, copy)
        assert [(n.name, n.op, n.device, n.definition().inputs) for n in copy.op_nodes] == \
            [(n.name, n.op, n.device, n.definition().inputs) for n in g.op_nodes]
        assert structural_equal(copy.to_module()["main"], g.to_module()["main"])


def test_names_come_back():
    g = build([(0, 0, 0, False, "", True), (4, 1, 2, True, "", False)])
    again, outputs = from_module(g.to_module())
    assert [t.node.name for t in outputs] == ["multiply"]
    assert {"x", "s/tanh"} <= {n.name for n in again.op_nodes}


def square(g: Graph, **options):
    body = Graph()
    a = body.placeholder((2, 3), name="a")
    return g.define_function("square", body, [a], [body.op.multiply(a, a, name="m")], **options)


def test_functions_are_called_by_name():
    g = Graph()
    x = g.placeholder((2, 3), name="x")
    square(g)
    g.call("square", x, name="y")
    np.testing.assert_allclose(weft.compile(g)(X), X * X, rtol=1e-6)
    assert expand_inline_functions(g)
    assert [n.name for n in g.op_nodes] == ["x", "y/m"]
    np.testing.assert_allclose(weft.compile(g)(X), X * X, rtol=1e-6)
    assert not expand_inline_functions(g)


def test_gradients_of_functions():
    g = Graph()
    body = Graph()
    a, dy = body.placeholder((2, 3), name="a"), body.placeholder((2, 3), name="dy")
    g.define_function("square_grad", body, [a, dy], [body.op.multiply(dy, 100.0)])
    square(g, gradient="square_grad")
    g.call("square", g.placeholder((2, 3), name="x"), name="y")
    assert not expand_inline_functions(g)
    mod = g.to_module()
    np.testing.assert_allclose(evaluate(mod, [X]), X * X, rtol=1e-6)
    _, (gradient,) = evaluate(weft.vjp(mod), [X, np.ones_like(X)])
    np.testing.assert_allclose(gradient, np.full_like(X, 100), rtol=1e-6)


def test_definitions_of_functions_are_checked():
    g = Graph()
    body = Graph()
    a, b = body.placeholder((2,), name="a"), body.placeholder((2,), name="b")
    y = body.op.add(a, b)
    with pytest.raises(InvalidModelError, match="reads placeholders"):
        g.define_function("f", body, [a], [y])
    with pytest.raises(InvalidModelError, match="must be a placeholder"):
        g.define_function("f", body, [y], [y])
    with pytest.raises(InvalidModelError, match="no function 'df'"):
        g.define_function("f", body, [a, b], [y], gradient="df")
    g.define_function("f", body, [a, b], [y])
    with pytest.raises(InvalidModelError, match="another function 'f'"):
        g.define_function("f", body, [a, b], [body.op.multiply(a, b)])


def test_inlining_keeps_the_order_of_control_edges():
    g = Graph()
    x = g.placeholder((2, 3), name="x")
    first = g.op.exp(x, name="first")
    square(g)
    with g.control_dependencies([first]):
        call = g.call("square", x, name="y")
    with g.control_dependencies([call]):
        g.op.tanh(x, name="last")
    expand_inline_functions(g)
    edges = {str(e) for e in g.edges if e.is_control and e.src.is_op}
    assert edges == {"^first -> y/m", "^y/m -> y", "^y -> last"}


def test_what_graphs_cannot_hold():
    closure = weft.parse("""def @main(%x: Tensor[(2,), float32]) {
      let %f = fn (%y: Tensor[(2,), float32]) { tanh(%y) }; %f(%x) }""")
    with pytest.raises(UnsupportedModelError, match="a graph cannot hold"):
        from_module(closure)


def test_loops_and_branches_come_back():
    mod = weft.parse("""def @main(%x: Tensor[(2,), float32], %p: Tensor[(), bool]) {
      let %loop = fn (%i: Tensor[(), int32], %v: Tensor[(2,), float32]) {
        if (less(%i, 3)) { %loop(add(%i, 1), multiply(%v, %x)) } else { (%i, %v) } };
      %r = %loop(0, %x);
      if (%p) { tanh(%r.1) } else { %x } }""")
    g, outputs = from_module(mod)
    assert [n.op for n in g.op_nodes].count("If") == 1
    again = g.to_module(outputs)
    x = np.float32([0.5, 2])
    for p in (True, False):
        np.testing.assert_allclose(evaluate(again, [x, np.array(p)]),
                                   evaluate(mod, [x, np.array(p)]), rtol=1e-6)
