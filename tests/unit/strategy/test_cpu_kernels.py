"""Every CPU schedule against NumPy, on shapes that divide nothing in particular."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import weft
from tests.unit.strategy.kernels import SMALL_CPU, WIDE_CPU, check, primitive
from weft import op
from weft.ir.expr import Function, var

TARGETS = pytest.mark.parametrize("target", [SMALL_CPU, WIDE_CPU], ids=["avx2", "avx512"])


def blocked_conv(c_in, c_out, size, kernel, stride, *, blocks=(8, 8), padding=None, fused=True):
    height, width = size
    i, o = blocks
    x = var("x", (1, c_in // i, height, width, i))
    w = var("w", (c_out // o, c_in // i, kernel, kernel, i, o))
    b = var("b", (1, c_out // o, 1, 1, o))
    pad = kernel // 2 if padding is None else padding
    y = op.nn.conv2d(
        x, w, strides=(stride, stride), padding=(pad,) * 4, channels=c_out,
        kernel_size=(kernel, kernel), data_layout=f"NCHW{i}c", kernel_layout=f"OIHW{i}i{o}o",
        out_layout=f"NCHW{o}c",
    )
    if not fused:
        return primitive([x, w], y)
    return primitive([x, w, b], op.nn.relu(op.add(y, b)))


@pytest.mark.sample(0.3)
@TARGETS
@pytest.mark.parametrize(
    ("c_in", "c_out", "size", "kernel", "stride", "blocks"),
    [
        (16, 16, (5, 9), 3, 1, (8, 8)),
        (8, 24, (4, 7), 1, 1, (8, 24)),
        (3, 16, (9, 11), 7, 2, (3, 16)),
        (16, 48, (3, 17), 3, 2, (16, 16)),
        (16, 40, (1, 1), 1, 1, (16, 40)),
    ],
)
def test_direct_convolution(target, c_in, c_out, size, kernel, stride, blocks):
    function = blocked_conv(c_in, c_out, size, kernel, stride, blocks=blocks)
    kernel = check(function, target)
    assert kernel.implementation == "nn.conv2d.cpu.direct_blocked"


@TARGETS
def test_convolution_that_is_the_output(target):
    check(blocked_conv(8, 16, (6, 10), 3, 1, fused=False), target)


@TARGETS
def test_convolution_with_a_residual(target):
    x, w = var("x", (1, 1, 5, 6, 16)), var("w", (1, 1, 1, 1, 16, 16))
    r = var("r", (1, 1, 5, 6, 16))
    y = op.nn.conv2d(x, w, channels=16, kernel_size=(1, 1), data_layout="NCHW16c",
                     kernel_layout="OIHW16i16o", out_layout="NCHW16c")
    check(primitive([x, w, r], op.nn.relu(op.add(y, r))), target)


@TARGETS
@pytest.mark.parametrize(("channels", "block", "size", "stride"),
                         [(16, 16, (9, 15), 1), (24, 24, (10, 7), 2), (8, 8, (1, 1), 1),
                          (80, 80, (3, 4), 1)])
def test_depthwise_convolution(target, channels, block, size, stride):
    x = var("x", (1, channels // block, *size, block))
    w = var("w", (channels // block, 1, 3, 3, 1, block))
    y = op.nn.conv2d(
        x, w, strides=(stride, stride), padding=(1, 1, 1, 1), groups=channels, channels=channels,
        kernel_size=(3, 3), data_layout=f"NCHW{block}c", kernel_layout=f"OIHW1i{block}o",
        out_layout=f"NCHW{block}c",
    )
    kernel = check(primitive([x, w], op.clip(y, a_min=0.0, a_max=6.0)), target)
    assert kernel.implementation == "nn.conv2d.cpu.depthwise_blocked"


@TARGETS
@pytest.mark.parametrize(("groups", "kernel"), [(1, 3), (2, 1), (4, 3)])
def test_convolution_without_blocks(target, groups, kernel):
    x, w = var("x", (2, 4, 6, 7)), var("w", (8, 4 // groups, kernel, kernel))
    y = op.nn.conv2d(x, w, padding=(1, 0, 1, 0), groups=groups, channels=8,
                     kernel_size=(kernel, kernel))
    check(primitive([x, w], y), target)


@TARGETS
@pytest.mark.parametrize(("rows", "columns", "depth", "panel"),
                         [(1, 40, 33, 40), (5, 48, 20, 16), (17, 10, 8, 10), (64, 16, 7, 16)])
def test_packed_dense(target, rows, columns, depth, panel):
    x, w = var("x", (rows, depth)), var("w", (columns // panel, depth, panel))
    b = var("b", (columns,))
    y = op.nn.dense(x, w, units=columns, weight_layout=f"NK{panel}n")
    kernel = check(primitive([x, w, b], op.nn.relu(op.add(y, b))), target)
    assert kernel.implementation == "nn.dense.cpu.prepacked_gemm"


@TARGETS
@pytest.mark.parametrize(("shape", "columns", "panel"),
                         [((2, 7, 19), 80, 16), ((1, 3, 5, 33), 72, 24), ((20, 16), 64, 16)])
def test_packed_dense_of_any_rank(target, shape, columns, panel):
    x, w = var("x", shape), var("w", (columns // panel, shape[-1], panel))
    r = var("r", (*shape[:-1], columns))
    y = op.nn.dense(x, w, units=columns, weight_layout=f"NK{panel}n")
    kernel = check(primitive([x, w, r], op.add(op.nn.relu(y), r)), target)
    assert kernel.implementation == "nn.dense.cpu.prepacked_gemm"


@TARGETS
@pytest.mark.parametrize(("shape", "columns"), [((5, 9), 19), ((2, 7, 19), 83), ((1, 4), 1)])
def test_packed_dense_with_a_panel_filled_up(target, shape, columns):
    """What fills up the last panel reaches no result."""
    panels = -(-columns // 16)
    x, w = var("x", shape), var("w", (panels, shape[-1], 16))
    y = op.nn.dense(x, w, units=columns, weight_layout="NK16n")
    kernel = check(primitive([x, w], op.nn.relu(y)), target)
    assert kernel.implementation == "nn.dense.cpu.prepacked_gemm"


@TARGETS
@pytest.mark.parametrize(("layout", "shape"), [("NK", (40, 9)), ("KN", (9, 40))])
def test_dense_with_weights_known_at_run_time(target, layout, shape):
    x, w = var("x", (11, 9)), var("w", shape)
    kernel = check(primitive([x, w], op.nn.dense(x, w, weight_layout=layout)), target)
    assert kernel.implementation == "nn.dense.cpu.gemm"


@pytest.mark.slow
@TARGETS
def test_a_long_product_goes_slice_by_slice(target):
    small = dataclasses.replace(target, l2_bytes=64 * 1024)
    a, b = var("a", (23, 530)), var("b", (530, 34))
    kernel = check(primitive([a, b], op.nn.matmul(a, b)), small, rtol=1e-3)
    assert "for k.outer.v" in str(kernel.func)


@TARGETS
@pytest.mark.parametrize(("c_in", "c_out", "groups", "stride"),
                         [(3, 1, 1, 1), (8, 2, 1, 2), (8, 4, 4, 1)])
def test_plain_convolution_in_register_tiles(target, c_in, c_out, groups, stride):
    x, w = var("x", (1, c_in, 7, 37)), var("w", (c_out, c_in // groups, 3, 3))
    y = op.nn.conv2d(x, w, strides=(stride, stride), padding=(1, 1, 1, 1), groups=groups,
                     channels=c_out, kernel_size=(3, 3))
    kernel = check(primitive([x, w], op.nn.relu(y)), target)
    assert kernel.implementation == "nn.conv2d.cpu.direct_unblocked"


@TARGETS
@pytest.mark.parametrize(("m", "n", "k"), [(16, 32, 8), (37, 70, 19), (8, 9, 10), (1, 33, 12)])
def test_matmul(target, m, n, k):
    a, b = var("a", (m, k)), var("b", (k, n))
    check(primitive([a, b], op.nn.matmul(a, b)), target)


@pytest.mark.sample(0.3)
@TARGETS
@pytest.mark.parametrize("dtype", ["float64", "float16", "int32", "int64"])
@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)])
def test_matmul_of_other_types(target, dtype, transposed):
    left, right = (13, 9), (9, 21)
    a, b = (var(name, shape[::-1] if turned else shape, dtype)
            for name, shape, turned in zip("ab", (left, right), transposed, strict=True))
    y = op.nn.matmul(a, b, transpose_a=transposed[0], transpose_b=transposed[1])
    kernel = check(primitive([a, b], y), target, rtol=2e-3 if dtype == "float16" else 1e-4)
    assert kernel.implementation == "nn.matmul.cpu.gemm"


@TARGETS
@pytest.mark.parametrize("dtype", ["float16", "float64", "int32"])
def test_packed_dense_of_other_types(target, dtype):
    x, w = var("x", (2, 5, 33), dtype), var("w", (3, 33, 16), dtype)
    y = op.nn.dense(x, w, units=37, weight_layout="NK16n")
    kernel = check(primitive([x, w], y), target, rtol=2e-3 if dtype == "float16" else 1e-4)
    assert kernel.implementation == "nn.dense.cpu.prepacked_gemm"


@pytest.mark.parametrize("columns", [1, 20])
def test_sums_of_narrow_floats_do_not_stall(columns):
    """From 32 on, adding 0.01 changes no float16."""
    a, b = var("a", (2, 4000), "float16"), var("b", (4000, columns), "float16")
    tenths = (np.full(shape, 0.1, np.float16) for shape in ((2, 4000), (4000, columns)))
    found = weft.compile(Function((a, b), op.nn.matmul(a, b)))(*tenths)
    np.testing.assert_allclose(found, 40.0, rtol=2e-3)


@TARGETS
def test_packed_dense_without_rows(target):
    x, w = var("x", (0, 33)), var("w", (2, 33, 16))
    check(primitive([x, w], op.nn.dense(x, w, units=32, weight_layout="NK16n")), target)


@TARGETS
@pytest.mark.parametrize(("rows", "copied"), [(6, False), (160, True)])
def test_a_large_right_operand_is_copied_where_many_rows_use_it(target, rows, copied):
    small = dataclasses.replace(target, l2_bytes=4 * 1024)
    a, b = var("a", (rows, 20)), var("b", (20, 64))
    kernel = check(primitive([a, b], op.nn.matmul(a, b)), small)
    assert ("b_panels" in str(kernel.func)) == copied


@TARGETS
@pytest.mark.parametrize("rows", [5, 40])
def test_lines_along_the_depth_are_turned_in_registers(target, rows):
    """But for those of the last panel, which is not whole."""
    a, b = var("a", (rows, 35)), var("b", (101, 35))
    kernel = check(primitive([a, b], op.nn.matmul(a, b, transpose_b=True)), target)
    assert "shuffle" in str(kernel.func)


@TARGETS
def test_the_last_columns_are_read_with_a_mask(target):
    a, b = var("a", (3, 19)), var("b", (19, 45))
    kernel = check(primitive([a, b], op.nn.matmul(a, b)), target)
    assert "b_panels" not in str(kernel.func)
    lanes = target.lanes("float32")
    assert f"broadcast(0.0, {lanes // 2}" not in str(kernel.func)  # whole vectors of sums


@TARGETS
def test_blocks_of_rows_that_divide_nothing(target):
    """A block ends inside the rows, and the last tile of rows inside a block."""
    small = dataclasses.replace(target, l3_bytes=64 * 1024)
    a, b = var("a", (811, 10)), var("b", (10, 37))
    kernel = check(primitive([a, b], op.nn.relu(op.nn.matmul(a, b))), small)
    assert kernel.implementation == "nn.matmul.cpu.gemm"


@TARGETS
def test_batch_matmul_transposed(target):
    a, b = var("a", (3, 11, 9)), var("b", (3, 17, 9))
    check(primitive([a, b], op.nn.batch_matmul(a, b, transpose_b=True)), target)


@pytest.mark.sample(0.4)
@TARGETS
@pytest.mark.parametrize("block", [1, 8, 24])
@pytest.mark.parametrize("name", ["max_pool2d", "avg_pool2d"])
def test_pools(target, name, block):
    shape = (1, 48, 7, 9) if block == 1 else (1, 48 // block, 7, 9, block)
    x = var("x", shape)
    layout = "NCHW" if block == 1 else f"NCHW{block}c"
    y = getattr(op.nn, name)(x, pool_size=(3, 3), strides=(2, 2), padding=(1, 1, 1, 1),
                             layout=layout)
    check(primitive([x], y), target)


@TARGETS
@pytest.mark.parametrize(("shape", "axis"), [((5, 1000), -1), ((2, 7, 33), 1), ((77,), 0)])
def test_softmax(target, shape, axis):
    x = var("x", shape)
    check(primitive([x], op.nn.softmax(x, axis=axis)), target)


@TARGETS
@pytest.mark.parametrize(
    ("shape", "axis", "keepdims"),
    [((4, 300), (1,), False), ((4, 300), (0,), True), ((5, 6, 7), (0, 2), False), ((900,), None,
                                                                                 False)],
)
@pytest.mark.parametrize("name", ["sum", "mean", "max"])
def test_reductions(target, name, shape, axis, keepdims):
    x = var("x", shape)
    check(primitive([x], getattr(op, name)(x, axis=axis, keepdims=keepdims)), target)


@TARGETS
def test_elementwise_chain_with_broadcasts(target):
    x, b = var("x", (3, 5, 21)), var("b", (5, 1))
    check(primitive([x, b], op.tanh(op.multiply(op.add(x, b), x))), target)


@TARGETS
def test_transpose(target):
    x = var("x", (5, 7, 33))
    check(primitive([x], op.transpose(x, axes=(2, 0, 1))), target)


@TARGETS
def test_global_average_pool_of_blocks(target):
    x = var("x", (1, 2, 7, 7, 16))
    check(primitive([x], op.nn.global_avg_pool2d(x, layout="NCHW16c")), target)
