"""The graph optimiser: rounds, stages, effects, commutative operators; pruning of control edges."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from hypothesis import given, settings

from tests.unit.transform.effect_operators import (
    Effects,
    programs_with_effects,
    recording,
)
from tests.unit.transform.helpers import check_example, check_values, op_calls, parse_program
from tests.unit.transform.random_programs import programs
from weft import op
from weft.ir import IRModule, infer_type, parse_pipeline, structural_equal
from weft.ir.expr import Call, Function, Tuple, Var, const, var
from weft.ir.op import OPS, Op
from weft.ir.traits import Commutativity
from weft.ir.types import TensorType
from weft.ir.typing.infer import infer_expr
from weft.ir.visitor import post_order
from weft.support.errors import OptionError, PassError, WeftError
from weft.transform import GraphOptimizer, PruneControlEdges
from weft.transform.analysis.reference import evaluate_call

X = [np.linspace(-1, 1, 4, dtype=np.float32), np.linspace(2, -2, 4, dtype=np.float32)]


@pytest.fixture(scope="module")
def effects():
    with recording() as found:
        yield found


@pytest.mark.parametrize("pass_", [GraphOptimizer(), PruneControlEdges()], ids=lambda p: p.name)
def test_example(pass_):
    check_example(pass_)


@given(mod=programs(max_steps=8, control=True))
@settings(max_examples=15, deadline=None, derandomize=True, database=None)
def test_random_programs_keep_their_values_and_settle(mod):
    after = GraphOptimizer(settle=True)(mod)
    check_values(mod, after, rtol=1e-3)
    assert structural_equal(GraphOptimizer()(after), after)


@given(mod=programs_with_effects())
@settings(max_examples=30, deadline=None, derandomize=True, database=None)
def test_effects_and_their_order_stay(effects: Effects, mod):
    assert effects.of(GraphOptimizer(settle=True)(mod), X) == effects.of(mod, X)


STAGES = {
    "pruning": "let %a = exp(%x); log(%x)",
    "constant_folding": "add(%x, exp(0.5f))",
    "common_subexpressions": "subtract(exp(%x), exp(%x))",
    "arithmetic": "nn.relu(nn.relu(multiply(%x, 2f)))",
    "remapping": "nn.dropout(%x)",
    "dependencies": "annotation.barrier(exp(%x), %x)",
}


@pytest.mark.parametrize("stage", STAGES)
def test_stages_are_switched_off_by_name(stage):
    mod = parse_program(f"def @main(%x: Tensor[(4,), float32]) {{ {STAGES[stage]} }}")
    others = ",".join(f"{name}=false" for name in GraphOptimizer().stages() if name != stage)
    alone = parse_pipeline(f"graph_optimizer{{{others}}}")(mod)
    assert not structural_equal(alone, mod)
    without = parse_pipeline(f"graph_optimizer{{{stage}=false}}")(mod)
    assert structural_equal(without, mod)


def test_operators_are_skipped_by_name():
    mod = parse_program("def @main(%x: Tensor[(4,), float32]) { subtract(exp(%x), exp(%x)) }")
    assert op_calls(GraphOptimizer()(mod)) == ["exp", "subtract"]
    assert op_calls(GraphOptimizer(skip=("exp",))(mod)).count("exp") == 2


@pytest.mark.parametrize(("attrs", "options", "is_inlined"), [
    ("", {}, True), (", noinline=True", {}, False), ("", {"inlining": False}, False),
])
def test_functions_are_inlined_unless_they_say_noinline(attrs, options, is_inlined):
    mod = parse_program("def @main(%x: Tensor[(4,), float32]) { @f(%x) }\n"
                        f"def @f(%a: Tensor[(4,), float32]{attrs}) {{ exp(%a) }}")
    after = GraphOptimizer(**options)(mod)
    assert ("f" not in after) is is_inlined


def test_constants_above_the_limit_are_not_folded():
    ones = np.ones((64, 64), np.float32)
    x = var("x", (64, 64))
    mod = infer_type(IRModule.from_expr(Function((x,), op.add(x, op.exp(const(ones[:1]))))))
    assert "exp" not in op_calls(GraphOptimizer()(mod))
    # 256 bytes, and not larger than its argument by a factor that would keep it.
    wide = infer_type(IRModule.from_expr(Function((x,), op.add(
        x, op.broadcast_to(const(ones[:1, :1]), shape=(64, 64))))))
    assert op_calls(GraphOptimizer(max_constant_bytes=1 << 14)(wide)) == ["add"]
    small = GraphOptimizer(max_constant_bytes=(1 << 14) - 1, arithmetic=False)(wide)
    assert op_calls(small) == ["broadcast_to", "add"]


def test_programs_that_do_not_settle_are_reported(caplog):
    chain = "exp(add(1f, add(1f, 2f)))"
    mod = parse_program(f"def @main(%x: Tensor[(4,), float32]) {{ multiply(copy(%x), {chain}) }}")
    with caplog.at_level(logging.WARNING, "weft.optimizer"):
        GraphOptimizer(rounds=1)(mod)
    assert "after 1 rounds: pruning, constant_folding" in caplog.text
    with pytest.raises(PassError, match="after 1 rounds: pruning, constant_folding"):
        GraphOptimizer(rounds=1, settle=True)(mod)
    with pytest.raises(OptionError, match="needs a stage and a round"):
        GraphOptimizer(rounds=0)(mod)


def _barriers(mod: IRModule) -> list[int]:
    """The number of control edges of each barrier of ``main``."""
    calls = [n for n in post_order(mod["main"]) if isinstance(n, Call)
             and isinstance(n.op, Op) and n.op.name == "annotation.barrier"]
    return [len(c.args[1].fields) if isinstance(c.args[1], Tuple) else 1 for c in calls]


@pytest.mark.parametrize(("body", "edges"), [
    ("%0 = exp(%x); (annotation.barrier(tanh(%x), %0), %0)", [1]),
    # The guarded value depends on the edge, directly and through another barrier.
    ("%0 = exp(%x); (annotation.barrier(tanh(%0), %0), %0)", []),
    ("%0 = exp(%x); %1 = annotation.barrier(log(%x), %0); (annotation.barrier(tanh(%1), %0), %0)",
     [1]),
    # One edge implies another.
    ("%0 = exp(%x); %1 = log(%0); (annotation.barrier(tanh(%x), (%0, %1, %0)), %0, %1)", [1]),
    # Reshapes and copies of memory pass on to what they alias.
    ("%0 = exp(%x); %1 = reshape(%0, newshape=(2, 2)); (annotation.barrier(%0, %1), %1)", []),
    # A computation without other readers passes on to what it reads.
    ("%0 = exp(%x); (annotation.barrier(tanh(%x), log(%0)), %0)", [1]),
    ("(annotation.barrier(tanh(%x), log(exp(%x))), %x)", []),
    # A barrier without edges is written for its own sake.
    ("annotation.barrier(tanh(%x), ())", [0]),
])
def test_redundant_control_edges_disappear(body, edges):
    mod = parse_program(f"def @main(%x: Tensor[(4,), float32]) {{ {body} }}")
    after = PruneControlEdges()(mod)
    assert _barriers(after) == edges
    check_values(mod, after)


def test_control_edges_to_effects_stay(effects: Effects):
    x = var("x", (4,))
    first = effects.record(op.exp(x), tag=1)
    body = op.annotation.barrier(op.tanh(x), Tuple((op.negative(first), op.log(x))))
    after = GraphOptimizer()(infer_type(IRModule.from_expr(Function((x,), body))))
    assert _barriers(after) == [1]
    assert effects.of(after, X[:1]) == [1]


def _binary_calls() -> list[tuple[str, Call, list[np.ndarray]]]:
    """A call of every operator of two tensors on operands of one type, with its operands."""
    rng = np.random.default_rng(3)
    found = []
    for name in OPS:
        operator = OPS.get(name)
        if len(operator.inputs) != 2 or operator.reference is None:
            continue
        for one in operator.cases:
            shape, dtype = one.inputs[0], one.dtypes[0]
            if not isinstance(shape, tuple) or len(set(one.dtypes)) != 1:
                continue
            arrays = [np.asarray(rng.uniform(max(one.low, 0.1), max(one.high, 4), shape), dtype)
                      for _ in one.inputs]
            args = [Var(n, const(a).tensor_type) for n, a in zip("xy", arrays, strict=True)]
            try:
                typed = infer_expr(operator(*args, **one.attrs), trust=True)
            except WeftError:  # operands of one type do not fit
                continue
            if isinstance(typed, Call) and isinstance(typed.checked_type, TensorType):
                found.append((name, typed, arrays))
                break
    return found


CALLS = _binary_calls()


@pytest.mark.parametrize(("name", "call", "arrays"), CALLS, ids=[c[0] for c in CALLS])
def test_commutative_operators_are_those_whose_operands_may_be_exchanged(name, call, arrays):
    straight, crossed = (evaluate_call(call, args) for args in (arrays, arrays[::-1]))
    is_same = straight.shape == crossed.shape and np.array_equal(straight, crossed)
    declared = OPS.get(name).traits.commutative
    assert is_same or declared is Commutativity.NONE
    if is_same and straight.size > 1 and len(np.unique(straight)) > 1:
        assert declared is not Commutativity.NONE, "declare the trait commutative"


def test_the_operands_of_many_operators_were_exchanged():
    commutative = {n for n in OPS if OPS.get(n).traits.is_commutative}
    assert {"add", "multiply", "maximum", "minimum", "equal", "not_equal"} <= commutative
    assert len(commutative & {name for name, _, _ in CALLS}) >= 12
