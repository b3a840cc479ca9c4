"""What TensorFlow's ``optimizer_cse_test`` checks, case by case.

Its graphs are made of stateful inputs and multiplications; here inputs are parameters, or calls of
an operator with an effect where a case is about state. Its nodes are counted: here the calls that
``main`` makes, each shared node once. ``Simple_SameOps_SameAttrs1`` and ``2`` give attributes that
``Mul`` does not have; here operators that have them are called. Its benchmark ``BM_CSE`` is the
last test.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.transform.effect_operators import Effects, recording
from tests.unit.transform.helpers import op_calls, parse_program
from weft import op
from weft.ir import IRModule, infer_type, structural_equal
from weft.ir.expr import Constant, Expr, Function, Tuple, const, var
from weft.ir.visitor import post_order
from weft.transform import EliminateCommonSubexpr


@pytest.fixture(scope="module")
def effects():
    with recording() as found:
        yield found


def graph(body: str) -> IRModule:
    return parse_program("def @main(%a: Tensor[(3,), float32], %b: Tensor[(3,), float32], "
                         f"%c: Tensor[(3,), float32]) {{ {body} }}")


def cse(mod: IRModule, **options: tuple[str, ...]) -> IRModule:
    return EliminateCommonSubexpr(**options)(mod)


def fields(mod: IRModule) -> tuple[Expr, ...]:
    body = mod["main"].body
    assert isinstance(body, Tuple)
    return body.fields


def test_simple():
    c, d = fields(cse(graph("(multiply(%a, %b), multiply(%a, %b))")))
    assert c is d


def test_simple_three_equivalent():
    c, d, e = fields(cse(graph("(multiply(%a, %b), multiply(%a, %b), multiply(%a, %b))")))
    assert c is d is e


def test_simple_with_fixups():
    after = cse(graph("multiply(multiply(%a, %b), multiply(%a, %b))"))
    outer = after["main"].body
    assert outer.args[0] is outer.args[1]
    assert op_calls(after) == ["multiply", "multiply"]


def test_simple_commutative():
    c, d = fields(cse(graph("(multiply(%a, %b), multiply(%b, %a))")))
    assert c is d
    assert [p.name for p in c.args] == ["a", "b"]  # the first is kept


def test_simple_filtered():
    mod = graph("(multiply(%a, %b), multiply(%b, %a))")
    assert structural_equal(cse(mod, skip=("multiply",)), mod)


def test_simple_not_commutative():
    mod = graph("(subtract(%a, %b), subtract(%b, %a))")
    assert structural_equal(cse(mod), mod)


def test_not_equivalent_ops():
    mod = graph("(multiply(%a, %b), subtract(%a, %b))")
    assert structural_equal(cse(mod), mod)


def test_simple_same_ops_same_attrs_1():
    c, d = fields(cse(graph("(reshape(%a, newshape=(3, 1)), reshape(%a, newshape=(3, 1)))")))
    assert c is d


def test_simple_same_ops_same_attrs_2():
    """The order in which attributes are written does not matter."""
    c, d = fields(cse(graph("(clip(%a, a_min=0.0, a_max=1.0), clip(%a, a_max=1.0, a_min=0.0))")))
    assert c is d


def test_same_constants():
    after = cse(graph("(multiply(const([2], (1,), int32), const([2], (1,), int32)), %a)"))
    product = fields(after)[0]
    assert product.args[0] is product.args[1]


def test_different_constants():
    mod = graph("(multiply(const([0], (1,), int32), const([100000], (1,), int32)), %a)")
    assert structural_equal(cse(mod), mod)


def test_same_ops_different_attrs_1():
    mod = graph("(clip(%a, a_min=0.0, a_max=3.0), clip(%a, a_min=0.0, a_max=4.0))")
    assert structural_equal(cse(mod), mod)


def test_same_ops_different_attrs_2():
    """An attribute that is a type."""
    mod = graph('(cast(%a, dtype="int32"), cast(%a, dtype="float16"))')
    assert structural_equal(cse(mod), mod)


def test_not_equivalent_inputs():
    mod = graph("(multiply(%a, %b), multiply(%a, %c))")
    assert structural_equal(cse(mod), mod)


def test_constant_dedup():
    """Of constants of two types, shapes and values, one of each remains."""
    a, b = np.ones(1, np.float32), np.ones(1, np.float64)
    c, d = np.ones((1, 1), np.float32), np.full(1, 2, np.float32)
    body = Tuple(tuple(const(v) for v in (a, b, c, d, d, c, b, a)))
    after = cse(infer_type(IRModule.from_expr(Function((), body))))
    kept = [n for n in post_order(after["main"]) if isinstance(n, Constant)]
    assert len(kept) == 4
    assert [fields(after)[i] is fields(after)[7 - i] for i in range(4)] == [True] * 4


def test_control_edges_must_match():
    """Of TensorFlow's OptimizeCSE rather than of its test: equal control edges are required."""
    same, other = fields(cse(graph(
        "%0 = exp(%a); (subtract(annotation.barrier(%b, %0), annotation.barrier(%b, exp(%a))), "
        "subtract(annotation.barrier(%b, %0), annotation.barrier(%b, %c)))")))
    assert same.args[0] is same.args[1]
    assert other.args[0] is not other.args[1]


def test_stateful_nodes_are_never_merged(effects: Effects):
    a = var("a", (3,))
    body = Tuple((effects.record(a, tag=1), effects.record(a, tag=1)))
    mod = infer_type(IRModule.from_expr(Function((a,), body)))
    c, d = fields(cse(mod))
    assert c is not d
    x = [np.zeros(3, np.float32)]
    assert effects.of(cse(mod), x) == [1, 1]


def test_each_node_is_numbered_once(monkeypatch):
    """What ``BM_CSE`` times: many calls on few operands."""
    numbered = []
    number = EliminateCommonSubexpr._value_number

    def counting(self, original, node):
        numbered.append(original)
        return number(self, original, node)

    monkeypatch.setattr(EliminateCommonSubexpr, "_value_number", counting)
    inputs = [var(f"in{i}", (3,)) for i in range(10)]
    pairs = np.random.default_rng(301).integers(0, 10, (1000, 2))
    body = Tuple(tuple(op.multiply(inputs[i], inputs[j]) for i, j in pairs))
    mod = infer_type(IRModule.from_expr(Function(tuple(inputs), body)))
    after = cse(mod)
    assert len(set(fields(after))) == len({tuple(sorted(p)) for p in pairs.tolist()})
    assert len(numbered) == len(set(numbered)) == 1000 + 1  # with the tuple
