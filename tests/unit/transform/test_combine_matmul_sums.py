"""Sums of matrix multiplications become one over a longer K."""

from __future__ import annotations

from functools import reduce

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.strategy.kernels import WIDE_CPU
from tests.unit.transform.helpers import check_example, check_values, op_calls, parse_program
from weft import op
from weft.compiler.options import CompileOptions
from weft.compiler.pipeline import run_pipeline
from weft.ir.expr import Function, Tuple, var
from weft.ir.module import IRModule
from weft.ir.typing.infer import infer_type
from weft.transform import CombineMatmulSums
from weft.transform.autodiff.reverse.gradient import Gradient


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


@pytest.mark.parametrize("first", [False, True], ids=["a", "a transposed"])
@pytest.mark.parametrize("second", [False, True], ids=["b", "b transposed"])
def test_matmul_of_matrices(first, second):
    """Whichever matrix is stored transposed; a product of another form is added."""
    params, terms = [], []
    for i, (k, form) in enumerate([(1, first), (2, first), (3, not first), (1, first)]):
        a = var(f"a{i}", (k, 8) if form else (8, k))
        b = var(f"b{i}", (9, k) if second else (k, 9))
        params += [a, b]
        terms.append(op.nn.matmul(a, b, transpose_a=form, transpose_b=second))
    mod = infer_type(IRModule.from_expr(Function(tuple(params), reduce(op.add, terms))))
    after = CombineMatmulSums()(mod)
    check_values(mod, after)
    assert op_calls(after).count("nn.matmul") == 2


@pytest.mark.parametrize("shapes", [((2, 8, 1), (2, 1, 9)), ((2, 8, 1), (1, 9)), ((1,), (1, 9))],
                         ids=["stacks", "stack and matrix", "vector"])
def test_matmul_of_other_ranks_stays(shapes):
    left, right = (var(name, shape) for name, shape in zip("ab", shapes, strict=True))
    total = reduce(op.add, [op.nn.matmul(op.tanh(left), right) for _ in range(4)])
    mod = infer_type(IRModule.from_expr(Function((left, right), total)))
    assert op_calls(CombineMatmulSums()(mod)).count("nn.matmul") == 4


@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize("layer", ["nn.dense(%0, %w)", "nn.matmul(%0, %w)"])
def test_gradient_of_a_weight_of_every_step(layer, batch):
    """Whatever operators gradients are made of, those of the steps become one GEMM."""
    steps = "\n".join(f"%{i} = tanh({layer.replace('%0', f'%{i - 1}')});" for i in range(1, 6))
    program = parse_program(f"""
        def @main(%x: Tensor[({batch}, 32), float32], %w: Tensor[(32, 32), float32]) {{
          %0 = tanh(%x);
          {steps}
          sum(%5)
        }}""")
    grad = Gradient()(program)
    after = run_pipeline(grad, CompileOptions.make(WIDE_CPU), stop_at="optimized")
    multiplications = sum(name in ("nn.dense", "nn.matmul") for name in op_calls(after))
    assert multiplications == 5 + 5 + 1  # forward, and the gradients of states and of the weight


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
