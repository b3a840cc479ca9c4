"""Symbols: composition, names, attributes, control dependencies, mutation, and their programs."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.compat.symbol.operator import operator
from weft.graph.symbol import (
    AttrScope,
    Graph,
    Group,
    Symbol,
    Variable,
    from_module,
    name_prefix,
    op,
    to_module,
)
from weft.ir import OPS, assert_structural_equal, infer_type, parse
from weft.ir.expr import Tuple, Var, const
from weft.ir.types import TupleType
from weft.ir.typing.infer import infer_expr
from weft.support.errors import (
    AttrsError,
    InvalidModelError,
    OptionError,
    RegistryError,
    WeftError,
)
from weft.transform import evaluate

RNG = np.random.default_rng(5)


def mlp() -> Symbol:
    hidden = op.relu(op.dense(Variable("data"), units=8, name="fc1"), name="relu1")
    return op.softmax(op.dense(hidden, units=3, use_bias=False, name="fc2"), name="sm")


def test_inputs_that_are_not_given_become_variables():
    net = mlp()
    assert net.list_input_names() == ["data", "fc1_weight", "fc1_bias", "fc2_weight"]
    assert net.list_output_names() == ["sm_output"]
    assert net.name == "sm"


def test_internals_and_children():
    net = mlp()
    internals = net.get_internals()
    assert internals.list_output_names() == [
        "data", "fc1_weight", "fc1_bias", "fc1_output", "relu1_output", "fc2_weight",
        "fc2_output", "sm_output"]
    relu = internals["relu1_output"]
    assert relu.list_input_names() == ["data", "fc1_weight", "fc1_bias"]
    assert relu.get_children().list_output_names() == ["fc1_output"]
    assert net.get_children().get_children().list_output_names() == ["relu1_output", "fc2_weight"]
    assert internals["data"].get_children() is None
    with pytest.raises(OptionError, match="no result named 'relu2_output'"):
        internals["relu2_output"]


def test_results_of_one_node_and_of_groups_are_entries():
    parts = op.split(Variable("x"), indices_or_sections=2, axis=1, name="s")
    assert parts.list_output_names() == ["s_output0", "s_output1"]
    assert [p.entries[0].index for p in parts] == [0, 1]
    group = Group([parts[1], mlp()])
    assert group.list_output_names() == ["s_output1", "sm_output"]
    assert group.attr("name") is None
    with pytest.raises(OptionError, match="several results"):
        op.relu(parts)
    with pytest.raises(OptionError, match="a group of symbols is not one node"):
        _ = group.name


def test_graphs_compose_by_the_names_of_variables():
    first = op.dense(Variable("data"), units=10, name="fc1")
    second = op.relu(op.dense(Variable("data2"), units=10, name="fc2"))
    composed = second(data2=first, name="composed")
    assert composed.list_input_names() == ["data", "fc1_weight", "fc1_bias", "fc2_weight",
                                           "fc2_bias"]
    assert composed.name == "composed"
    assert second.list_input_names()[0] == "data2"  # a call composes a copy
    second.compose(first)
    assert second.list_input_names()[0] == "data"
    with pytest.raises(OptionError, match="there is no input 'dat'"):
        composed(dat=first)
    with pytest.raises(OptionError, match="a variable cannot be composed"):
        Variable("x").compose(first)


def test_operators_take_inputs_by_name():
    weight = Variable("w")
    made = op.dense(data=Variable("x"), weight=weight, units=2, name="fc")
    assert made.list_input_names() == ["x", "w", "fc_bias"]
    with pytest.raises(OptionError, match="there is no input 'weigth'"):
        op.dense(weigth=weight, units=2)
    with pytest.raises(OptionError, match="takes 1 inputs"):
        op.relu(weight, weight)
    with pytest.raises(AttrsError, match="'unit'"):
        op.dense(weight, unit=2)
    with pytest.raises(AttributeError, match="did you mean 'dense'"):
        _ = op.dens
    with pytest.raises(RegistryError, match="unknown operator"):
        operator("dens")


def test_attributes_of_nodes():
    with AttrScope(group="1", lr=0.5), AttrScope(group="2"):
        x = Variable("x", lr=2)
        y = op.dense(x, units=3, name="fc")
    assert x.list_attr() == {"group": "2", "lr": "2"}
    assert y.attr("units") == "3"
    assert y.attr("name") == "fc"
    assert y.attr("missing") is None
    y.set_attr(units=4, name="renamed", note="text")
    assert y.list_attr()["note"] == "text"
    assert y.list_output_names() == ["renamed_output"]
    assert y.list_attr(recursive=True)["x$lr"] == "2"
    # Variables made for an operator get the attributes of users.
    assert y.list_attr(recursive=True)["fc_weight$group"] == "2"
    with pytest.raises(AttrsError):
        y.set_attr(units="many")
    assert y.attr("units") == "4"


def test_automatic_names_differ_and_take_prefixes():
    with name_prefix("stage1_"):
        one, two = op.relu(Variable("x")), op.relu(Variable("x"))
    assert one.name != two.name
    assert one.name.startswith("stage1_relu")


def test_debug_text():
    x = Variable("x")
    y = op.elemwise_add(x, op.exp(x, name="e"), name="sum")
    y.add_control_deps(op.log(x, name="l"))
    assert y.debug_str() == (
        "Symbol Outputs:\n\toutput[0]=sum(0)\nVariable:x\n--------------------\n"
        "Op:exp, Name=e\nInputs:\n\targ[0]=x(0) version=0\n--------------------\n"
        "Op:log, Name=l\nInputs:\n\targ[0]=x(0) version=0\n--------------------\n"
        "Op:elemwise_add, Name=sum\nInputs:\n\targ[0]=x(0) version=0\n\targ[1]=e(0)\n"
        "Control deps:\n\tcdep[0]=l\n")
    assert x.debug_str() == "Variable:x\n"


def test_control_dependencies_become_control_edges():
    x = Variable("x", shape=(3,))
    first = op.log(x, name="first")
    y = op.exp(x, name="y")
    y.add_control_deps(first)
    assert [s.name for s in y.control_deps] == ["first"]
    mod = to_module(y.entries)
    assert "annotation.barrier" in str(mod)
    assert "log" in str(mod)
    with pytest.raises(InvalidModelError, match="makes a cycle"):
        first.add_control_deps(y)
    again, _ = from_module(mod)
    assert [s.name for s in again.get_children().control_deps] == ["log0"]
    assert_structural_equal(to_module(again.entries), mod)


def test_versions_order_mutations():
    w = Variable("w", shape=(2,))
    before = op.exp(w, name="before")
    step = op._assign(w, w * 0.5, name="step")
    after = op.exp(w, name="after")
    assert [e.version for e in (before.node.inputs[0], after.node.inputs[0])] == [0, 1]
    net = Group([after, before, step])
    assert net.list_input_names("aux_state") == ["w"]
    assert net.list_input_names("read_only") == []
    value = np.float32([2, 4])
    got = evaluate(to_module(net.entries), [value])
    for found, expected in zip(got, (np.exp(value / 2), np.exp(value), value / 2, value / 2),
                               strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    with pytest.raises(InvalidModelError, match="version 1 of the variable 'w' is not computed"):
        to_module(after.entries)
    with pytest.raises(InvalidModelError, match="only a variable can be mutated"):
        op._assign(before, w)


def test_mutated_variables_are_the_state_of_a_compiled_module():
    counter = Variable("count", shape=(1,))
    step = op._assign(counter, counter + 1.0, name="step")
    net = Group([op.elemwise_mul(step, Variable("x", shape=(1,)), name="y")])
    assert net.states() == {"count_next": "count"}
    mod = weft.compile(net, state=net.states())
    assert [s.name for s in mod.inputs] == ["x"]
    assert [float(mod(np.float32([10]))[0]) for _ in range(3)] == [10, 20, 30]


def test_moving_statistics_are_auxiliary_states_that_inference_keeps():
    net = op.batch_norm(Variable("x"), name="bn")
    assert net.list_input_names("aux_state") == ["bn_moving_mean", "bn_moving_var"]
    assert net.states() == {}
    assert net.to_module(inputs={"x": (1, 4, 2, 2)}).attrs["output_names"] == ("bn_output",)


def test_a_symbol_compiles():
    net = mlp()
    mod = weft.compile(net, inputs={"data": ("batch", 4)})
    assert [s.name for s in mod.inputs] == net.list_input_names()
    x, w1, b1, w2 = (RNG.normal(size=s).astype(np.float32)
                     for s in ((2, 4), (8, 4), (8,), (3, 8)))
    scores = np.maximum(x @ w1.T + b1, 0) @ w2.T
    expected = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    np.testing.assert_allclose(mod(x, w1, b1, w2), expected, rtol=1e-4)
    part = weft.compile(net.get_internals(), inputs={"data": (2, 4)}, outputs=["relu1_output"])
    np.testing.assert_allclose(part(x, w1, b1), np.maximum(x @ w1.T + b1, 0), rtol=1e-4)


def test_errors_of_programs():
    with pytest.raises(InvalidModelError, match="variables of unknown shape"):
        weft.compile(mlp())
    with pytest.raises(OptionError, match="no variable has this name"):
        to_module(mlp().entries, shapes={"dat": (2, 4)})
    twice = op.elemwise_add(Variable("x", shape=(2,)), Variable("x", shape=(2,)))
    with pytest.raises(InvalidModelError, match="several variables of one name"):
        to_module(twice.entries)


def test_numbers_keep_the_dtype_of_the_other_operand():
    x = Variable("x", shape=(2,), dtype="float16")
    mod = to_module((1.0 / (2 - x * 3.0) ** 2.0 + (-x)).entries)
    assert str(mod["main"].checked_type.ret_type) == "Tensor[(2,), float16]"
    value = np.float16([1, 0.5])
    np.testing.assert_allclose(evaluate(mod, [value]), 1 / (2 - value * 3) ** 2 - value, rtol=1e-2)


PROGRAM = """
def @main(%x: Tensor[(2, 6), float32], %i: Tensor[(2,), int32]) {
  %0 = reshape(%x, newshape=(3, 4));
  %1 = split(%0, indices_or_sections=2, axis=1);
  %2 = concatenate((%1.1, exp(%1.0)), axis=0);
  (add(%2, const([1, 2], (2,), float32)), take(%x, %i, axis=0), %1.0)
}"""


def test_programs_become_symbols_and_back():
    mod = infer_type(parse(PROGRAM))
    symbol, params = from_module(mod)
    assert symbol.list_input_names() == ["x", "const0", "i"]
    assert list(params) == ["const0"]
    again = Graph.from_json(Graph(symbol).json()).symbol
    back = to_module(again.entries, params=params)
    inputs = [RNG.normal(size=(2, 6)).astype(np.float32), np.int32([1, 0])]
    for got, expected in zip(evaluate(back, inputs), evaluate(mod, inputs), strict=True):
        np.testing.assert_array_equal(got, expected)
    loop = parse("def @main(%x: float32) { if (less(%x, 1f)) { %x } else { exp(%x) } }")
    with pytest.raises(InvalidModelError, match="a symbol is a graph of operators"):
        from_module(infer_type(loop))


def _typed_case(name: str, number: int):
    operator_, case = OPS.get(name), OPS.get(name).cases[number]

    def argument(value, position: int):
        dtype = case.dtypes[min(position, len(case.dtypes) - 1)]
        if isinstance(value, list):
            return Tuple(tuple(argument(v, position) for v in value))
        array = np.zeros(value, dtype) if isinstance(value, tuple) else np.asarray(value)
        return Var("x", const(array).tensor_type)

    args = [argument(v, i) for i, v in enumerate(case.inputs)]
    if operator_.inputs[:1] and operator_.inputs[0].startswith("*") \
            and not isinstance(args[0], Tuple):
        args = [Tuple(tuple(args))]
    return infer_expr(operator_(*args, **case.attrs), trust=True)


def test_the_numbers_of_results_are_those_of_inference():
    compared = 0
    for name in OPS:
        for number in range(len(OPS.get(name).cases)):
            try:
                call = _typed_case(name, number)
            except (WeftError, TypeError):
                continue  # operands that this test does not build
            type_ = call.checked_type
            count = len(type_.fields) if isinstance(type_, TupleType) else 1
            symbol = operator(f"weft.{name}")
            first = call.args[0] if call.args else None
            inputs = len(first.fields) if isinstance(first, Tuple) else 1
            outputs = 1 if symbol.outputs is None else symbol.outputs(call.attrs, inputs)
            assert outputs == count, name
            compared += 1
    assert compared > 500
