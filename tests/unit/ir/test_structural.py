"""Structural equality and hashes."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings

from tests.unit.ir.programs import modules
from weft import op
from weft.ir import (
    Constant,
    Function,
    IRModule,
    Let,
    TensorType,
    Var,
    assert_structural_equal,
    const,
    parse,
    structural_equal,
    structural_hash,
    var,
)
from weft.ir.structural import StructuralMismatchError
from weft.ir.text.parser import parse_expr
from weft.ir.visitor import post_order, rewrite_post_order


def fn(text: str):
    return parse_expr(f"fn (%x: Tensor[(2,), float32], %y: Tensor[(2,), float32]) {{ {text} }}")


def same(a, b) -> bool:
    equal = structural_equal(a, b)
    assert (structural_hash(a) == structural_hash(b)) == equal
    assert structural_equal(b, a) == equal
    return equal


def test_names_of_bound_variables_do_not_count():
    other = parse_expr("fn (%a: Tensor[(2,), float32], %b: Tensor[(2,), float32]) { add(%a, %b) }")
    assert same(fn("add(%x, %y)"), other)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("add(%x, %y)", "add(%y, %x)"),
        ("add(%x, %y)", "subtract(%x, %y)"),
        ("nn.softmax(%x, axis=0)", "nn.softmax(%x, axis=-1)"),
        ("(%x, %y)", "(%x, %y, %x)"),
        ("(%x, %y).0", "(%x, %y).1"),
        ("add(%x, 1f)", "add(%x, 2f)"),
        ("add(%x, 1f)", "add(%x, 1f64)"),
        ("{ %0 = exp(%x); add(%0, %0) }", "add(exp(%x), exp(%x))"),
        ("{ let %v = exp(%x); add(%v, %y) }", "{ let %v = exp(%x); add(%y, %v) }"),
        ("fn (%p: int8) { %p }", "fn (%p: int32) { %p }"),
        ("fn (%p: int8) { %p }", "fn (%p: int8, a=1) { %p }"),
        ("fn (%p: int8) { %p }", "fn (%p: int8) -> int8 { %p }"),
        ("fn (%p: int8, a=1) { %p }", "fn (%p: int8, a=True) { %p }"),
        ("fn (%p: int8) { %p }", "fn (%p: int8, %q: int8) { %p }"),
        ("exp(%x)", "%x"),
    ],
)
def test_what_differs(left, right):
    assert same(fn(left), fn(left))
    assert not same(fn(left), fn(right))


def test_the_path_leads_to_the_first_difference():
    left, right = fn("add(%x, exp(tanh(%y)))"), fn("add(%x, exp(sin(%y)))")
    with pytest.raises(StructuralMismatchError) as caught:
        assert_structural_equal(left, right)
    assert caught.value.where == ".body.add[1].exp[0]"
    assert (caught.value.got, caught.value.expected) == ("tanh(%y)", "sin(%y)")


def test_attributes_that_differ_are_shown():
    with pytest.raises(StructuralMismatchError) as caught:
        assert_structural_equal(fn("nn.softmax(%x, axis=0)"), fn("nn.softmax(%x, axis=1)"))
    assert "'axis':int:0" in caught.value.got


def test_copies_of_constants_are_equal_and_nan_equals_nan():
    x = var("x", (2,))
    one = const(np.array([np.nan, 0.0], np.float32))
    two = Constant(one.data.copy())
    assert same(
        Function((x,), op.add(op.add(x, one), one)), Function((x,), op.add(op.add(x, one), two))
    )
    minus = const(np.array([np.nan, -0.0], np.float32))
    assert not same(Function((x,), op.add(x, one)), Function((x,), op.add(x, minus)))


def test_free_variables_are_themselves():
    x, y = var("x", (2,)), var("x", (2,))
    assert structural_equal(op.exp(x), op.exp(x))
    assert not structural_equal(op.exp(x), op.exp(y))
    assert structural_equal(op.exp(x), op.exp(y), map_free_vars=True)
    assert not structural_equal(op.add(x, x), op.add(x, y), map_free_vars=True)
    assert not structural_equal(op.exp(x), op.exp(var("x", (3,))), map_free_vars=True)


def test_type_parameters_are_equal_up_to_names():
    assert same(parse_expr("fn [T](%x: T) -> T { %x }"), parse_expr("fn [U](%x: U) -> U { %x }"))
    assert not same(
        parse_expr("fn [T, U](%x: T) -> T { %x }"), parse_expr("fn [T, U](%x: U) -> U { %x }")
    )


def test_modules_compare_functions_types_and_attributes():
    text = "type L[A] { C(A), N, }\ndef @main() { N() }\n"
    assert same(parse(text), parse(text.replace("[A]", "[B]").replace("(A)", "(B)")))
    assert not same(parse(text), parse(text.replace("C(A)", "C(A, A)")))
    assert not same(parse(text), parse(text).with_attrs(input_names=("x",)))
    assert not same(parse(text), parse(text + "def @more() { 1f }"))


def test_values_have_hashes_too():
    assert same(TensorType.of((2, "n")), TensorType.of((2, "n")))
    assert not same(TensorType.of((2, "n")), TensorType.of((2, "m")))
    softmax = op.nn.softmax.attrs_type
    assert same(softmax(axis=1), softmax(axis=1))
    assert not same(softmax(axis=1), softmax(axis=2))


def test_the_hash_is_the_same_in_another_process():
    program = (
        "import weft.op; from weft.ir import parse, structural_hash\n"
        "print(structural_hash(parse('def @main(%x: Tensor[(2,), float32])"
        " { nn.softmax(add(%x, 1f), axis=-1) }')))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": "."},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1


@given(modules())
@settings(max_examples=40, deadline=None)
def test_a_rebuilt_copy_is_equal_and_a_changed_one_is_not(mod):
    main = mod["main"]

    def fresh(node):
        return node.replace(span=mod["main"].span) if isinstance(node, Constant) else node

    copy = rewrite_post_order(main, fresh)
    assert same(mod, mod.with_function("main", copy))
    changed = main.replace(body=op.exp(main.body))
    assert not same(mod, mod.with_function("main", changed))


def test_lets_compare_by_binding():
    x = var("x", (2,))
    a, b = Var("a"), Var("b")
    left = Function((x,), Let(a, op.exp(x), op.add(a, x)))
    right = Function((x,), Let(b, op.exp(x), op.add(b, x)))
    assert structural_equal(left, right)
    assert len(list(post_order(left))) == len(list(post_order(right)))
    assert structural_equal(IRModule.from_expr(left), IRModule.from_expr(right))
