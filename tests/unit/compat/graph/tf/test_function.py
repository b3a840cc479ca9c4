"""Counterparts of TensorFlow's ``function_test``, case by case (names as there).

Without a counterpart: ``RemoveListArrayConverter`` and its case with control edges (a list argument
has no nodes of its own here), ``RemoveIdentityNodes_Ref`` (a variable has no reference type; its
reads are ordered values, which ``tests/unit/compat/graphdef/test_variables.py`` checks).
``Gradient_*`` compare values, as gradients are made by weft's differentiation and not as graphs
of TensorFlow's operators.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import weft
from weft.compat.graph import (
    ArgDef,
    AttrDef,
    AttrPlaceholder,
    FunctionDef,
    Graph,
    Library,
    NodeDef,
    expand_inline_functions,
    from_module,
)
from weft.ir.dtype import DType
from weft.ir.expr import Call
from weft.ir.visitor import post_order
from weft.support.errors import InvalidModelError, UnsupportedModelError
from weft.transform.analysis.reference import evaluate
from weft.transform.passes.dead_code_elimination import DeadCodeElimination

F32, F64, I32 = map(DType.of, ("float32", "float64", "int32"))
X = np.float32([1, 2, 3, 4])
T = {"T": AttrPlaceholder("T")}
TYPE = (AttrDef("T", "type"),)


def const(name, value, dtype=np.int64) -> NodeDef:
    data = np.asarray(value, dtype)
    return NodeDef(name, "Const", attrs={"dtype": DType.of(data.dtype), "value": data})


def chained(name: str, inner: str, first: str) -> FunctionDef:
    """``inner`` applied twice: nodes ``first`` and ``y``."""
    return FunctionDef(name, (ArgDef("x", None, "T"),), (ArgDef("y", None, "T"),), (
        NodeDef(first, inner, ("x",), attrs=T), NodeDef("y", inner, (f"{first}:y:0",), attrs=T)),
        {"y": "y:y:0"}, attr_defs=TYPE)


TIMES_TWO = FunctionDef("XTimesTwo", (ArgDef("x", None, "T"),), (ArgDef("y", None, "T"),), (
    const("two", 2), NodeDef("scale", "Cast", ("two:output:0",), attrs={
        "SrcT": DType.of("int64"), "DstT": AttrPlaceholder("T")}),
    NodeDef("y", "Mul", ("x", "scale:y:0"), attrs=T)), {"y": "y:z:0"}, attr_defs=TYPE)
W_X_PLUS_B = FunctionDef("WXPlusB", tuple(ArgDef(n, None, "T") for n in "wxb"),
                         (ArgDef("y", None, "T"),), (
    NodeDef("mm", "MatMul", ("w", "x"), attrs=T),
    NodeDef("y", "Add", ("mm:product:0", "b"), attrs=T)), {"y": "y:z:0"}, attr_defs=TYPE)
SWAP = FunctionDef("Swap", (ArgDef("i0", None, "T"), ArgDef("i1", None, "T")),
                   (ArgDef("o0", None, "T"), ArgDef("o1", None, "T")), (
    NodeDef("a", "Identity", ("i1",)), NodeDef("b", "Identity", ("i0",))),
    {"o0": "a:output:0", "o1": "b:output:0"}, attr_defs=TYPE)
FOUR = chained("XTimesFour", "XTimesTwo", "x2")
SIXTEEN = chained("XTimes16", "XTimesFour", "x4")
LIBRARY = Library({f.name: f for f in (TIMES_TWO, W_X_PLUS_B, SWAP, FOUR, SIXTEEN)})


def graph_of(*functions: FunctionDef) -> Graph:
    library = {**LIBRARY.functions, **{f.name: f for f in functions}}
    return Graph(Library(library))


def run(function: str, *values: np.ndarray, graph: Graph | None = None, **attrs):
    g = graph or graph_of()
    inputs = [g.placeholder(v.shape, str(v.dtype), name=f"x{i}") for i, v in enumerate(values)]
    g.call(function, *inputs, name="y", **attrs)
    return weft.compile(g)(*values)


@pytest.mark.parametrize(("name", "factor"),
                         [("XTimesTwo", 2), ("XTimesFour", 4), ("XTimes16", 16)])
def test_x_times_n(name, factor):
    np.testing.assert_array_equal(run(name, X), X * factor)
    np.testing.assert_array_equal(run(name, X.astype(np.float64), T=F64), X * np.float64(factor))


def test_w_x_plus_b():
    w, x, b = np.float32([[1, 2], [3, 4]]), np.float32([[1, 3], [2, 4]]), np.float32([0.5, 2.5])
    np.testing.assert_array_equal(run("WXPlusB", w, x, b), [[5.5, 13.5], [11.5, 27.5]])


def test_is_stateful():
    """Variables are the only nodes that keep values; a matrix product keeps none."""
    g = Graph()
    v = g.variable(X)
    g.assign_add(v, X)
    assert "state" in g.to_module(["AssignAdd"]).attrs
    assert "state" not in graph_with_call("XTimesTwo").to_module().attrs


def graph_with_call(function: str, *more: FunctionDef) -> Graph:
    g = graph_of(*more)
    g.call(function, g.placeholder((4,), name="x"), name="f")
    return g


def listed(g: Graph) -> dict[str, tuple[str, tuple[str, ...]]]:
    return {n.name: (n.op, n.definition().inputs) for n in g.op_nodes if n.op != "Placeholder"}


def test_expand_inline_functions():
    """One level at a time, until no call is left; weft needs no Identity nodes at the borders."""
    g = graph_with_call("XTimes16")
    assert expand_inline_functions(g)
    assert listed(g) == {"f/x4": ("XTimesFour", ("x",)), "f/y": ("XTimesFour", ("f/x4",))}
    assert expand_inline_functions(g)
    assert list(listed(g)) == ["f/x4/x2", "f/x4/y", "f/y/x2", "f/y/y"]
    assert listed(g)["f/y/x2"] == ("XTimesTwo", ("f/x4/y",))
    assert expand_inline_functions(g)
    found = listed(g)
    assert found["f/y/y/y"] == ("Mul", ("f/y/x2/y", "f/y/y/scale"))
    assert found["f/x4/x2/scale"] == ("Cast", ("f/x4/x2/two",))
    assert not expand_inline_functions(g)
    np.testing.assert_array_equal(weft.compile(g)(X), X * 16)


def test_optimize_graph():
    """The scales are folded and merged: four multiplications by one constant, or by their product.
    """
    text = weft.compile(graph_with_call("XTimes16")).as_text("optimized")
    assert "cast" not in text
    assert text.count("multiply(") <= 4


def test_many_swaps_node_def():
    nodes = [NodeDef("a", "Swap", ("x", "y"), attrs={"T": F32})]
    nodes += [NodeDef(new, "Swap", (f"{old}:o0", f"{old}:o1"), attrs={"T": F32})
              for old, new in zip("abcde", "bcdef", strict=True)]
    nodes.append(NodeDef("g", "Identity", ("f:o0",), attrs={"T": F32}))
    swaps = FunctionDef("ManySwapsNodeDef", (ArgDef("x", F32), ArgDef("y", F32)),
                        (ArgDef("o", F32),), tuple(nodes), {"o": "g:output"})
    g = graph_of(swaps)
    x, y = (g.placeholder((4,), name=n) for n in "xy")
    mod = g.to_module([g.call("ManySwapsNodeDef", x, y)], ["x", "y"])
    assert mod["main"].body is mod["main"].params[0] or mod["main"].body.name == "x"


def control_deps() -> FunctionDef:
    """x*x + y*y, where the first swap waits for x2, and y2 for the second one."""
    args = ArgDef("x", F32), ArgDef("y", F32)
    return FunctionDef("ManySwapsFirst", args, (ArgDef("o", F32),), (
        NodeDef("a0", "Swap", ("x", "y", "^x2"), attrs={"T": F32}),
        NodeDef("a1", "Swap", ("a0:o0:0", "a0:o1:0"), attrs={"T": F32}),
        NodeDef("x2", "Mul", ("x", "x"), attrs={"T": F32}),
        NodeDef("y2", "Mul", ("y", "y", "^a1"), attrs={"T": F32}),
        NodeDef("o", "Add", ("x2:z:0", "y2:z:0"), attrs={"T": F32})), {"o": "o:z:0"})


def test_control_deps():
    """y2 waits for x2, through both swaps: as a barrier, and as control edges after inlining."""
    g = graph_of(control_deps())
    x, y = (g.placeholder((4,), name=n) for n in "xy")
    g.call("ManySwapsFirst", x, y, name="f")
    barriers = [n for n in post_order(g.to_module()["main"]) if isinstance(n, Call)
                and n.op.name == "annotation.barrier"]
    assert barriers
    while expand_inline_functions(g):
        pass
    node, before = g.find_node("f/y2"), set()
    pending = [node]
    while pending:
        current = pending.pop()
        before.add(current.name)
        pending += [e.src for e in current.in_edges.values() if e.is_control]
        pending += [e.src for e in current.in_edges.values() if current.name.startswith("f/a")]
    assert "f/x2" in before
    np.testing.assert_array_equal(weft.compile(g, outputs=["f/o"])(X, X), 2 * X * X)


def test_error_not_found():
    with pytest.raises(UnsupportedModelError, match="unknown operator 'Foo'"):
        run("Foo", X)


def test_error_instantiation_error():
    """XTimesFour is well-formed, but its callee names an attribute that does not exist."""
    bad = dataclasses.replace(TIMES_TWO, nodes=(NodeDef(
        "y", "Add", ("x", "x"), attrs={"T": AttrPlaceholder("no_T")}),), returns={"y": "y:z:0"})
    for name in ("XTimesTwo", "XTimesFour", "XTimes16"):
        with pytest.raises(InvalidModelError, match="takes the attribute 'no_T'"):
            run(name, X, graph=graph_of(bad))


def gradients(function: str, *values: np.ndarray, graph: Graph | None = None):
    g = graph or graph_of()
    inputs = [g.placeholder(v.shape, name=f"x{i}") for i, v in enumerate(values)]
    mod = g.to_module([g.call(function, *inputs, name="y")])
    y = evaluate(mod, list(values))
    return y, evaluate(weft.vjp(mod), [*values, np.ones_like(y)])[1]


def test_gradient_x_times_two():
    for name, factor in (("XTimesTwo", 2), ("XTimes16", 16)):
        _, (dx,) = gradients(name, X)
        np.testing.assert_array_equal(dx, np.full_like(X, factor))


@pytest.mark.parametrize("op", ["Add", "Mul"])
def test_gradient_add_and_mul(op):
    """Broadcast operands get the sum of their gradients."""
    x, y = np.float32([[1, 2], [3, 4]]), np.float32([5, 6])
    g = Graph()
    inputs = [g.placeholder(v.shape, name=f"x{i}") for i, v in enumerate((x, y))]
    mod = g.to_module([g.call(op, *inputs)])
    dx, dy = evaluate(weft.vjp(mod), [x, y, np.ones_like(x)])[1]
    wanted = (np.ones_like(x), np.float32([2, 2])) if op == "Add" else \
        (np.broadcast_to(y, x.shape), x.sum(0))
    np.testing.assert_array_equal(dx, wanted[0])
    np.testing.assert_array_equal(dy, wanted[1])


def test_gradient_add_sum():
    """sum(x + y) over all axes, whose list is computed from the rank."""
    total = FunctionDef("Test", (ArgDef("x", F32), ArgDef("y", F32)), (ArgDef("l", F32),), (
        NodeDef("z", "Add", ("x", "y"), attrs={"T": F32}), const("zero", 0, np.int32),
        const("one", 1, np.int32), NodeDef("r", "Rank", ("z:z:0",), attrs={"T": F32}),
        NodeDef("indices", "Range", ("zero:output:0", "r:output:0", "one:output:0")),
        NodeDef("l", "Sum", ("z:z:0", "indices:output:0"), attrs={"T": F32})),
        {"l": "l:output:0"})
    y, grads = gradients("Test", X, X, graph=graph_of(total))
    assert y == 2 * X.sum()
    for gradient in grads:
        np.testing.assert_array_equal(gradient, np.ones_like(X))


def body_of(result: str, *extra: NodeDef) -> Graph:
    """y = x * x + 1, with arithmetic that y does not depend on."""
    nodes = (NodeDef("a", "Square", ("x",), attrs={"T": I32}), const("o", 1, np.int32), *extra,
             NodeDef("y", "Add", (result, "o:output:0"), attrs={"T": I32}))
    f = FunctionDef("F", (ArgDef("x", I32),), (ArgDef("y", I32),), nodes, {"y": "y:z:0"})
    g = graph_of(f)
    g.call("F", g.placeholder((2,), "int32", name="x"), name="f")
    return g


def test_remove_dead_nodes():
    g = body_of("a:y:0", NodeDef("x1", "Add", ("o", "o")), NodeDef("x2", "Mul", ("a", "x1")),
                NodeDef("x3", "Mul", ("x1", "x2")))
    mod = DeadCodeElimination()(g.to_module())
    assert sum(isinstance(n, Call) for n in post_order(mod["main"])) == 2
    assert weft.compile(g)(np.int32([2, 3])).tolist() == [5, 10]


def test_remove_identity_nodes():
    g = body_of("x3:output:0", NodeDef("x1", "Identity", ("a:y:0",)),
                NodeDef("x2", "Identity", ("x1",)), NodeDef("x3", "Identity", ("x2",)))
    assert [n.op for n in from_module(g.to_module())[0].op_nodes] == \
        ["Placeholder", "multiply", "Const", "add"]
