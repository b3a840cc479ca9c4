"""The decision for a convolution: algorithm, estimates, and the reasons against the others."""

from __future__ import annotations

import dataclasses
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
from tests.unit.strategy.kernels import SMALL_CPU, WIDE_CPU
from weft import op
from weft.compiler.options import CompileOptions
from weft.compiler.pipeline import run_pipeline
from weft.ir.expr import Call, Constant, Function, var
from weft.ir.module import IRModule
from weft.ir.typing.infer import infer_expr
from weft.ir.visitor import post_order
from weft.op.nn.conv import ConvAlgorithm
from weft.strategy.cpu.convolution.decide import decide_convolution
from weft.strategy.decision import Decision, decision_of
from weft.strategy.selection import implementations
from weft.support.errors import AttrsError


def conv_call(inputs=64, outputs=64, size=28, taps=3, dtype="float32", constant=True,
              **attrs) -> Call:
    x = var("x", (1, inputs, size, size), dtype=dtype)
    shape = (outputs, inputs // attrs.get("groups", 1), taps, taps)
    wide = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    w = Constant(np.ones(shape, wide)) if constant else var("w", shape, dtype=dtype)
    params = (x,) if constant else (x, w)
    call = infer_expr(Function(params, op.nn.conv2d(x, w, **attrs))).body
    assert isinstance(call, Call)
    return call


def decide(target=WIDE_CPU, *, keep_layouts=False, winograd=True, **conv) -> Decision:
    found = decide_convolution(conv_call(**conv), target, keep_layouts=keep_layouts,
                               winograd=winograd)
    assert found is not None
    return found


def reason_against(decision: Decision, algorithm: ConvAlgorithm) -> str:
    return next(r.reason for r in decision.rejected if r.algorithm == algorithm)


def test_the_fastest_candidate_is_chosen_and_the_others_have_estimates() -> None:
    decision = decide(padding=(1, 1))
    assert decision.plan.algorithm is ConvAlgorithm.WINOGRAD_F4
    estimates = {r.algorithm: r.seconds for r in decision.rejected if r.seconds is not None}
    assert {"winograd_f2", "direct_unblocked", "generic"} <= set(estimates)
    assert decision.seconds < min(estimates.values())


@pytest.mark.parametrize(("conv", "reason"), [
    ({"strides": (2, 2)}, "stride 2"),
    ({"dilation": (2, 2)}, "dilation 2"),
    ({"taps": 5}, "the kernel is 5x5, not 3x3"),
    ({"groups": 2}, "2 groups"),
    ({"constant": False}, "the kernel is computed at run time"),
    ({"dtype": "float64"}, "dtype float64, not float32"),
    ({"inputs": 3}, "blocks of channels fill less than half a vector"),
    ({"winograd": False}, "the option winograd is off"),
])
def test_reasons_against_winograd(conv, reason) -> None:
    decision = decide(**conv)
    assert decision.plan.winograd_tile is None
    assert reason_against(decision, ConvAlgorithm.WINOGRAD_F4) == reason


def test_reasons_against_dot_products() -> None:
    against = reason_against(decide(), ConvAlgorithm.DOT_PRODUCT)
    assert against == "the CPU has no dot product instruction for float32 by float32"
    against = reason_against(decide(dtype="int8", out_dtype="int32", constant=False),
                             ConvAlgorithm.DOT_PRODUCT)
    assert against == "the kernel is computed at run time"


def test_bytes_run_by_dot_products_and_their_channels_make_whole_groups() -> None:
    plan = decide(inputs=30, dtype="int8", out_dtype="int32").plan
    assert plan.algorithm is ConvAlgorithm.DOT_PRODUCT
    assert plan.layouts == ("NCHW32c", "OHWI16o4i", "NCHW64c")
    assert plan.added_inputs == 2
    assert plan.prepares_data  # the instruction takes unsigned data


def test_narrow_floats_are_converted_unless_an_instruction_takes_them() -> None:
    assert decide(dtype="bfloat16", taps=1).plan.algorithm is ConvAlgorithm.DOT_PRODUCT
    in_float32 = decide(SMALL_CPU, dtype="bfloat16", taps=1)
    assert in_float32.plan.upcasts
    assert not decide(dtype="bfloat16", groups=64).plan.upcasts, "depthwise converts as it reads"


def test_depthwise_convolutions_are_not_run_as_direct_ones() -> None:
    decision = decide(groups=64)
    assert decision.plan.algorithm is ConvAlgorithm.DEPTHWISE_BLOCKED
    masks = decide(SMALL_CPU, groups=64)
    assert "does not mask" in reason_against(masks, ConvAlgorithm.DEPTHWISE_UNBLOCKED)


def test_several_outputs_per_group_are_not_depthwise() -> None:
    for target in (WIDE_CPU, SMALL_CPU):
        plan = decide(target, inputs=2, outputs=6, groups=2, keep_layouts=True).plan
        assert plan.algorithm is ConvAlgorithm.DIRECT_UNBLOCKED


def test_narrow_floats_of_open_sizes_are_converted_too() -> None:
    x = var("x", ("n", 8, 9, 9), dtype="float16")
    weight = Constant(np.ones((8, 8, 3, 3), np.float16))
    module = IRModule.from_expr(Function((x,), op.nn.conv2d(x, weight)))
    after = run_pipeline(module, CompileOptions.make(WIDE_CPU), stop_at="optimized")
    call = next(n for n in post_order(after["main"])
                if isinstance(n, Call) and n.op is op.nn.conv2d)
    assert str(call.args[1].checked_type.dtype) == "float32"


def test_without_changes_of_layout_only_the_own_layouts_count() -> None:
    decision = decide(taps=1, keep_layouts=True)
    assert decision.plan.algorithm is ConvAlgorithm.DIRECT_UNBLOCKED
    assert {r.reason for r in decision.rejected if str(r.algorithm).startswith("direct_blocked")} \
        == {"it needs another layout"}


def test_unknown_sizes_are_not_decided() -> None:
    x, w = var("x", (None, 8, 9, 9)), var("w", (8, 8, 3, 3))
    call = infer_expr(Function((x, w), op.nn.conv2d(x, w))).body
    assert isinstance(call, Call)
    assert decision_of(call, WIDE_CPU) is None


def test_symbolic_batches_count_as_one_image() -> None:
    def decided(batch: int | str) -> Any:
        x, w = var("x", (batch, 64, 56, 56)), var("w", (64, 64, 3, 3))
        call = infer_expr(Function((x, w), op.nn.conv2d(x, w, padding=(1, 1)))).body
        assert isinstance(call, Call)
        return decision_of(call, WIDE_CPU)

    symbolic = decided("n")
    assert symbolic.sizes == "n=1"
    assert dataclasses.replace(symbolic, sizes="") == decided(1) != decided(4)


def test_the_plan_has_the_register_tile_and_the_row_block() -> None:
    plan = decide(size=56, padding=(1, 1), winograd=False).plan
    assert (plan.data_layout, plan.kernel_layout) == ("NCHW16c", "OHIW16i16o")
    assert (plan.tile.mr, plan.tile.nr_vectors) == (4, 4)
    assert 56 % plan.row_block == 0


@pytest.mark.parametrize(("conv", "prefetches"), [
    ({"inputs": 512, "outputs": 1024, "size": 7, "taps": 1}, True),
    ({"inputs": 256, "outputs": 256, "size": 14, "padding": (1, 1)}, True),
    # So many positions use a weight that its transfer is hidden anyway.
    ({"size": 56, "taps": 1}, False),
    # A single tile of positions: nothing to hide the transfer behind.
    ({"inputs": 512, "outputs": 512, "size": 1, "taps": 1}, False),
])
def test_weights_that_few_positions_use_are_prefetched(conv, prefetches) -> None:
    decision = decide(winograd=False, **conv)
    assert decision.plan.algorithm is ConvAlgorithm.DIRECT_BLOCKED
    assert decision.plan.prefetches is prefetches


def test_rows_that_no_tap_reads_do_not_count_as_traffic() -> None:
    plan = decide(inputs=1024, outputs=2048, size=14, taps=1, strides=(2, 2)).plan
    assert plan.row_block == 7


def test_the_layout_pass_records_what_it_took_and_the_strategy_reads_it() -> None:
    x = var("x", (1, 64, 28, 28))
    weight = Constant(np.ones((64, 64, 3, 3), np.float32))
    body = op.nn.conv2d(x, weight, padding=(1, 1), strides=(2, 2))
    module = IRModule.from_expr(Function((x,), body))
    after = run_pipeline(module, CompileOptions.make(WIDE_CPU), stop_at="optimized")
    call = next(n for n in post_order(after["main"])
                if isinstance(n, Call) and n.op is op.nn.conv2d)
    assert call.attrs.algorithm is ConvAlgorithm.DIRECT_BLOCKED
    assert 'algorithm="direct_blocked"' in str(after)
    names = [each.name for each in implementations(call, WIDE_CPU)]
    assert names[0] == "nn.conv2d.cpu.direct_blocked"


def test_a_recorded_algorithm_survives_the_text_form() -> None:
    x, w = var("x", (1, 8, 9, 9)), var("w", (8, 8, 3, 3))
    body = op.nn.conv2d(x, w, algorithm="direct_unblocked")
    module = IRModule.from_expr(infer_expr(Function((x, w), body)))
    read = weft.parse(str(module))["main"].body
    assert isinstance(read, Call)
    assert read.attrs.algorithm is ConvAlgorithm.DIRECT_UNBLOCKED
    with pytest.raises(AttrsError, match="one of direct_blocked, direct_unblocked"):
        op.nn.conv2d(x, w, algorithm="fastest")


def test_pixels_that_collide_in_l2_are_packed() -> None:
    """The channels of 64 x 64 images are 16 KiB apart."""
    decision = decide(inputs=1024, outputs=256, size=64, taps=1)
    seconds = {r.algorithm: r.seconds for r in decision.rejected}
    in_place = seconds["direct_blocked NCHW to NCHW16c"]
    assert in_place is not None
    assert in_place > 1.5 * decision.seconds
    packed = decide(inputs=1024, outputs=256, size=64, taps=1, keep_layouts=True).plan
    assert packed.algorithm is ConvAlgorithm.DIRECT_UNBLOCKED
    assert packed.packs_pixels
    apart = decide(inputs=1024, outputs=256, size=62, taps=1, keep_layouts=True).plan
    assert not apart.packs_pixels
