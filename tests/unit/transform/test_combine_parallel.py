"""Parallel calls with shared data, or of one operator, are combined into one."""

from __future__ import annotations

import pytest

from tests.unit.transform.helpers import check_example, check_values, op_calls, parse_program
from weft.support.errors import PassError
from weft.transform.fusion.combine_parallel_batch_matmul import CombineParallelBatchMatmul
from weft.transform.fusion.combine_parallel_conv2d import CombineParallelConv2D
from weft.transform.fusion.combine_parallel_dense import CombineParallelDense
from weft.transform.fusion.combine_parallel_op import CombineParallelOp


@pytest.mark.parametrize(
    "pass_",
    [
        CombineParallelConv2D(min_branches=2),
        CombineParallelDense(),
        CombineParallelBatchMatmul(),
        CombineParallelOp(op="tanh", min_branches=2),
    ],
    ids=str,
)
def test_example(pass_):
    check_example(pass_)


def test_only_like_convolutions_of_one_tensor_join():
    mod = parse_program("""
        def @main(%x: Tensor[(1, 4, 6, 6), float32], %w: Tensor[(4, 4, 3, 3), float32],
                  %v: Tensor[(2, 4, 3, 3), float32], %g: Tensor[(4, 2, 3, 3), float32]) {
          (nn.conv2d(%x, %w, padding=(1, 1)), nn.conv2d(%x, %v, padding=(1, 1)),
           nn.conv2d(%x, %v), nn.conv2d(%x, %g, padding=(1, 1), groups=2),
           nn.conv2d(exp(%x), %w, padding=(1, 1)))
        }""")
    after = CombineParallelConv2D(min_branches=2)(mod)
    check_values(mod, after)
    assert op_calls(after).count("nn.conv2d") == 4
    assert CombineParallelConv2D()(mod) is mod


def test_other_layouts():
    mod = parse_program("""
        def @main(%x: Tensor[(1, 5, 5, 4), float32], %w: Tensor[(3, 3, 4, 2), float32],
                  %v: Tensor[(3, 3, 4, 3), float32]) {
          add(nn.conv2d(%x, %w, data_layout="NHWC", kernel_layout="HWIO"),
              sum(nn.conv2d(%x, %v, data_layout="NHWC", kernel_layout="HWIO"),
                  axis=(3,), keepdims=True))
        }""")
    after = CombineParallelConv2D(min_branches=2)(mod)
    check_values(mod, after)
    assert op_calls(after).count("nn.conv2d") == 1


def test_a_product_that_needs_another_one_stays_apart():
    mod = parse_program("""
        def @main(%x: Tensor[(3, 3), float32], %w: Tensor[(3, 3), float32]) {
          %0 = nn.dense(%x, %w);
          %1 = nn.dense(%x, %0);
          (%0, %1, nn.dense(%x, transpose(%1)), nn.dense(%x, exp(%w)))
        }""")
    after = CombineParallelDense(min_branches=2)(mod)
    check_values(mod, after)
    assert op_calls(after).count("nn.dense") == 3 or after is mod


def test_branches_do_not_join_with_what_is_outside():
    mod = parse_program("""
        def @main(%x: Tensor[(3, 3), float32], %w: Tensor[(3, 3), float32],
                  %c: Tensor[(), bool]) {
          if (%c) { nn.dense(%x, exp(%w)) } else { nn.dense(%x, tanh(%w)) }
        }""")
    assert CombineParallelDense(min_branches=2)(mod) is mod


def test_dense_layers_of_an_ensemble_are_batched():
    mod = parse_program("""
        def @main(%x: Tensor[(2, 4), float32], %y: Tensor[(2, 4), float32],
                  %w: Tensor[(3, 4), float32], %v: Tensor[(3, 4), float32]) {
          (nn.dense(%x, %w), nn.dense(%y, %v))
        }""")
    after = CombineParallelOp(op="nn.dense", batch_op="nn.batch_matmul", min_branches=2)(mod)
    check_values(mod, after)
    assert "nn.batch_matmul" in op_calls(after)
    assert "nn.dense" not in op_calls(after)


def test_operators_that_do_not_stack_are_refused():
    mod = parse_program("def @main(%x: Tensor[(2, 4), float32]) { nn.softmax(%x) }")
    with pytest.raises(PassError, match=r"nn\.softmax cannot be batched"):
        CombineParallelOp(op="nn.softmax")(mod)


def test_lets_keep_their_scope():
    mod = parse_program("""
        def @main(%x: Tensor[(3, 3), float32], %w: Tensor[(3, 3), float32]) {
          let %a = nn.dense(%x, %w);
          let %b = nn.dense(%x, %a);
          add(nn.dense(%x, %b), nn.dense(%x, exp(%w)))
        }""")
    check_values(mod, CombineParallelDense(min_branches=2)(mod))
