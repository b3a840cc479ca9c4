from __future__ import annotations

import pytest

from tests.unit.transform.helpers import check_values, kernels, op_calls, parse_program
from weft.ir.passes import PassContext
from weft.ir.structural import assert_structural_equal
from weft.transform.fusion.defuse_ops import DefuseOps
from weft.transform.fusion.fuse_ops import FuseOps

CONV = "nn.conv2d({}, {}, padding=(1, 1, 1, 1), channels=4, kernel_size=(3, 3))"
PARAMS = "%x: Tensor[(1, 4, 6, 6), float32], %w: Tensor[(4, 4, 3, 3), float32]"


def fused(text, **options):
    before = parse_program(text)
    after = FuseOps(**options)(before)
    check_values(before, after)
    assert_structural_equal(DefuseOps()(after), before)
    return after


def test_elementwise_chain_is_one_kernel():
    after = fused("def @main(%x: Tensor[(4, 4), float32]) { nn.relu(add(exp(%x), %x)) }")
    assert kernels(after) == [["exp", "add", "nn.relu"]]


def test_convolution_takes_its_tail_and_the_residual_addition():
    after = fused(f"""
        def @main({PARAMS}, %b: Tensor[(4, 1, 1), float32]) {{
          %0 = {CONV.format("%x", "%w")};
          %1 = nn.relu(add(add(%0, %b), %x));
          {CONV.format("%1", "%w")}
        }}""")
    assert kernels(after) == [["nn.conv2d", "add", "add", "nn.relu"], ["nn.conv2d"]]


def test_one_of_two_convolutions_takes_their_sum():
    after = fused(f"""
        def @main({PARAMS}) {{
          %0 = nn.relu({CONV.format("%x", "%w")});
          %1 = {CONV.format("%0", "%w")};
          %2 = {CONV.format("%x", "%w")};
          nn.relu(add(%1, %2))
        }}""")
    assert sorted(map(len, kernels(after))) == [1, 2, 3]


def test_nothing_joins_across_an_opaque_result_or_a_second_use():
    after = fused("""
        def @main(%x: Tensor[(2, 3), float32]) {
          %0 = exp(%x);
          (nn.softmax(%0, axis=-1), negative(%0))
        }""")
    assert kernels(after) == [["exp"], ["nn.softmax"], ["negative"]]


def test_branches_that_meet_again_are_one_kernel():
    after = fused("""
        def @main(%x: Tensor[(2, 3), float32]) {
          %0 = exp(%x);
          add(negative(%0), nn.relu(%0))
        }""")
    assert kernels(after) == [["exp", "negative", "nn.relu", "add"]]


def test_a_branch_through_an_anchor_stays_apart():
    after = fused(f"""
        def @main({PARAMS}) {{
          %0 = exp(%x);
          add({CONV.format("%0", "%w")}, negative(%0))
        }}""")
    assert kernels(after) == [["exp"], ["nn.conv2d", "negative", "add"]]


def test_reductions_end_a_kernel():
    text = """
        def @main(%x: Tensor[(2, 3), float32]) {
          sqrt(sum(abs(%x), axis=(1,), keepdims=True))
        }"""
    assert kernels(fused(text)) == [["abs", "sum"], ["sqrt"]]
    assert kernels(fused(text, reduce_epilogue=True)) == [["abs", "sum", "sqrt"]]


def test_a_spread_value_is_computed_once():
    after = fused("""
        def @main(%x: Tensor[(8, 3), float32], %y: Tensor[(3,), float32]) {
          multiply(%x, exp(%y))
        }""")
    assert kernels(after) == [["exp"], ["multiply"]]


def test_injective_calls_join_each_other_and_elementwise_producers():
    after = fused("""
        def @main(%x: Tensor[(2, 3), float32], %y: Tensor[(3, 2), float32]) {
          %0 = transpose(nn.relu(%x), axes=(1, 0));
          concatenate((%0, %y), axis=1)
        }""")
    assert kernels(after) == [["nn.relu", "transpose", "concatenate"]]


def test_several_results_and_their_projections():
    after = fused("""
        def @main(%x: Tensor[(2, 4), float32]) {
          %0 = split(%x, indices_or_sections=2, axis=1);
          multiply(%0.0, sigmoid(%0.1))
        }""")
    assert kernels(after) == [["split", "sigmoid", "multiply"]]
    alone = fused("""
        def @main(%x: Tensor[(2, 4), float32]) {
          %0 = split(%x, indices_or_sections=2, axis=1);
          (%0.1, %0.0)
        }""")
    assert kernels(alone) == [["split"]]


def test_shape_changes_stay_outside():
    after = fused("""
        def @main(%x: Tensor[(2, 4), float32]) {
          %0 = reshape(exp(reshape(%x, newshape=(8,))), newshape=(4, 2));
          expand_dims(nn.relu(squeeze(expand_dims(%0, axis=0), axis=(0,))), axis=0)
        }""")
    assert kernels(after) == [["exp"], ["nn.relu"]]
    assert op_calls(after).count("reshape") == 2


def test_a_unit_dimension_in_the_middle_does_not_split():
    after = fused("""
        def @main(%x: Tensor[(2, 4), float32]) {
          nn.relu(expand_dims(exp(%x), axis=0))
        }""")
    assert kernels(after) == [["exp", "expand_dims", "nn.relu"]]


def test_changes_of_layout_stay_apart_from_concatenations():
    after = fused("""
        def @main(%x: Tensor[(1, 1, 2, 2, 4), float32], %y: Tensor[(1, 2, 2, 2, 2), float32]) {
          %0 = layout_transform(exp(%x), src_layout="NCHW4c", dst_layout="NCHW");
          %1 = layout_transform(%y, src_layout="NCHW2c", dst_layout="NCHW");
          %2 = nn.relu(concatenate((%0, %1), axis=1));
          layout_transform(%2, src_layout="NCHW", dst_layout="NCHW8c")
        }""")
    assert kernels(after) == [
        ["exp"],
        ["layout_transform"],
        ["layout_transform"],
        ["concatenate", "nn.relu"],
        ["layout_transform"],
    ]


def test_small_constants_move_in_and_large_ones_become_parameters():
    after = fused("""
        def @main(%x: Tensor[(2, 2), float32]) {
          add(multiply(%x, 2f), exp(%x))
        }""")
    main = after["main"]
    assert len(main.body.op.params) == 1


def test_equal_kernels_are_equal_functions():
    after = fused(f"""
        def @main({PARAMS}) {{
          %0 = nn.relu({CONV.format("%x", "%w")});
          nn.relu({CONV.format("%0", "%w")})
        }}""")
    second = after["main"].body
    first = second.args[0]
    assert_structural_equal(first.op, second.op)


@pytest.mark.parametrize(("depth", "count"), [(1, 4), (2, 2), (64, 1)])
def test_max_depth_bounds_a_kernel(depth, count):
    text = "def @main(%x: Tensor[(4,), float32]) { exp(negative(exp(negative(%x)))) }"
    assert len(kernels(fused(text, max_depth=depth))) == count


def test_without_optimisation_each_call_is_a_kernel():
    mod = parse_program("def @main(%x: Tensor[(4,), float32]) { exp(negative(%x)) }")
    assert kernels(FuseOps()(mod, PassContext(opt_level=0))) == [["negative"], ["exp"]]


def test_a_closure_keeps_its_own_work():
    after = fused("""
        def @main(%x: Tensor[(4,), float32]) {
          %0 = exp(%x);
          let %f = fn (%y: Tensor[(4,), float32]) { add(%0, negative(%y)) };
          add(%f(%x), %f(%0))
        }""")
    assert ["exp"] in kernels(after)


def test_a_loop_fuses_what_it_changes_and_apart_from_it_what_it_does_not():
    after = fused("""
        def @main(%n: int32, %x: Tensor[(4,), float32]) {
          let %loop = fn (%i: int32, %s: Tensor[(4,), float32]) -> Tensor[(4,), float32] {
            if (less(%i, %n)) { %loop(add(%i, 1), tanh(add(%s, exp(negative(%x))))) }
            else { abs(negative(%s)) }
          };
          %loop(0, %x)
        }""")
    assert sorted(kernels(after)) == [["add"], ["add", "tanh"], ["less"], ["negative", "abs"],
                                      ["negative", "exp"]]


def test_a_second_run_changes_nothing():
    after = fused("def @main(%x: Tensor[(4,), float32]) { exp(negative(%x)) }")
    assert FuseOps()(after) is after


def test_a_tuple_may_pass_whole_between_calls():
    after = fused("""
        def @main(%x: Tensor[(2, 4), float32]) {
          nn.relu(concatenate(split(%x, indices_or_sections=2, axis=1), axis=0))
        }""")
    assert kernels(after) == [["split", "concatenate", "nn.relu"]]


def test_a_tuple_parameter_stays_a_tuple():
    after = fused("""
        def @main(%x: Tensor[(2, 4), float32]) {
          %0 = split(%x, indices_or_sections=2, axis=1);
          (concatenate(%0, axis=0), %0.0)
        }""")
    assert kernels(after) == [["split"], ["concatenate"]]


LAYER_NORM = """
    def @main(%x: Tensor[({rows}, {size}), float32], %g: Tensor[({size},), float32]) {{
      %0 = mean(%x, axis=(1,), keepdims=True);
      %1 = subtract(%x, %0);
      %2 = mean(multiply(%1, %1), axis=({axis},), keepdims=True);
      multiply(multiply(%1, rsqrt(add(%2, 1e-05f))), %g)
    }}"""


def test_a_normalisation_is_one_kernel():
    """Rows are read again after each of two reductions."""
    assert len(kernels(fused(LAYER_NORM.format(rows=8, size=6, axis=1)))) == 1
    for rows, size in (("n", 64), (4, "d")):
        text = LAYER_NORM.format(rows=rows, size=size, axis=1)
        assert len(kernels(FuseOps()(parse_program(text)))) == 1


def test_rows_longer_than_a_cache_and_other_axes_stay_apart():
    assert len(kernels(fused(LAYER_NORM.format(rows=4, size=1 << 17, axis=1)))) > 1
    assert len(kernels(fused(LAYER_NORM.format(rows=6, size=6, axis=0)))) > 1


def test_a_row_that_others_read_too_is_stored():
    found = kernels(fused("""
        def @main(%x: Tensor[(8, 6), float32]) {
          %0 = exp(%x);
          %1 = divide(%0, sum(%0, axis=(1,), keepdims=True));
          (%1, sum(%0, axis=(0,)))
        }"""))
    assert ["sum", "divide"] in found
    assert ["exp"] in found
