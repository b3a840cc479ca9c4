"""Functions, functional control flow, and the frames that tf.while_loop and tf.cond make."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.unit.compat.graphdef.helpers import const, placeholder
from weft.compat.graphdef import (
    ArgDef,
    AttrDef,
    AttrPlaceholder,
    FunctionDef,
    FunctionRef,
    GraphDef,
    Library,
    NodeDef,
    from_graphdef,
)
from weft.ir.dtype import DType
from weft.support.errors import InvalidModelError, UnsupportedModelError
from weft.transform.analysis.reference import evaluate

F32, I32, BOOL = map(DType.of, ("float32", "int32", "bool"))
X = np.float32([1, -2, 3])
SQUARE = FunctionDef(
    "square", (ArgDef("a", None, "T"),), (ArgDef("y", None, "T"),),
    (NodeDef("m", "Mul", ("a", "a"), attrs={"T": AttrPlaceholder("T")}),), {"y": "m:z:0"},
    attr_defs=(AttrDef("T", "type"),))
NEGATE = FunctionDef("negate", (ArgDef("a", F32),), (ArgDef("y", F32),),
                     (NodeDef("n", "Neg", ("a",)),), {"y": "n:y:0"})
# i < 3; (i + 1, reshape(a, s) * 2, s)
BELOW = FunctionDef("below", (ArgDef("i", I32), ArgDef("a", F32), ArgDef("s", I32)),
                    (ArgDef("c", BOOL),),
                    (const("k", np.int32(3)), NodeDef("l", "Less", ("i", "k:output:0"))),
                    {"c": "l:z:0"})
DOUBLE = FunctionDef(
    "double", (ArgDef("i", I32), ArgDef("a", F32), ArgDef("s", I32)),
    (ArgDef("j", I32), ArgDef("b", F32), ArgDef("t", I32)),
    (const("k", np.int32(1)), NodeDef("i2", "AddV2", ("i", "k:output:0")),
     NodeDef("r", "Reshape", ("a", "s")), NodeDef("b2", "AddV2", ("r:output:0", "r:output:0")),
     NodeDef("id", "Identity", ("s",))), {"j": "i2:z:0", "b": "b2:z:0", "t": "id:output:0"})
LIBRARY = Library({f.name: f for f in (SQUARE, NEGATE, BELOW, DOUBLE)})


def value(nodes, output, *feeds, library=LIBRARY):
    mod = from_graphdef(GraphDef((*feeds_of(feeds), *nodes), library=library), outputs=[output])
    names = mod.attrs["input_names"]
    compiled = weft.compile(mod)
    given = [np.asarray(feeds[int(name[1:])]) for name in names]
    result = np.asarray(evaluate(mod, given))
    np.testing.assert_allclose(compiled(*given), result, rtol=1e-6)
    return result


def feeds_of(feeds):
    return [placeholder(f"x{i}", np.asarray(x)) for i, x in enumerate(feeds)]


@pytest.mark.parametrize("op", ["If", "StatelessIf"])
def test_if_takes_one_branch(op):
    nodes = [NodeDef("y", op, ("x1", "x0"), attrs={
        "then_branch": FunctionRef("square", {"T": F32}), "else_branch": FunctionRef("negate")})]
    assert value(nodes, "y", X, np.array(True)).tolist() == [1, 4, 9]
    assert value(nodes, "y", X, np.int32(0)).tolist() == [-1, 2, -3]
    assert value([const("p", np.array(False)), *nodes[:0], NodeDef(
        "y", op, ("p", "x0"), attrs=nodes[0].attrs)], "y", X).tolist() == [-1, 2, -3]


@pytest.mark.parametrize(("index", "expected"), [(0, X * X), (1, -X), (5, -X), (-1, -X)])
def test_case_takes_the_last_branch_outside_of_the_range(index, expected):
    nodes = [NodeDef("y", "Case", ("x1", "x0"), attrs={
        "branches": (FunctionRef("square"), FunctionRef("negate"))})]
    np.testing.assert_array_equal(value(nodes, "y", X, np.int32(index)), expected)
    nodes = [NodeDef("y", "StatelessCase", ("x1", "x0"), attrs=nodes[0].attrs)]
    np.testing.assert_array_equal(value(nodes, "y", X, np.int32(index)), expected)


@pytest.mark.parametrize("op", ["While", "StatelessWhile"])
def test_constants_around_a_loop_stay_constants(op):
    nodes = [const("i", np.int32(0)), const("s", np.int32([3])),
             NodeDef("y", op, ("i", "x0", "s"), attrs={
                 "cond": FunctionRef("below"), "body": FunctionRef("double")})]
    np.testing.assert_array_equal(value(nodes, "y:1", X), X * 8)
    assert value(nodes, "y:0", X) == 3


@pytest.mark.parametrize("op", ["PartitionedCall", "StatefulPartitionedCall"])
def test_calls_of_functions(op):
    nodes = [NodeDef("y", op, ("x0",), attrs={"f": FunctionRef("square")})]
    np.testing.assert_array_equal(value(nodes, "y", X), X * X)
    np.testing.assert_array_equal(value([NodeDef("y", "square", ("x0",))], "y", X), X * X)


def loop(frame="w", scope="w/", start="x0", limit=3):
    """while i < limit: i, a = i + 1, a * a0 + c, as tf.while_loop writes it."""
    def n(name, op, *inputs, **attrs):
        return NodeDef(scope + name, op, tuple(
            i if i.startswith("x") or "/" in i else
            (f"^{scope}{i[1:]}" if i[0] == "^" else scope + i) for i in inputs), attrs=attrs)
    zero = const(f"{scope}zero", np.int32(0))
    return [
        zero, n("Enter", "Enter", "zero", frame_name=frame),
        n("Enter_1", "Enter", start, frame_name=frame),
        n("factor", "Enter", start, frame_name=frame, is_constant=True),
        n("Merge", "Merge", "Enter", "Next", N=2), n("Merge_1", "Merge", "Enter_1", "Next_1", N=2),
        NodeDef(f"{scope}limit", "Const", (f"^{scope}Merge",),
                attrs=const("", np.int32(limit)).attrs),
        n("Less", "Less", "Merge", "limit"), n("LoopCond", "LoopCond", "Less"),
        n("Switch", "Switch", "Merge", "LoopCond"), n("Switch_1", "Switch", "Merge_1", "LoopCond"),
        n("Identity", "Identity", "Switch:1"), n("Identity_1", "Identity", "Switch_1:1"),
        NodeDef(f"{scope}one", "Const", (f"^{scope}Identity",),
                attrs=const("", np.int32(1)).attrs),
        n("Add", "AddV2", "Identity", "one"), n("Mul", "Mul", "Identity_1", "factor"),
        n("Next", "NextIteration", "Add"), n("Next_1", "NextIteration", "Mul"),
        n("Exit", "Exit", "Switch"), n("Exit_1", "Exit", "Switch_1"),
    ]


def test_a_loop_of_frames():
    np.testing.assert_array_equal(value(loop(), "w/Exit_1", X), X ** 4)
    assert value(loop(), "w/Exit", X) == 3


def branch(scope="c/", data="x0", pred="x1", then="Square", other="Neg"):
    """tf.cond(pred, lambda: then(data), lambda: other(data) + 1)."""
    def n(name, op, *inputs, **attrs):
        return NodeDef(scope + name, op, inputs, attrs=attrs)
    return [
        n("Switch", "Switch", pred, pred), n("switch_t", "Identity", f"{scope}Switch:1"),
        n("switch_f", "Identity", f"{scope}Switch"), n("pred_id", "Identity", pred),
        n("T/Switch", "Switch", data, f"{scope}pred_id"), n("T", then, f"{scope}T/Switch:1"),
        n("F/Switch", "Switch", data, f"{scope}pred_id"), n("F0", other, f"{scope}F/Switch"),
        NodeDef(f"{scope}one", "Const", (f"^{scope}F0",), attrs=const("", np.float32(1)).attrs),
        n("F", "AddV2", f"{scope}F0", f"{scope}one"),
        n("Merge", "Merge", f"{scope}F", f"{scope}T", N=2),
    ]


def test_a_branch_of_frames():
    for pred, expected in ((True, X * X), (False, 1 - X)):
        np.testing.assert_array_equal(value(branch(), "c/Merge", X, np.array(pred)), expected)


def test_nested_frames():
    """A loop in a branch, whose body is a branch around a loop."""
    inner = loop("v", "v/", "c/T/Switch:1", limit=2)
    nodes = [n if n.name != "c/T" else NodeDef("c/T", "Identity", ("v/Exit_1",)) for n in branch()]
    for pred, expected in ((True, X ** 3), (False, 1 - X)):
        got = value([*nodes, *inner], "c/Merge", X, np.array(pred))
        np.testing.assert_allclose(got, expected, rtol=1e-6)
    outer = loop(limit=2)
    body = branch("c/", "w/Mul", "c/is_one", "Square", "Neg")
    body.append(NodeDef("c/is_one", "Less", ("w/Identity", "w/one")))
    outer = [n if n.name != "w/Next_1" else NodeDef(n.name, n.op, ("c/Merge",)) for n in outer]
    first = (X * X) ** 2
    np.testing.assert_allclose(value([*outer, *body], "w/Exit_1", X), 1 - first * X, rtol=1e-6)


def test_loops_in_loops():
    inner = loop("v", "v/", "w/Mul", limit=2)
    outer = [n if n.name != "w/Next_1" else NodeDef(n.name, n.op, ("v/Exit_1",))
             for n in loop(limit=2)]
    expected = (((X * X) ** 3) * X) ** 3
    np.testing.assert_allclose(value([*outer, *inner], "w/Exit_1", X), expected, rtol=1e-5)


def test_other_frames_are_refused():
    nodes = [n for n in loop() if n.name != "w/LoopCond"]
    nodes.append(NodeDef("w/LoopCond", "Identity", ("w/Less",)))
    with pytest.raises(UnsupportedModelError, match="neither a loop") as error:
        value(nodes, "w/Exit_1", X)
    assert "w/Merge_1 (Merge)" in str(error.value)
    nodes = [n if n.name != "w/Next" else NodeDef("w/Next", "Identity", n.inputs) for n in loop()]
    with pytest.raises((UnsupportedModelError, InvalidModelError)):
        value(nodes, "w/Exit_1", X)


def call(function, *inputs, library=LIBRARY, **attrs):
    return value([NodeDef("y", function, inputs, attrs=attrs)], "y", X, library=library)


def with_function(function) -> Library:
    return Library({**LIBRARY.functions, function.name: function})


@pytest.mark.parametrize(("function", "match"), [
    (FunctionDef("f", (ArgDef("a", I32),), (ArgDef("y", I32),), (), {"y": "a"}),
     "has the wrong type"),
    (FunctionDef("f", (ArgDef("a", F32), ArgDef("b", F32)), (ArgDef("y", F32),), (), {"y": "a"}),
     "takes 2 arguments"),
    (FunctionDef("f", (ArgDef("a", F32),), (ArgDef("y", F32),), (), {}), "returns nothing"),
    (FunctionDef("f", (ArgDef("a", F32),), (ArgDef("y", F32),), (), {"y": "z:y:0"}),
     "which it does not have"),
    (FunctionDef("f", (ArgDef("a", F32),), (ArgDef("y", F32),),
                 (NodeDef("t", "TopKV2", ("a", "a")),), {"y": "t:value:0"}), "no output 'value'"),
    (FunctionDef("f", (ArgDef("a", F32),), (ArgDef("y", F32),),
                 (NodeDef("c", "Cast", ("a",), attrs={"DstT": AttrPlaceholder("T")}),),
                 {"y": "c:y:0"}), "does not have"),
    (FunctionDef("f", (ArgDef("a", F32),), (ArgDef("y", F32),), (), {"y": "a"},
                 attr_defs=(AttrDef("n", "int"),)), "needs a value for attribute 'n'"),
])
def test_errors_of_functions(function, match):
    with pytest.raises(InvalidModelError, match=match):
        call("f", "x0", library=with_function(function))


def test_a_function_must_not_call_itself():
    f = FunctionDef("f", (ArgDef("a", F32),), (ArgDef("y", F32),),
                    (NodeDef("g", "g", ("a",)),), {"y": "g:y:0"})
    g = FunctionDef("g", (ArgDef("a", F32),), (ArgDef("y", F32),),
                    (NodeDef("f", "f", ("a",)),), {"y": "f:y:0"})
    with pytest.raises(UnsupportedModelError, match="calls itself") as error:
        call("f", "x0", library=Library({"f": f, "g": g}))
    assert error.value.got == "f -> g -> f"


def test_branches_and_bodies_must_keep_types():
    wide = FunctionDef("wide", (ArgDef("a", F32),), (ArgDef("y", F32),), (
        const("zero", np.int32(0)),
        NodeDef("e", "ExpandDims", ("a", "zero:output:0"))), {"y": "e:output:0"})
    true = FunctionDef("true", (ArgDef("a", F32),), (ArgDef("y", BOOL),),
                       (const("t", np.array(True)),), {"y": "t:output:0"})
    library = Library({**LIBRARY.functions, "wide": wide, "true": true})
    with pytest.raises(UnsupportedModelError, match="return different types"):
        value([NodeDef("y", "If", ("x1", "x0"), attrs={
            "then_branch": FunctionRef("wide"), "else_branch": FunctionRef("negate")})], "y", X,
            np.array(True), library=library)
    with pytest.raises(UnsupportedModelError, match="changes its type"):
        value([NodeDef("y", "While", ("x0",), attrs={
            "cond": FunctionRef("true"), "body": FunctionRef("wide")})], "y", X, library=library)
