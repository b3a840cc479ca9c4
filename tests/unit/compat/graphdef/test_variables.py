"""Variables of graphs: the order of reads and assignments, and the state of compiled graphs."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.unit.compat.graphdef.helpers import const, placeholder
from weft.compat.graphdef import (
    FunctionDef,
    GraphDef,
    Library,
    NodeDef,
    ShapeAttr,
    from_graphdef,
)
from weft.graph import Graph
from weft.ir.dtype import DType
from weft.support.errors import InvalidInputError, InvalidModelError, UnsupportedModelError

F32 = DType.of("float32")
ONE = np.float32([1, 1])


def test_reads_see_the_assignments_before_them():
    g = Graph()
    x = g.placeholder((2,), name="x")
    v = g.variable(np.float32([1, 2]), name="v")
    before = g.op.add(v, x, name="before")
    update = g.assign_add(v, x)
    with g.control_dependencies([update]):
        after = g.op.multiply(v, 2.0, name="after")
    twice = g.assign_sub(update, np.float32([10, 10]))
    assert (update.node.op, twice.node.op) == ("AssignAdd", "AssignSub")
    mod = weft.compile(g, outputs=["before", "after"])
    assert [r.tolist() for r in mod(ONE)] == [[2, 3], [4, 6]]
    assert [r.tolist() for r in mod(ONE)] == [[3, 4], [6, 8]]
    assert mod.state["v"].tolist() == [3, 4]
    assert weft.compile(g, outputs=[before.name])(ONE).tolist() == [2, 3]
    only = weft.compile(g, outputs=["^AssignSub", "before"])
    assert [only(ONE).tolist(), only(ONE).tolist()] == [[2, 3], [-7, -6]]
    assert g.to_module([after]).attrs["state"] == {"v/next": "v"}


@pytest.mark.parametrize(("size", "options"), [("n", {}), (2, {"devices": ["sim:0", "sim:1"]})])
def test_first_values_of_every_kind_of_program(size, options):
    g = Graph()
    x = g.placeholder((size,), name="x")
    v = g.variable(np.float32(10), name="v")
    with g.control_dependencies([g.assign_add(v, g.op.sum(x))]):
        g.op.add(x, v, name="y")
    mod = weft.compile(g, outputs=["y"], **options)
    assert [mod(ONE).tolist(), mod(ONE).tolist()] == [[13, 13], [15, 15]]


def test_misuse_of_variables():
    g = Graph()
    x = g.placeholder((2,), name="x")
    v = g.variable(np.float32([1, 2]))
    with pytest.raises(InvalidModelError, match="only variables can be assigned"):
        g.assign(x, v)
    with pytest.raises(InvalidModelError, match="does not have the type of the variable"):
        g.assign(v, np.float32(1))
    with pytest.raises(InvalidInputError, match="nothing to run"):
        g.to_module([])


def resources():
    """v += x by resource variables, and a read of v after it."""
    shape = {"dtype": F32, "shape": ShapeAttr((2,))}
    return [
        placeholder("x", ONE), NodeDef("v", "VarHandleOp", attrs=shape),
        NodeDef("read", "ReadVariableOp", ("v",), attrs={"dtype": F32}),
        NodeDef("add", "AssignAddVariableOp", ("v", "x"), attrs={"dtype": F32}),
        NodeDef("again", "ReadVariableOp", ("v", "^add"), attrs={"dtype": F32}),
        NodeDef("y", "Sub", ("again", "read")),
    ]


@pytest.mark.parametrize(("op", "sign"),
                         [("AssignAddVariableOp", 1), ("AssignSubVariableOp", -1)])
def test_resource_variables(op, sign):
    nodes = resources()
    nodes[3] = NodeDef("add", op, ("v", "x"))
    mod = weft.compile(from_graphdef(GraphDef(tuple(nodes)), outputs=["y", "again"]),
                       state={"v/next": "v"})
    assert [r.tolist() for r in mod(ONE)] == [[sign, sign], [sign, sign]]
    assert [r.tolist() for r in mod(ONE)] == [[sign, sign], [2 * sign, 2 * sign]]


def test_assignments_of_both_kinds():
    nodes = resources()
    nodes[3] = NodeDef("add", "AssignVariableOp", ("v", "x"))
    mod = weft.compile(from_graphdef(GraphDef(tuple(nodes)), outputs=["again"]),
                       state={"v/next": "v"})
    assert mod(ONE * 7).tolist() == [7, 7]
    for op in ("Variable", "VariableV2"):
        shape = {"dtype": F32, "shape": ShapeAttr((2,))}
        graph = GraphDef((placeholder("x", ONE), NodeDef("v", op, attrs=shape),
                          NodeDef("a", "Assign", ("v", "x"))))
        assert from_graphdef(graph, outputs=["a"]).attrs["state"] == {"v/next": "v"}
        assert from_graphdef(graph, outputs=["v"]).attrs["input_names"] == ("v",)


def test_variables_that_cannot_be_lowered():
    shape = {"dtype": F32, "shape": ShapeAttr((None,))}
    with pytest.raises(UnsupportedModelError, match="needs a fixed shape"):
        from_graphdef(GraphDef((NodeDef("v", "VariableV2", attrs=shape),)), outputs=["v"])
    function = FunctionDef("f", (), (), (NodeDef("v", "VariableV2", attrs={
        "dtype": F32, "shape": ShapeAttr(())}),), {}, {"v": "v"})
    graph = GraphDef((NodeDef("c", "f"), const("k", np.float32(1)),
                      NodeDef("y", "Identity", ("k", "^c"))), library=Library({"f": function}))
    with pytest.raises(UnsupportedModelError, match="variables of functions"):
        from_graphdef(graph, outputs=["y"])
    wrong = GraphDef((const("k", ONE), placeholder("x", ONE), NodeDef("a", "Assign", ("k", "x"))))
    with pytest.raises(InvalidModelError, match="the target is not a variable"):
        from_graphdef(wrong, outputs=["a"])
