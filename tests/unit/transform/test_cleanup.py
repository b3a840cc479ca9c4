"""Common subexpressions, dead code, unused functions, normal forms."""

from __future__ import annotations

import pytest

from tests.unit.transform.helpers import check_example, check_values, op_calls, parse_program
from weft import op
from weft.ir.expr import (
    Function,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    Var,
    const,
    var,
)
from weft.ir.module import IRModule
from weft.ir.structural import assert_structural_equal
from weft.ir.typing.infer import infer_type
from weft.ir.visitor import post_order
from weft.support.errors import PassError
from weft.transform.analysis.program_facts import (
    is_a_normal_form,
    is_basic_block_normal_form,
    is_graph_normal_form,
)
from weft.transform.fusion.defuse_ops import DefuseOps
from weft.transform.normal_form.to_a_normal_form import ToANormalForm, is_atom
from weft.transform.normal_form.to_basic_block_normal_form import ToBasicBlockNormalForm
from weft.transform.normal_form.to_graph_normal_form import ToGraphNormalForm
from weft.transform.passes.dead_code_elimination import DeadCodeElimination
from weft.transform.passes.eliminate_common_subexpr import EliminateCommonSubexpr
from weft.transform.passes.remove_unused_functions import RemoveUnusedFunctions


@pytest.mark.parametrize(
    "pass_",
    [
        EliminateCommonSubexpr(),
        DeadCodeElimination(),
        RemoveUnusedFunctions(),
        DefuseOps(),
        ToANormalForm(),
        ToGraphNormalForm(),
    ],
    ids=str,
)
def test_example(pass_):
    check_example(pass_)


def test_equal_attributes_decide():
    mod = parse_program("""
        def @main(%x: Tensor[(2, 3), float32]) {
          (sum(%x, axis=(0,)), sum(%x, axis=(1,)), sum(%x, axis=(0,)))
        }""")
    after = EliminateCommonSubexpr()(mod)
    check_values(mod, after)
    assert op_calls(after) == ["sum", "sum"]


def test_small_constants_merge_and_skipped_operators_do_not():
    mod = parse_program("""
        def @main(%x: Tensor[(2,), float32]) {
          (exp(add(%x, 1f)), exp(add(%x, 1f)), add(%x, 2f))
        }""")
    assert op_calls(EliminateCommonSubexpr()(mod)) == ["add", "exp", "add"]
    kept = EliminateCommonSubexpr(skip=("exp",))(mod)
    assert op_calls(kept) == ["add", "exp", "exp", "add"]


def _writes_a_reference() -> IRModule:
    x = var("x", (2,))
    ref, unit, dead = Var("ref"), Var("unit"), Var("dead")
    body = Let(dead, RefRead(ref), Let(unit, RefWrite(ref, op.exp(x)), RefRead(ref)))
    return infer_type(IRModule.from_expr(Function((x,), Let(ref, RefCreate(x), body))))


def test_writes_stay_and_unused_reads_go():
    mod = _writes_a_reference()
    after = DeadCodeElimination()(mod)
    check_values(mod, after)
    kinds = [type(n).__name__ for n in post_order(after["main"])]
    assert kinds.count("RefWrite") == 1
    assert kinds.count("RefRead") == 1


def test_a_chain_of_dead_bindings_goes_at_once():
    x = var("x", (2,))
    body, previous = op.negative(x), None
    chain = []
    for i in range(500):
        bound = Var(f"v{i}")
        chain.append((bound, op.exp(previous or x)))
        previous = bound
    for bound, value in reversed(chain):
        body = Let(bound, value, body)
    mod = infer_type(IRModule.from_expr(Function((x,), body)))
    after = DeadCodeElimination()(mod)
    assert op_calls(after) == ["negative"]


def test_unused_functions_need_an_entry():
    mod = parse_program("def @other(%x: Tensor[(2,), float32]) { exp(%x) }")
    with pytest.raises(PassError, match="unknown function @main"):
        RemoveUnusedFunctions()(mod)


def test_references_keep_their_order_in_both_normal_forms():
    mod = _writes_a_reference()
    for pass_ in (ToANormalForm(), ToGraphNormalForm()):
        check_values(mod, pass_(mod))


def test_a_normal_form_has_atoms_for_operands_and_binds_in_the_right_scope():
    mod = parse_program("""
        def @main(%x: Tensor[(2,), float32], %c: Tensor[(), bool]) {
          %0 = exp(%x);
          %1 = if (%c) { add(negative(%0), %x) } else { multiply(%0, sqrt(%x)) };
          add(%1, %0)
        }""")
    after = ToANormalForm()(mod)
    check_values(mod, after)
    for node in post_order(after["main"]):
        if type(node).__name__ == "Call":
            assert all(map(is_atom, node.args))
    outer = after["main"].body
    assert outer.value.op.name == "exp"
    assert op_calls(after).count("exp") == 1
    branch = outer.body.value.true_branch
    assert branch.value.op.name == "negative"
    assert_structural_equal(ToGraphNormalForm()(after), mod)


NORMAL_FORMS = [
    (ToANormalForm(), is_a_normal_form),
    (ToBasicBlockNormalForm(), is_basic_block_normal_form),
    (ToGraphNormalForm(), is_graph_normal_form),
]


@pytest.mark.parametrize(("pass_", "holds"), NORMAL_FORMS, ids=lambda v: getattr(v, "name", ""))
def test_normal_forms_are_recognised(pass_, holds):
    mod = parse_program("""
        def @main(%x: Tensor[(2,), float32], %c: Tensor[(), bool]) {
          let %a = exp(%x);
          let %b = %a;
          %0 = tanh(%b);
          let %f = fn (%y: Tensor[(2,), float32]) { add(%y, tanh(%0)) };
          if (%c) { add(negative(%0), %f(%a)) } else { multiply(%0, sqrt(%x)) }
        }""")
    after = pass_(mod)
    check_values(mod, after)
    assert holds(after["main"])
    assert not holds(mod["main"])


def test_names_of_names_of_names():
    mod = parse_program("""
        def @main(%x: Tensor[(2,), float32]) {
          let %a = exp(%x);
          let %b = %a;
          let %c = %b;
          let %d = tanh(%c);
          let %e = %d;
          (add(%c, %e), %b)
        }""")
    for pass_, _ in NORMAL_FORMS:
        check_values(mod, pass_(mod))


def test_recursive_functions_keep_their_name():
    mod = parse_program("""
        def @main(%n: Tensor[(), int32]) -> Tensor[(), int32] {
          let %f = fn (%k: Tensor[(), int32]) -> Tensor[(), int32] {
            if (less(%k, 1)) { %k } else { %f(subtract(%k, 1)) }
          };
          %f(%n)
        }""")
    for pass_ in (ToANormalForm(), ToGraphNormalForm(), DeadCodeElimination()):
        check_values(mod, pass_(mod))


def test_long_programs_pass_through():
    x = var("x", (2,))
    y = x
    for _ in range(20_000):
        y = op.add(y, x)
    mod = infer_type(IRModule.from_expr(Function((x,), y)))
    normal = ToANormalForm()(mod)
    graph = ToGraphNormalForm()(normal)
    assert len(op_calls(graph)) == 20_000
    assert op_calls(EliminateCommonSubexpr()(mod)) == op_calls(mod)
    assert DeadCodeElimination()(normal) is normal


def test_shared_tuples_merge():
    x = var("x", (2,))
    fn = Function((x,), Tuple((Tuple((x, const(1.0))), Tuple((x, const(1.0))))))
    after = EliminateCommonSubexpr()(IRModule.from_expr(fn))
    assert after["main"].body.fields[0] is after["main"].body.fields[1]
