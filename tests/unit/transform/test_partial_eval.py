"""Partial evaluation at compile time."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings

from tests.unit.transform.helpers import check_example, check_values, op_calls, parse_program
from tests.unit.transform.random_programs import programs
from weft import op
from weft.ir.expr import Function, GlobalVar, If, Let, Match, var
from weft.ir.module import IRModule
from weft.ir.typing.infer import infer_type
from weft.ir.visitor import post_order
from weft.transform.analysis.reference import evaluate
from weft.transform.passes.partial_eval import PartialEval


def kinds(mod):
    return [type(n) for n in post_order(mod["main"].body)]


def test_example():
    check_example(PartialEval())


def test_unknown_conditions_keep_a_specialised_loop():
    mod = parse_program("""
        def @main(%n: Tensor[(), int32], %x: Tensor[(2,), float32]) -> Tensor[(2,), float32] {
          let %twice = fn (%f: fn (Tensor[(2,), float32]) -> Tensor[(2,), float32],
                           %v: Tensor[(2,), float32]) { %f(%f(%v)) };
          let %loop = fn (%k: Tensor[(), int32], %acc: Tensor[(2,), float32])
              -> Tensor[(2,), float32] {
            if (less(%k, 3)) {
              %loop(add(%k, 1), %twice(fn (%z: Tensor[(2,), float32]) { tanh(%z) }, %acc))
            } else { %acc }
          };
          %loop(%n, %x)
        }""")
    after = PartialEval()(mod)
    check_values(mod, after)
    functions = [n for n in post_order(after["main"].body) if isinstance(n, Function)]
    assert len(functions) == 1  # twice and its argument are gone
    # Once before the loop is entered, once in it.
    assert op_calls(after).count("tanh") == 4


def test_global_recursion_over_known_data():
    mod = parse_program("""
        type List[A] { Cons(A, List[A]), Nil }
        def @sum(%l: List[Tensor[(2,), float32]], %acc: Tensor[(2,), float32])
            -> Tensor[(2,), float32] {
          match (%l) { Cons(%h, %t) => { @sum(%t, add(%acc, %h)) }, Nil => { %acc } }
        }
        def @main(%x: Tensor[(2,), float32]) { @sum(Cons(%x, Cons(exp(%x), Nil())), %x) }""")
    after = PartialEval()(mod)
    check_values(mod, after)
    assert Match not in kinds(after)
    assert GlobalVar not in kinds(after)
    assert op_calls(after) == ["exp", "add", "add"]


def test_unknown_data_is_matched_at_run_time():
    mod = parse_program("""
        type Box { Some(Tensor[(2,), float32]), None }
        def @main(%x: Tensor[(2,), float32], %c: Tensor[(), bool]) {
          let %b = if (%c) { Some(%x) } else { None() };
          match (%b) { Some(%v) => { exp(%v) }, None => { tanh(%x) } }
        }""")
    after = PartialEval()(mod)
    check_values(mod, after)
    assert Match in kinds(after)


def test_effects_keep_their_order():
    mod = parse_program("""
        def @main(%x: Tensor[(2,), float32]) {
          let %r = ref(%x);
          let %bump = fn (%y: Tensor[(2,), float32]) {
            let %u = ref_write(%r, add(ref_read(%r), %y));
            ref_read(%r)
          };
          let %a = %bump(%x);
          let %b = %bump(exp(%x));
          multiply(%a, add(%b, ref_read(%r)))
        }""")
    after = PartialEval()(mod)
    check_values(mod, after)
    assert Function not in kinds(after)


def test_limits_leave_calls():
    text = """
        def @main(%x: Tensor[(2,), float32]) { @count(100, %x) }
        def @count(%n: Tensor[(), int32], %x: Tensor[(2,), float32]) -> Tensor[(2,), float32] {
          if (equal(%n, 0)) { %x } else { @count(subtract(%n, 1), tanh(%x)) }
        }"""
    mod = parse_program(text)
    part = PartialEval(max_depth=10)(mod)
    check_values(mod, part)
    assert op_calls(part) == ["tanh"] * 10
    whole = PartialEval(max_depth=200)(mod)
    check_values(mod, whole)
    assert op_calls(whole) == ["tanh"] * 100
    assert GlobalVar not in kinds(whole)


def test_branches_that_share_stay_apart():
    mod = parse_program("""
        def @main(%x: Tensor[(2,), float32], %c: Tensor[(), bool]) {
          let %f = fn (%y: Tensor[(2,), float32]) { exp(%y) };
          if (%c) { %f(%x) } else { add(%f(%x), %x) }
        }""")
    after = PartialEval()(mod)
    check_values(mod, after)
    assert kinds(after).count(If) == 1
    assert op_calls(after).count("exp") == 2


def test_long_programs():
    x = var("x", (2,))
    y = x
    for _ in range(3000):
        y = op.add(y, x)
    mod = infer_type(IRModule.from_expr(Function((x,), y)))
    after = PartialEval()(mod)
    assert kinds(after).count(Let) == 3000
    np.testing.assert_array_equal(evaluate(after, [np.ones(2, np.float32)]), [3001, 3001])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow],
          derandomize=True)
@given(mod=programs(control=True))
def test_random_programs(mod):
    after = PartialEval()(mod)
    check_values(mod, after, rtol=1e-4)
