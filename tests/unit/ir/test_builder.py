"""Python's operators on expressions, scopes, and the records that calls are made of."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from weft import op
from weft.ir import (
    OPS,
    Call,
    Constant,
    Function,
    IRModule,
    Let,
    ScopeBuilder,
    Tuple,
    Var,
    const,
    define_op,
    infer_expr,
    var,
)
from weft.ir.types import TensorType, TupleType
from weft.ir.typing.relations import identity_relation
from weft.support.errors import AttrsError, RegistryError

X, Y = var("x", (2, 2)), var("y", (2, 2))


@pytest.mark.parametrize(
    ("expr", "name"),
    [
        (X + Y, "add"),
        (1.0 + X, "add"),
        (X - 1.0, "subtract"),
        (1.0 - X, "subtract"),
        (X * Y, "multiply"),
        (2.0 / X, "divide"),
        (X**2.0, "power"),
        (X @ Y, "nn.matmul"),
        (-X, "negative"),
        (abs(X), "abs"),
        (X < Y, "less"),
        (X >= Y, "greater_equal"),
        ((X < Y) & (Y < X), "logical_and"),
        (~(X < Y), "logical_not"),
        (np.ones((2, 2), np.float32) * X, "multiply"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_operators_build_calls(expr, name):
    assert expr.op.name == name
    infer_expr(expr)


def test_reflected_operators_keep_the_order():
    assert isinstance((1.0 - X).args[0], Constant)


def test_equality_is_identity():
    assert X == X
    assert (X == Y) is False
    assert len({X, Y, X}) == 2


def test_items_of_tuples_and_no_iteration():
    item = Tuple((X, Y))[1]
    assert item.index == 1
    with pytest.raises(TypeError, match="iterated"):
        list(X)
    with pytest.raises(TypeError, match="iterated"):
        list(op.exp(X))
    with pytest.raises(TypeError, match="iterated"):
        list(Var("unknown"))


def test_tuples_are_unpacked_where_their_length_is_known():
    a, b = Tuple((X, Y))
    assert (a, b) == (X, Y)
    pair = Var("pair", TupleType((TensorType.of((2,)), TensorType.of((3,)))))
    _, second = pair
    assert (second.tuple_value, second.index) == (pair, 1)
    parts = op.split(var("x", (6, 2)), indices_or_sections=3, axis=0)
    first, _, third = parts
    assert str(infer_expr(first + third).checked_type) == "Tensor[(2, 2), float32]"
    assert first.tuple_value is parts


def test_scopes_become_lets():
    scope = ScopeBuilder()
    h = scope.let("h", op.exp(X))
    g = scope.let(Var("g"), h + Y)
    body = scope.get(g * h)
    assert isinstance(body, Let)
    assert body.var is h
    assert body.body.var is g
    assert (
        str(infer_expr(Function((X, Y), body)).checked_type.ret_type) == "Tensor[(2, 2), float32]"
    )


def test_calls_check_number_and_attributes():
    with pytest.raises(AttrsError, match="takes 2 arguments"):
        op.add(X)
    with pytest.raises(AttrsError, match="no attribute"):
        op.exp(X, axis=1)


def test_operators_are_defined_once_and_documented():
    def compute(x, attrs):
        """Nothing."""

    made = define_op("test.defined_once", relation=identity_relation)(compute)
    try:
        assert made.inputs == ("x",)
        with pytest.raises(RegistryError, match="registered twice"):
            define_op("test.defined_once", relation=identity_relation)(compute)
    finally:
        OPS.remove("test.defined_once")
    with pytest.raises(RegistryError, match="missing docstring"):
        define_op("test.undocumented", relation=identity_relation)(lambda x, attrs: x)


def test_spans_point_at_the_line_of_the_caller():
    call = op.exp(X)
    assert call.span.source == __file__
    assert "test_builder.py" in str(call.span)


def test_constants_are_read_only_and_python_numbers_are_narrow():
    data = np.ones(3)
    made = const(data)
    with pytest.raises(ValueError, match="read-only"):
        made.data[0] = 2
    data[0] = 5.0
    assert made.data[0] == 1.0
    assert const(1.5).data.dtype == np.float32
    assert const(3).data.dtype == np.int32
    assert const(np.float64(1.5)).data.dtype == np.float64
    assert const(1, "int8").data.dtype == np.int8


def test_operators_survive_copies_and_pickles_as_themselves():
    call = Call(op.exp, (X,))
    assert copy.deepcopy(call).op is op.exp
    assert pickle.loads(pickle.dumps(call)).op is op.exp


def test_missing_functions_are_named():
    with pytest.raises(RegistryError, match="unknown function @nobody"):
        IRModule.from_expr(X)["nobody"]
