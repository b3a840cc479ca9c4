"""Continuation-passing style and back."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from tests.unit.transform.helpers import check_values, example_of, parse_program
from tests.unit.transform.random_programs import programs
from tests.unit.transform.test_functions import ESCAPING, LOOP
from weft.ir.expr import Call, Constructor, Let
from weft.ir.op import Op
from weft.ir.passes import parse_pipeline
from weft.ir.structural import assert_structural_equal
from weft.ir.verify import verify_module
from weft.ir.visitor import post_order
from weft.support.errors import PassError
from weft.transform.normal_form.to_cps import ToCPS
from weft.transform.normal_form.un_cps import UnCPS


def test_examples():
    before, after = example_of(ToCPS)
    assert_structural_equal(ToCPS()(before), after)
    before, after = example_of(UnCPS)
    assert_structural_equal(UnCPS()(before), after)
    plain = parse_program("def @main(%x: Tensor[(2,), float32]) { exp(%x) }")
    assert UnCPS()(plain) is plain


@pytest.mark.parametrize("text", [LOOP, ESCAPING], ids=["loop", "escaping"])
def test_there_and_back(text):
    mod = parse_program(text)
    cps = ToCPS()(mod)
    verify_module(cps)
    for fn in cps.functions.values():
        for node in post_order(fn):
            if isinstance(node, Let) and isinstance(node.value, Call):
                assert isinstance(node.value.op, (Op, Constructor))  # all other calls are last
    check_values(mod, UnCPS()(cps))


def test_data_and_mutual_recursion():
    mod = parse_program("""
        type List[A] { Cons(A, List[A]), Nil }
        def @even(%l: List[Tensor[(2,), float32]], %a: Tensor[(2,), float32])
            -> Tensor[(2,), float32] {
          match (%l) { Cons(%h, %t) => { add(@odd(%t, %a), %h) }, Nil => { %a } }
        }
        def @odd(%l: List[Tensor[(2,), float32]], %a: Tensor[(2,), float32])
            -> Tensor[(2,), float32] {
          match (%l) { Cons(%h, %t) => { multiply(@even(%t, tanh(%a)), %h) }, Nil => { %a } }
        }
        def @main(%x: Tensor[(2,), float32]) {
          @even(Cons(%x, Cons(exp(%x), Cons(tanh(%x), Nil()))), %x)
        }""")
    check_values(mod, UnCPS()(ToCPS()(mod)))


def test_functions_in_data_are_refused():
    mod = parse_program("""
        type Box { Some(fn (Tensor[(2,), float32]) -> Tensor[(2,), float32]) }
        def @main(%x: Tensor[(2,), float32]) { %x }""")
    with pytest.raises(PassError, match="holds functions"):
        ToCPS()(mod)


def test_functions_with_continuations_are_not_converted_again():
    mod = parse_program("def @main(%x: Tensor[(2,), float32]) { exp(%x) }")
    cps = ToCPS()(mod)
    assert ToCPS()(cps) is cps
    with pytest.raises(PassError, match="mixes CPS"):
        ToCPS()(UnCPS()(cps))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow],
          derandomize=True)
@given(mod=programs(control=True))
def test_random_programs(mod):
    check_values(mod, parse_pipeline("to_cps,un_cps")(mod), rtol=1e-4)
