"""Convolutions in the original layout, against the reference and in the form they take."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.strategy.kernels import SMALL_CPU, WIDE_CPU, check, check_kernel, primitive
from weft import op
from weft.ir.expr import Call, Function, var
from weft.ir.types import TensorType
from weft.ir.visitor import post_order
from weft.op.nn.conv import ConvAlgorithm, ConvAttrs
from weft.strategy import LoweredKernel, lower_function
from weft.strategy.cpu.common.register_tile import RegisterTile
from weft.strategy.cpu.convolution.cost import estimate_blocked, estimate_unblocked
from weft.strategy.cpu.convolution.layouts import conv_layouts
from weft.strategy.cpu.convolution.plan import ConvPlan, candidate
from weft.strategy.cpu.convolution.problem import ConvProblem, ConvShape
from weft.strategy.cpu.convolution.row_block import RowBlockShape, choose_row_block
from weft.strategy.cpu.convolution.strategy import implementation_of
from weft.strategy.implementation import attrs_of
from weft.target import CpuTarget

TARGETS = pytest.mark.parametrize("target", [SMALL_CPU, WIDE_CPU], ids=["avx2", "avx512"])
CONVS = {1: op.nn.conv1d, 2: op.nn.conv2d, 3: op.nn.conv3d}


def unblocked_function(
    c_in, c_out, sizes, taps, *, fused=True, batch=1, groups=1, **attrs
) -> Function:
    x = var("x", (batch, c_in, *sizes))
    w = var("w", (c_out, c_in // groups, *taps))
    y = CONVS[len(sizes)](x, w, groups=groups, **attrs)
    return primitive([x, w], op.nn.relu(y) if fused else y)


def call_of(function: Function) -> Call:
    return next(n for n in post_order(function) if isinstance(n, Call) and "conv" in str(n.op))


@pytest.mark.sample(0.4)
@TARGETS
@pytest.mark.parametrize(
    ("c_in", "c_out", "sizes", "taps", "attrs"),
    [
        (5, 7, (9, 11), (1, 1), {}),
        (5, 7, (9, 11), (1, 1), {"strides": (2, 3)}),
        (4, 6, (6, 23), (1, 1), {"groups": 2, "batch": 2}),
        (3, 9, (7, 18), (3, 3), {"padding": (1, 1)}),
        (3, 9, (7, 18), (3, 3), {}),
        (3, 5, (11, 37), (3, 5), {"strides": (1, 2), "padding": (1, 0, 2, 3)}),
        (3, 5, (11, 37), (3, 3), {"strides": (3, 3), "dilation": (1, 2)}),
        (4, 6, (5, 17), (3, 3), {"groups": 2, "padding": (2, 2), "dilation": (2, 2)}),
        (3, 4, (45,), (5,), {"padding": (2,)}),
        (3, 4, (45,), (1,), {"strides": (4,)}),
        (2, 3, (4, 5, 19), (3, 1, 3), {"padding": (1, 0, 1), "strides": (1, 2, 2)}),
        (2, 3, (2, 3, 7), (1, 1, 1), {}),
    ],
)
def test_values(target, c_in, c_out, sizes, taps, attrs) -> None:
    kernel = check(unblocked_function(c_in, c_out, sizes, taps, **attrs), target)
    assert ".cpu.direct_unblocked" in kernel.implementation


@TARGETS
def test_convolution_that_is_the_output(target) -> None:
    check(unblocked_function(3, 5, (6, 10), (1, 1), fused=False), target)
    check(unblocked_function(3, 5, (6, 10), (3, 3), fused=False, padding=(1, 1)), target)


@TARGETS
@pytest.mark.parametrize(("sizes", "taps", "attrs"), [
    ((5, 46), (3, 3), {"padding": (1, 1)}), ((6, 7), (3, 3), {"padding": (1, 1)}),
    ((5, 37), (3, 3), {"padding": (1, 1), "strides": (2, 2)}),
])
def test_sums_have_whole_vectors(target, sizes, taps, attrs) -> None:
    """Only the stores are masked, not the hot loop."""
    kernel = lower_function(unblocked_function(4, 8, sizes, taps, **attrs), target)
    sums = [line for line in str(kernel.func).splitlines() if " * broadcast(" in line]
    assert sums
    assert not [line for line in sums if " if " in line or "select(" in line]


@TARGETS
def test_taps_above_and_below_the_image_are_left_out(target) -> None:
    shape = (3, 8, (5, 20), (3, 3))
    border = {"padding": (2, 0), "dilation": (2, 1)}
    text = str(check(unblocked_function(*shape, **border, finite_kernel=True), target).func)
    assert "for kh in range(max(" in text
    kept = str(check(unblocked_function(*shape, **border), target).func)
    assert "for kh in range(3)" in kept, "infinity times a zero of the padding is no zero"


@TARGETS
def test_pixels_of_a_volume_are_one_row(target) -> None:
    """Vectors of positions are single loads, wherever they begin."""
    kernel = lower_function(unblocked_function(3, 16, (5, 7, 13), (1, 1, 1)), target)
    products = [line for line in str(kernel.func).splitlines() if " * broadcast(" in line]
    assert products
    assert not [line for line in products if "// broadcast" in line]


def shape_of(c_in, c_out, sizes, taps, **attrs) -> ConvShape:
    call = call_of(unblocked_function(c_in, c_out, sizes, taps, **attrs))
    data, kernel = (a.checked_type for a in call.args)
    assert isinstance(data, TensorType)
    assert isinstance(kernel, TensorType)
    return ConvShape.of(attrs_of(call, ConvAttrs), data, kernel)


def cycles_of(shape: ConvShape, block: int) -> tuple[float, float]:
    """Of the unblocked and of the blocked algorithm."""
    return (estimate_unblocked(shape, WIDE_CPU).cycles,
            estimate_blocked(shape, block, WIDE_CPU).cycles)


def test_estimates_are_near_the_arithmetic_where_all_lanes_are_used() -> None:
    ideal = 64 * 64 * 56 * 56 / 32
    for cycles in cycles_of(shape_of(64, 64, (56, 56), (1, 1)), 16):
        assert ideal < cycles < 1.1 * ideal


def test_short_rows_are_slow_as_vectors_and_few_channels_as_blocks() -> None:
    unblocked, blocked = cycles_of(shape_of(64, 64, (7, 7), (3, 3), padding=(1, 1)), 16)
    assert unblocked > 2 * blocked
    few = shape_of(64, 6, (64, 64), (3, 3), padding=(1, 1))
    unblocked, blocked = cycles_of(few.with_outputs(16), 16)
    assert estimate_unblocked(few, WIDE_CPU).cycles < 0.6 * blocked


def test_the_layout_pass_chooses_between_unblocked_and_blocked() -> None:
    call = call_of(unblocked_function(32, 64, (14, 14), (3, 3), padding=(1, 1)))
    choices = conv_layouts(call, [a.checked_type for a in call.args], WIDE_CPU)
    found = {(c.attrs.data_layout, c.attrs.result_layout) for c in choices}
    assert found == {("NCHW16c", "NCHW16c"), ("NCHW", "NCHW16c"), ("NCHW", "NCHW")}


def test_the_layouts_of_a_depthwise_convolution_keep_it_one() -> None:
    call = call_of(unblocked_function(32, 32, (14, 14), (3, 3), padding=(1, 1), groups=32))
    choices = conv_layouts(call, [a.checked_type for a in call.args], WIDE_CPU)
    choice = next(c for c in choices if c.gives_blocks)
    x, w = var("x", (1, 2, 14, 14, 16)), var("w", (2, 1, 3, 3, 1, 16))
    function = primitive([x, w], call.replace(args=(x, w), attrs=choice.attrs, checked_type=None))
    assert "depthwise" in lower_function(function, WIDE_CPU).implementation


def test_row_blocks_are_short_where_pixels_would_leave_the_cache() -> None:
    shape = RowBlockShape(images=1, rows=64, slices=8, row_bytes=20_000, weight_bytes=4096,
                          cycles=1e9)
    assert choose_row_block(shape, WIDE_CPU) * shape.row_bytes <= WIDE_CPU.l2_bytes // 2
    assert choose_row_block(RowBlockShape(1, 0, 1, 0.0, 0, 0.0), WIDE_CPU) == 1


def packed_kernel(function: Function, target: CpuTarget) -> LoweredKernel:
    """The kernel that packs pixels, also where reading them in place is faster."""
    problem = ConvProblem.of(call_of(function))
    assert problem is not None
    plan = ConvPlan.in_own_layouts(problem, ConvAlgorithm.DIRECT_UNBLOCKED, RegisterTile(3, 2))
    made = implementation_of(problem, candidate(replace(plan, packs_pixels=True), 1.0, target),
                             target)
    return lower_function(function, target, implementation=made)


@TARGETS
@pytest.mark.parametrize(("c_out", "batch"), [(6, 2), (7, 1)])
def test_values_of_packed_pixels(target, c_out, batch) -> None:
    function = unblocked_function(5, c_out, (5, 11), (1, 1), batch=batch)
    kernel = packed_kernel(function, target)
    assert "pixel_panels" in str(kernel.func)
    check_kernel(kernel, function)


@pytest.mark.parametrize(("c_out", "size", "packs"), [
    (256, 32, True), (24, 32, False), (256, 33, False),
], ids=["collide", "few tiles", "apart"])
def test_pixels_that_collide_in_l2_are_packed(c_out, size, packs) -> None:
    """The channels of 32 x 32 images are a page apart."""
    function = unblocked_function(512, c_out, (size, size), (1, 1))
    assert ("pixel_panels" in str(lower_function(function, WIDE_CPU).func)) is packs
