"""The sixteen kinds of Relay's patterns, dominators, and partition."""

from __future__ import annotations

import numpy as np
import pytest

from weft import op
from weft.ir import (
    Call,
    Function,
    If,
    IRModule,
    Let,
    TensorType,
    Tuple,
    TupleGetItem,
    Var,
    const,
    infer_expr,
    var,
    verify_module,
)
from weft.ir.rewrite import pattern as p
from weft.ir.rewrite.matcher import match
from weft.ir.rewrite.partition import partition
from weft.ir.text.parser import parse_expr
from weft.ir.visitor import post_order
from weft.transform.analysis.reference import evaluate

X, Y = var("x", (2, 3)), var("y", (2, 3))
FN = Function((X,), op.nn.relu(X), attrs={"Compiler": "mine"})
V = Var("v")


@pytest.mark.parametrize(
    ("term", "yes", "no"),
    [
        (p.any_(), X, None),  # WildcardPattern
        (p.expr_(op.exp(X)), op.exp(X), op.exp(Y)),  # ExprPattern
        (p.var_(), X, const(1.0)),  # VarPattern
        (p.const(), const(1.0), X),  # ConstantPattern
        (p.op_("add")(p.any_(), p.any_()), op.add(X, Y), op.subtract(X, Y)),  # CallPattern
        (p.var_()(p.any_()), Call(V, (X,)), op.exp(X)),
        (p.function([p.var_()], op.nn.relu(p.any_())), FN, Function((X, Y), op.nn.relu(X))),
        (p.function(None, op.nn.relu(p.any_())), Function((X, Y), op.nn.relu(X)), X),
        (p.if_(p.var_(), p.any_(), p.const()), If(V, X, const(1.0)), If(V, X, X)),  # IfPattern
        (p.let_(p.var_(), p.const(), p.any_()), Let(V, const(1), V), Let(V, X, V)),  # LetPattern
        (p.tuple_(p.any_(), p.const()), Tuple((X, const(1))), Tuple((X,))),  # TuplePattern
        (p.any_tuple(), Tuple((X, Y, X)), X),
        (p.field(p.any_tuple(), 1), TupleGetItem(Tuple((X, Y)), 1), TupleGetItem(Tuple((X,)), 0)),
        (p.field(p.any_()), TupleGetItem(X, 7), X),  # TupleGetItemPattern
        (op.exp(p.any_()) | op.tanh(p.any_()), op.tanh(X), op.sin(X)),  # AltPattern
        (p.any_().of_type(TensorType.of((2, 3))), X, var("z", (2,))),  # TypePattern
        (p.any_().of_dtype("float32"), X, var("z", (2,), "int8")),  # DataTypePattern
        (p.any_().of_shape(2, None), X, var("z", (3, 3))),  # ShapePattern
        (p.any_().of_shape("n"), var("z", ("n",)), var("z", ("m",))),
        (p.any_().with_attr("axis", -1), op.nn.softmax(X), op.nn.softmax(X, axis=0)),
        (p.any_().with_attr("Compiler", "mine"), FN, Function((X,), X)),  # AttrPattern
        (p.any_().with_attr("axis", lambda a: a < 0), op.nn.softmax(X), op.exp(X)),
    ],
)
def test_kinds(term, yes, no):
    assert match(term, yes) is not None
    assert no is None or match(term, no) is None


def test_parts_are_captured_in_every_kind():
    term = p.function([p.var_("param")], p.if_(p.any_("c"), p.any_("t"), p.any_("e")))
    fn = Function((X,), If(V, X, Y))
    assert match(term, fn) == {"param": X, "c": V, "t": X, "e": Y}
    assert set(p.captured_names(term)) == {"param", "c", "t", "e"}


def diamond():
    conv = op.nn.relu(X)
    left, right = op.exp(conv), op.tanh(conv)
    return conv, left, op.add(left, right)


ELEMWISE = p.call([op.exp, op.tanh, op.negative], p.any_())
RELU_TO_ADD = op.nn.relu(p.any_("in")).named("parent").dominates(ELEMWISE, p.any_() + p.any_())


def test_a_dominator_holds_over_a_diamond():
    conv, _, total = diamond()
    assert match(RELU_TO_ADD, total) == {"in": X, "parent": conv}


def test_a_dominator_fails_where_a_use_leads_past_the_child():
    conv, left, total = diamond()
    assert match(RELU_TO_ADD, total, root=Tuple((total, conv))) is None
    assert match(RELU_TO_ADD, total, root=Tuple((total, left))) is None
    assert match(RELU_TO_ADD, total, root=Tuple((total, op.sin(total)))) is not None


def test_a_dominator_fails_where_the_path_does_not_match():
    conv = op.nn.relu(X)
    assert match(RELU_TO_ADD, op.add(op.exp(conv), op.sin(conv))) is None
    assert match(RELU_TO_ADD, op.add(op.exp(X), X)) is None


def test_a_dominator_over_a_long_path():
    body = op.nn.relu(X)
    for _ in range(3_000):
        body = op.negative(body)
    assert match(RELU_TO_ADD, op.add(body, Y)) is not None


DENSE_RELU = op.nn.relu(op.nn.dense(p.any_("x"), p.const("w")))
SOURCE = """
fn (%x: Tensor[(2, 4), float32]) {
  nn.relu(nn.dense(%x, const([1, 2, 3, 4], (1, 4), float32)))
}
"""


def functions(expr):
    return [n for n in post_order(expr) if isinstance(n, Function) and n is not expr]


def test_partition_makes_functions():
    fn = infer_expr(parse_expr(SOURCE))
    cut = partition(fn, DENSE_RELU, attrs={"Composite": "dense_relu"})
    (inner,) = functions(cut)
    assert inner.attrs == {
        "PartitionedFromPattern": "nn.dense_nn.relu_",
        "Composite": "dense_relu",
    }
    assert len(inner.params) == 1  # the constant is inside
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    mod = IRModule.from_expr(infer_expr(cut))
    verify_module(mod)
    np.testing.assert_array_equal(evaluate(mod, [x]), evaluate(fn, [x]))


def test_partition_respects_uses_check_and_order():
    twice = p.call([op.exp], p.call([op.exp], p.any_()))
    inner = op.exp(X)
    used_elsewhere = Function((X,), Tuple((op.exp(inner), inner)))
    assert partition(used_elsewhere, twice) is used_elsewhere
    chain = Function((X,), op.exp(op.exp(op.exp(X))))
    cut = partition(chain, twice)
    assert isinstance(cut.body.op, Function)  # the outermost match, and what is left of it
    assert len(functions(cut)) == 1
    assert cut.body.args[0].op is op.exp
    assert partition(chain, twice, check=lambda _: False) is chain


def test_partition_shares_inputs_and_follows_dominators():
    _, _, total = diamond()
    cut = partition(Function((X,), total), RELU_TO_ADD)
    (inner,) = functions(cut)
    assert len(inner.params) == 1
    assert inner.attrs["PartitionedFromPattern"] == "nn.relu_exp_tanh_add_"


def test_constants_may_be_in_several_partitions():
    one = const(np.ones((2, 3), np.float32))
    body = Tuple((op.exp(op.add(X, one)), op.exp(op.add(Y, one))))
    cut = partition(Function((X, Y), body), op.exp(op.add(p.any_(), p.const())))
    assert len(functions(cut)) == 2
