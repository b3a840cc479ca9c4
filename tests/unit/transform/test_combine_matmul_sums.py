"""Sums of matrix multiplications become one over a longer K."""

from __future__ import annotations

from functools import reduce

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.transform.helpers import check_example, check_values, op_calls, parse_program
from weft import op
from weft.ir.expr import Function, Tuple, var
from weft.ir.module import IRModule
from weft.ir.typing.infer import infer_type
from weft.transform import CombineMatmulSums


def test_example():
    check_example(CombineMatmulSums())


@given(ks=st.lists(st.integers(1, 3), min_size=2, max_size=6), order=st.randoms(),
       layout=st.sampled_from(["NK", "KN"]), transposed=st.booleans(), others=st.integers(0, 2))
@settings(max_examples=25, deadline=None)
def test_any_tree_of_additions(ks, order, layout, transposed, others):
    """However the additions nest, and whatever else is added."""
    params, terms = [], []
    for i, k in enumerate(ks):
        a = var(f"a{i}", (k, 8) if transposed else (8, k))
        b = var(f"b{i}", (9, k) if layout == "NK" else (k, 9))
        params += [a, b]
        left = op.transpose(a, axes=(1, 0)) if transposed else a
        terms.append(op.nn.dense(left, b, weight_layout=layout))
    for i in range(others):
        params.append(var(f"c{i}", (8, 9)))
        terms.append(params[-1])
    while len(terms) > 1:
        order.shuffle(terms)
        terms.append(op.add(terms.pop(), terms.pop()))
    mod = infer_type(IRModule.from_expr(Function(tuple(params), terms[0])))
    after = CombineMatmulSums()(mod)
    check_values(mod, after)
    assert op_calls(after).count("nn.dense") == (len(ks) if len(ks) < 3 else 1)
    assert op_calls(after).count("transpose") <= (len(ks) if len(ks) < 3 else 1) * transposed


def test_terms_with_other_uses_and_long_k_stay():
    operands = [var(f"x{i}", (8, 2)) for i in range(3)]
    dense = [op.nn.dense(x, x) for x in operands]
    total = reduce(op.add, dense)
    mod = infer_type(IRModule.from_expr(Function(tuple(operands), Tuple((total, dense[0])))))
    assert op_calls(CombineMatmulSums()(mod)).count("nn.dense") == 3
    long = parse_program("""
        def @main(%a: Tensor[(4, 50), float32]) {
          add(add(nn.dense(%a, %a), nn.dense(%a, tanh(%a))), nn.dense(%a, exp(%a)))
        }""")
    assert op_calls(CombineMatmulSums()(long)).count("nn.dense") == 3


def test_shared_sums_are_terms():
    """A partial sum that is read elsewhere too is computed once."""
    mod = parse_program("""
        def @main(%a: Tensor[(8, 1), float32], %b: Tensor[(8, 1), float32]) {
          %0 = add(add(nn.dense(%a, %b), nn.dense(%b, %a)), nn.dense(%a, %a));
          (add(%0, nn.dense(%b, %b)), tanh(%0))
        }""")
    after = CombineMatmulSums()(mod)
    check_values(mod, after)
    assert op_calls(after).count("nn.dense") == 2


@pytest.mark.parametrize("terms", [200])
def test_long_chains(terms):
    a = var("a", (4, 1))
    total = reduce(op.add, [op.nn.dense(op.tanh(a), a) for _ in range(terms)])
    mod = infer_type(IRModule.from_expr(Function((a,), total)))
    assert op_calls(CombineMatmulSums()(mod)).count("nn.dense") == 1
