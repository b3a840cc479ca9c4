"""Programs 100,000 nodes deep: nothing recurses over them, and every walk is linear."""

from __future__ import annotations

import sys
import time

import pytest

from weft import op
from weft.ir import (
    Call,
    Expr,
    Function,
    If,
    IRModule,
    Let,
    RuleSet,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Type,
    Var,
    apply_rules,
    assert_structural_equal,
    const,
    infer_expr,
    infer_type,
    parse,
    parse_type,
    rule,
    structural_hash,
    var,
    verify_module,
)
from weft.ir.json.format import load_json, save_json
from weft.ir.rewrite.pattern import any_
from weft.ir.visitor import free_vars, post_order, substitute
from weft.support.errors import TypeInferenceError

DEPTHS = [10_000, pytest.param(100_000, marks=pytest.mark.slow)]


def call_chain(depth: int) -> IRModule:
    x = var("x", (2, 3))
    body: Expr = x
    for _ in range(depth):
        body = Call(op.nn.relu, (body,))
    return IRModule.from_expr(Function((x,), body))


def let_chain(depth: int) -> IRModule:
    x = var("x", (2, 3))
    names = [Var(f"v{i}") for i in range(depth)]
    body: Expr = names[-1]
    for name, before in zip(reversed(names), reversed([x, *names[:-1]]), strict=True):
        body = Let(name, Call(op.exp, (before,)), body)
    return IRModule.from_expr(Function((x,), body))


def lambda_chain(depth: int) -> IRModule:
    """The type flows in from the call, through relations that all had to wait."""
    x, y = var("x", (2, 3)), Var("y")
    body: Expr = y
    for _ in range(depth):
        body = Call(op.nn.relu, (body,))
    return IRModule.from_expr(Function((x,), Call(Function((y,), body), (x,))))


@pytest.mark.sample(0.2, 1)
@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("make", [call_chain, let_chain, lambda_chain])
def test_inference_is_deep_and_keeps_what_is_typed(make, depth):
    typed = infer_type(make(depth))
    assert str(typed["main"].checked_type.ret_type) == "Tensor[(2, 3), float32]"
    assert infer_type(typed) is typed
    verify_module(typed)


@pytest.mark.sample(0.2, 1)
@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("make", [call_chain, let_chain])
def test_text_equality_and_hash_are_deep(make, depth):
    mod = make(depth)
    again = parse(str(mod))
    assert_structural_equal(mod, again)
    assert structural_hash(mod) == structural_hash(again)


def tuple_nest(depth: int) -> IRModule:
    x = var("x", (2,))
    body: Expr = x
    for _ in range(depth):
        body = Tuple((body,))
    return IRModule.from_expr(Function((x,), body))


def doubling(depth: int) -> IRModule:
    """Two to the power of ``depth`` paths, in values and in the type."""
    x = var("x", (2,))
    body: Expr = x
    for _ in range(depth):
        body = Tuple((body, body))
    return IRModule.from_expr(Function((x,), body))


@pytest.mark.parametrize(("make", "depth"), [(tuple_nest, 10_000), (doubling, 60)])
def test_deep_and_shared_tuples(make, depth):
    mod = make(depth)
    typed = infer_type(mod)
    assert infer_type(typed) is typed
    verify_module(typed)
    again = infer_type(parse(str(typed)))
    assert_structural_equal(again, typed)
    assert structural_hash(again) == structural_hash(typed)
    assert again["main"].checked_type == typed["main"].checked_type
    assert_structural_equal(load_json(save_json(typed)), mod)


@pytest.mark.slow
def test_deep_types_are_written_and_read():
    deep = infer_type(tuple_nest(5_000))["main"].checked_type.ret_type
    y = Var("y", deep)
    mod = infer_type(IRModule.from_expr(Function((y,), y, deep)))
    assert parse_type(str(deep)) == deep
    assert_structural_equal(parse(str(mod)), mod)
    assert load_json(save_json(mod))["main"].ret_type == deep


def test_deep_types_flow_into_what_is_not_annotated():
    nested = infer_type(tuple_nest(5_000))["main"]
    y = Var("y")
    body: Expr = y
    for _ in range(5_000):
        body = TupleGetItem(body, 0)
    called = Call(Function((y,), body), (nested.body,))
    typed = infer_type(IRModule.from_expr(Function(nested.params, called)))
    assert str(typed["main"].checked_type.ret_type) == "Tensor[(2,), float32]"


def test_sharing_in_calls_is_walked_once():
    x = var("x", (2,))
    body: Expr = x
    for _ in range(60):
        body = Call(op.add, (body, body))
    typed = infer_type(IRModule.from_expr(Function((x,), body)))
    rewritten = apply_rules(typed["main"], RuleSet(relu_twice))
    assert rewritten is typed["main"]
    assert substitute(body, {x: var("z", (2,))}) is not body
    assert_structural_equal(parse(str(typed)), typed)


def test_nested_branches_print_and_parse():
    x, cond = var("x", (2,)), var("c", (), "bool")
    body: Expr = x
    for _ in range(2_000):
        body = If(cond, body, Call(op.exp, (x,)))
    mod = IRModule.from_expr(Function((x, cond), body))
    assert_structural_equal(parse(str(mod)), mod)


def test_nested_calls_in_text_parse():
    text = "def @main(%x: float32) { " + "exp(" * 20_000 + "%x" + ")" * 20_000 + " }"
    assert sum(isinstance(n, Call) for n in post_order(parse(text)["main"])) == 20_000


def test_substitution_is_deep():
    fn = call_chain(100_000)["main"]
    z = var("z", (2, 3))
    assert free_vars(substitute(fn.body, {fn.params[0]: z})) == (z,)


@rule(op.nn.relu(op.nn.relu(any_("x"))))
def relu_twice(x: Expr) -> Expr:
    """Two are one."""
    return op.nn.relu(x)


def test_rules_apply_deep():
    fn = infer_type(call_chain(10_000))["main"]
    rewritten = apply_rules(fn, RuleSet(relu_twice))
    assert rewritten.body.args[0] is fn.params[0]


def test_inference_takes_time_in_proportion():
    # Minima of several runs; a factor of 4 leaves room for a busy machine, n**2 would be 10.
    def seconds(depth: int) -> float:
        best = float("inf")
        for _ in range(3):
            mod = lambda_chain(depth)
            start = time.process_time()
            infer_type(mod)
            best = min(best, time.process_time() - start)
        return best / depth

    assert seconds(10_000) < 4 * seconds(1_000)
    assert sys.getrecursionlimit() <= 2_000


def nested_type(size: int | None, depth: int) -> Type:
    type_: Type = TensorType.of((size,))
    for _ in range(depth):
        type_ = TupleType((type_,))
    return type_


def test_deep_types_unify_join_and_are_reported():
    known, open_ = nested_type(3, 10_000), nested_type(None, 10_000)
    x = Var("x", known)
    infer_expr(Call(Function((Var("y", open_),), const(1.0)), (x,)))
    joined = infer_expr(If(const(True), x, Var("z", open_))).checked_type
    assert joined == open_
    other = Function((Var("y", nested_type(4, 10_000)),), const(1.0))
    with pytest.raises(TypeInferenceError, match="axis 0: 4 against 3") as caught:
        infer_expr(Call(other, (x,)))
    assert len(str(caught.value)) < 6_000


def test_lets_nested_in_values():
    x = var("x", (2,))
    body: Expr = x
    for index in range(2_000):
        v = Var(f"v{index}")
        body = Let(v, body, Call(op.exp, (v,)))
    typed = infer_type(IRModule.from_expr(Function((x,), body)))
    text = str(typed)
    assert len(text) < 2_000 * 500  # margins are bounded
    assert_structural_equal(parse(text), typed)
