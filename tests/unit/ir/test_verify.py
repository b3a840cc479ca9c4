"""Well-formedness."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from tests.unit.ir.programs import modules
from weft import op
from weft.ir import (
    Call,
    Function,
    GlobalVar,
    If,
    IRModule,
    Let,
    NoAttrs,
    RefCreate,
    RefRead,
    RefWrite,
    Var,
    const,
    infer_type,
    parse,
    var,
    verify_expr,
    verify_module,
)
from weft.ir.text.parser import parse_expr
from weft.support.errors import WellFormedError

X = var("x", (2,))


def refuse(body, match: str, *params: Var) -> WellFormedError:
    mod = IRModule.from_expr(Function(params or (X,), body))
    with pytest.raises(WellFormedError, match=match) as caught:
        verify_module(mod, typed=False)
    return caught.value


@given(modules())
@settings(max_examples=40, deadline=None)
def test_random_modules_are_well_formed(mod):
    verify_module(infer_type(mod))


def test_free_variables():
    error = refuse(op.exp(var("y", (2,))), "unbound variable %y")
    assert "in @main" in error.where
    verify_expr(op.exp(var("y", (2,))))


def test_a_variable_used_before_its_let():
    v = Var("v")
    refuse(op.add(v, Let(v, op.exp(X), v)), "unbound variable %v")


def test_a_variable_used_after_its_scope():
    v = Var("v")
    refuse(op.add(Let(v, op.exp(X), v), v), "outside the scope")


def test_a_shared_node_taken_out_of_its_scope():
    v = Var("v")
    inner = op.tanh(v)
    refuse(op.add(Let(v, op.exp(X), inner), inner), r"tanh\(%v\) is used out of")


def test_branches_do_not_see_each_other():
    v = Var("v")
    refuse(If(const(True), Let(v, op.exp(X), v), op.abs(v)), "outside the scope")


def test_clauses_do_not_see_each_other():
    clauses = "L(%p) => { %p }, R(%q) => { %q }"
    text = f"def @main(%b: B) {{ match (%b) {{ {clauses} }} }}"
    text = "type B { L(int32), R(int32), }\n" + text
    mod = parse(text)
    verify_module(infer_type(mod))
    match = mod["main"].body
    left, right = match.clauses
    swapped = match.replace(clauses=(left, type(right)(right.lhs, left.rhs)))
    with pytest.raises(WellFormedError, match="outside the scope"):
        verify_module(mod.with_function("main", mod["main"].replace(body=swapped)), typed=False)


def test_variables_are_bound_once():
    v = Var("v")
    refuse(Let(v, op.exp(X), Let(v, op.exp(X), v)), "%v is bound twice")
    refuse(op.exp(X), "%x is bound twice", X, X)


def test_values_do_not_see_their_own_variable_unless_they_are_functions():
    v = Var("v")
    refuse(Let(v, op.exp(v), v), "unbound variable %v")
    recursive = parse_expr("{ let %f = fn (%n: int32) -> int32 { %f(%n) }; %f(1) }")
    verify_module(IRModule.from_expr(recursive), typed=False)


def test_globals_and_data_types_exist():
    refuse(Call(GlobalVar("nobody"), (X,)), "unknown function @nobody")
    mod = parse("type B { L(int32), }\ndef @main() { L(1) }")
    with pytest.raises(WellFormedError, match="data type B"):
        verify_module(IRModule(mod.functions), typed=False)


def test_calls_are_complete():
    refuse(Call(op.add, (X,)), "wrong number of arguments")
    refuse(Call(op.nn.softmax, (X,), NoAttrs()), "attributes of another operator")


def test_types_are_asked_for_and_the_pass_is_named():
    mod = IRModule.from_expr(Function((X,), op.exp(X)))
    with pytest.raises(WellFormedError, match=r"after the pass break_it: .* is untyped"):
        verify_module(mod, after="break_it")
    verify_module(infer_type(mod), after="break_it")


def test_many_uses_of_many_variables_take_linear_time():
    names = [Var(f"v{i}") for i in range(3_000)]
    total = names[0]
    for name in names[1:]:
        total = op.add(total, name)
    for name in reversed(names):
        total = Let(name, op.exp(X), total)
    verify_module(IRModule.from_expr(Function((X,), total)), typed=False)


def _in_both_branches(effect, build) -> IRModule:
    """``fn (x, c)`` whose ``build(effect, x, c, r)`` stands under ``let r = ref(x)``."""
    x, c, r = var("x", (2,)), var("c", (), "bool"), Var("r")
    body = build(effect(r, x), x, c)
    return infer_type(IRModule.from_expr(Function((x, c), Let(r, RefCreate(x), body))))


@pytest.mark.parametrize(
    "effect",
    [lambda r, _: RefRead(r), lambda r, _: op.exp(RefRead(r)), lambda _, x: RefRead(RefCreate(x))],
    ids=["a read", "what holds a read", "a reference of its own"],
)
def test_effects_have_one_place_in_the_order_of_evaluation(effect):
    def in_branches(e, x, c):
        return If(c, op.add(e, x), op.tanh(e))

    def in_closure_first(e, x, c):
        return If(c, Call(Function((), e), ()), x) + e

    def before_both(e, x, c):
        return op.add(e, If(c, op.add(e, x), op.tanh(e)))

    def named(e, x, c):
        v = Var("v")
        return Let(v, e, If(c, op.add(v, x), op.tanh(v)))

    for build in (in_branches, in_closure_first):
        with pytest.raises(WellFormedError, match="touches a reference"):
            verify_module(_in_both_branches(effect, build))
    for build in (before_both, named):
        verify_module(_in_both_branches(effect, build))


def test_effects_that_stay_inside_may_be_shared():
    def local(r, x, *, writes_to=None):
        s, u = Var("s"), Var("u")
        write = RefWrite(writes_to or s, op.exp(x))
        return Let(s, RefCreate(x), Let(u, write, RefRead(s)))

    def in_branches(e, x, c):
        return If(c, op.add(e, x), op.tanh(e))

    verify_module(_in_both_branches(local, in_branches))
    further_out = _in_both_branches(lambda r, x: local(r, x, writes_to=r), in_branches)
    read_first = _in_both_branches(lambda r, _: local(r, RefRead(r)), in_branches)
    for wrong in (further_out, read_first):
        with pytest.raises(WellFormedError, match="touches a reference"):
            verify_module(wrong)
