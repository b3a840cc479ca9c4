"""Passes over functions: inlining, lifting of closures, normal forms with scopes."""

from __future__ import annotations

import pytest

from tests.unit.transform.helpers import check_example, check_values, op_calls, parse_program
from weft.ir.expr import Function
from weft.ir.visitor import post_order
from weft.transform.normal_form.lambda_lift import LambdaLift
from weft.transform.normal_form.to_basic_block_normal_form import ToBasicBlockNormalForm
from weft.transform.passes.inline import Inline

LOOP = """
    def @main(%n: Tensor[(), int32], %x: Tensor[(2,), float32]) -> Tensor[(2,), float32] {
      let %step = fn (%y: Tensor[(2,), float32]) { add(%y, %x) };
      let %loop = fn (%k: Tensor[(), int32], %acc: Tensor[(2,), float32])
          -> Tensor[(2,), float32] {
        if (less(%k, 3)) { %loop(add(%k, 1), %step(%acc)) } else { multiply(%acc, %x) }
      };
      %loop(%n, exp(%x))
    }"""
ESCAPING = """
    def @main(%x: Tensor[(2,), float32]) {
      let %twice = fn (%f: fn (Tensor[(2,), float32]) -> Tensor[(2,), float32],
                       %v: Tensor[(2,), float32]) { %f(%f(%v)) };
      let %plus = fn (%y: Tensor[(2,), float32]) { add(%y, %x) };
      (%twice(%plus, %x), %twice(fn (%z: Tensor[(2,), float32]) { exp(%z) }, %x))
    }"""


@pytest.mark.parametrize(
    "pass_", [Inline(), LambdaLift(), ToBasicBlockNormalForm()], ids=str
)
def test_example(pass_):
    check_example(pass_)


def _closures(mod):
    return [n for n in post_order(mod["main"].body) if isinstance(n, Function)]


def test_loops_are_lifted_whole():
    mod = parse_program(LOOP)
    after = LambdaLift()(mod)
    check_values(mod, after)
    assert list(after.functions) == ["main", "lifted_step", "lifted_loop"]
    assert not _closures(after)
    assert len(after["lifted_loop"].params) == 3


def test_escaping_closures_keep_one_call():
    mod = parse_program(ESCAPING)
    after = LambdaLift()(mod)
    check_values(mod, after)
    (closure,) = _closures(after)
    assert closure.body.op.name == "lifted_plus"
    assert LambdaLift()(after) is after


def test_lifting_a_closure_inside_a_closure_takes_what_the_outer_one_binds():
    mod = parse_program("""
        def @main(%x: Tensor[(2,), float32]) {
          let %outer = fn (%y: Tensor[(2,), float32]) {
            let %inner = fn (%z: Tensor[(2,), float32]) { add(multiply(%z, %y), %x) };
            %inner(%inner(%y))
          };
          %outer(exp(%x))
        }""")
    after = LambdaLift()(mod)
    check_values(mod, after)
    assert [len(f.params) for f in after.functions.values()] == [1, 3, 2]


def test_inlining_after_lifting_gives_back_one_function():
    mod = parse_program(LOOP)
    after = Inline(functions=("lifted_step", "lifted_loop"))(LambdaLift()(mod))
    check_values(mod, after)
    assert op_calls(after) == ["exp"]  # the loop is recursive and stays
    assert "lifted_step" not in str(after["lifted_loop"])


def test_arguments_with_effects_are_evaluated_once_and_in_order():
    mod = parse_program("""
        def @main(%x: Tensor[(2,), float32]) {
          let %r = ref(%x);
          let %a = @twice(ref_read(%r));
          let %u = ref_write(%r, exp(%x));
          add(%a, ref_read(%r))
        }
        def @twice(%y: Tensor[(2,), float32], inline=True) { add(%y, %y) }""")
    after = Inline()(mod)
    check_values(mod, after)
    assert "@twice" not in str(after["main"])


def test_limits_of_inlining():
    text = """
        def @main(%x: Tensor[(2,), float32]) { add(@f(%x), @g(@g(%x))) }
        def @f(%x: Tensor[(2,), float32]) { tanh(exp(%x)) }
        def @g(%x: Tensor[(2,), float32]) { negative(exp(%x)) }"""
    mod = parse_program(text)
    assert Inline()(mod) is mod
    assert op_calls(Inline(single_use=True)(mod)) == ["exp", "tanh", "add"]
    every = Inline(max_nodes=4)(mod)
    check_values(mod, every)
    assert op_calls(every) == ["exp", "tanh", "exp", "negative", "exp", "negative", "add"]


def test_blocks_name_what_a_closure_or_branch_reads():
    mod = parse_program("""
        def @main(%x: Tensor[(2,), float32], %c: Tensor[(), bool]) {
          %0 = exp(%x);
          %1 = tanh(%0);
          let %f = fn (%y: Tensor[(2,), float32]) { add(%y, %1) };
          if (%c) { %f(%0) } else { negative(multiply(%x, %x)) }
        }""")
    after = ToBasicBlockNormalForm()(mod)
    check_values(mod, after)
    lets = [n.value for n in post_order(after["main"].body) if type(n).__name__ == "Let"]
    assert sorted(type(v).__name__ for v in lets) == ["Call", "Function"]
    flat = parse_program("def @main(%x: Tensor[(2,), float32]) { %0 = exp(%x); add(%0, %0) }")
    assert ToBasicBlockNormalForm()(flat) is flat
