"""Analyses: variables, types, operators, features, calls."""

from __future__ import annotations

from weft import op
from weft.ir import Call, Function, Match, Tuple, const, infer_type, parse, prelude, var
from weft.ir.analysis import (
    CallGraph,
    all_dtypes,
    all_vars,
    bound_type_vars,
    bound_vars,
    features,
    free_type_vars,
    op_counts,
    unmatched_cases,
)
from weft.ir.visitor import post_order

TEXT = """
import "prelude"
def @even(%n: int32) -> bool { if (%n == 0) { True } else { @odd(%n - 1) } }
def @odd(%n: int32) -> bool { if (%n == 0) { False } else { @even(%n - 1) } }
def @main(%x: float32) {
  let %f = fn (%y: float32) { if (%y < %x) { %y } else { %f(%y - 1f) } };
  %0 = exp(%f(%x));
  (%0 + %0, @even(3))
}
"""


def test_variables():
    x, y = var("x", (2,)), var("y", (2,))
    inner = Function((y,), op.add(x, y))
    assert all_vars(inner) == (y, x)
    assert bound_vars(inner) == (y,)


def test_types():
    mod = infer_type(parse(TEXT))
    assert {d.name for d in all_dtypes(mod["main"])} == {"float32", "int32", "bool"}
    compose = prelude()["compose"]
    assert [v.name for v in bound_type_vars(compose)] == ["A", "B", "C"]
    assert free_type_vars(compose) == ()
    assert [v.name for v in free_type_vars(compose.body)] == ["A", "B", "C"]


def test_operators_by_frequency():
    mod = parse("def @main(%x: float32) { exp(exp(%x)) + 1f }")
    assert list(op_counts(mod).items()) == [("exp", 2), ("add", 1)]
    assert op_counts(mod["main"]) == op_counts(mod)


def test_features():
    found = features(parse(TEXT)["main"])
    assert found >= {"let", "let_rec", "closure", "if", "graph", "op", "global_var", "call"}
    assert not found & {"match", "constructor", "ref_create", "tuple_get_item"}
    x = var("x", (2,))
    assert features(Function((x,), op.exp(x))) == {"var", "function", "call", "op"}
    assert "graph" not in features(Tuple((x, x, const(1))))
    assert "call" in features(Call(Function((x,), x), (x,)))


def test_unmatched_cases_are_listed():
    text = """
    import "prelude"
    def @main(%p: (Option[int8], List[int8])) {
      match? (%p) { (Some(_), Nil) => { 1 }, (None, Cons(_, Nil)) => { 2 } }
    }
    """
    mod = parse(text)
    (match,) = [n for n in post_order(mod["main"]) if isinstance(n, Match)]
    assert unmatched_cases(match, mod) == [
        "(Some(_), Cons(_, _))",
        "(None, Cons(_, Cons(_, _)))",
        "(None, Nil)",
    ]


def test_calls():
    graph = CallGraph(parse(TEXT))
    assert graph.reachable("main") == ("main", "even", "odd")
    assert graph.callers("odd") == ("even",)
    assert graph.is_recursive("even")
    assert not graph.is_recursive("main")
    assert not graph.is_recursive("rev")
    assert graph.reachable("rev") == ("rev", "foldl")
