"""Schedules of kernels that only move or reduce: values on odd shapes, and the form they take."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.unit.strategy.kernels import SMALL_CPU, WIDE_CPU, check, primitive
from weft import op, te
from weft.ir.expr import const, var
from weft.strategy import lower_function
from weft.strategy.access import stride_along
from weft.strategy.cpu.elementwise.transpose import TransposedAccess, find_transposed_access
from weft.strategy.cpu.reduction.column_blocks import ColumnBlocks
from weft.strategy.cpu.reduction.rows import RowBlocks
from weft.strategy.kept_stages import KeptStages, SharedRows
from weft.target import Target
from weft.te.walk import loads_of
from weft.tir.eval import evaluate
from weft.tir.expr import BufferLoad, Ramp, Shuffle, int_value
from weft.tir.stmt import BufferStore
from weft.tir.visitor import all_exprs, post_order_stmts
from weft.topi.nn.norm import softmax

TARGETS = pytest.mark.parametrize("target", [SMALL_CPU, WIDE_CPU], ids=["avx2", "avx512"])


def gathers(func):
    """Loads of several elements that are not neighbours."""
    return [e for e in all_exprs(func.body)
            if isinstance(e, BufferLoad) and e.dtype.lanes > 1
            and not (isinstance(e.indices[0], Ramp) and int_value(e.indices[0].stride) == 1)]


def shuffles(func):
    return [e for e in all_exprs(func.body) if isinstance(e, Shuffle)]


@TARGETS
@pytest.mark.parametrize("shape", [(32, 48), (33, 50), (7, 129), (64, 5), (19, 3)])
def test_transposes_of_any_size(target, shape):
    x = var("x", shape)
    check(primitive([x], op.transpose(x, axes=(1, 0))), target)


@TARGETS
def test_a_transpose_of_whole_tiles_gathers_nothing(target):
    x = var("x", (32, 64))
    func = check(primitive([x], op.transpose(x, axes=(1, 0))), target).func
    assert gathers(func) == []
    assert shuffles(func)


@TARGETS
@pytest.mark.parametrize("axes", [(0, 2, 3, 1), (0, 3, 1, 2), (3, 2, 1, 0), (0, 2, 1, 3)])
def test_permutations_with_an_elementwise_tail(target, axes):
    x = var("x", (2, 18, 5, 17))
    b = var("b", (1,))
    check(primitive([x, b], op.nn.relu(op.add(op.transpose(x, axes=axes), b))), target)


@TARGETS
@pytest.mark.parametrize(
    ("src", "dst", "shape"),
    [("NCHW", "NCHW16c", (1, 48, 5, 7)), ("NCHW16c", "NCHW", (2, 3, 5, 7, 16)),
     ("NCHW", "NCHW3c", (1, 3, 9, 11)), ("NCHW24c", "NCHW", (1, 2, 6, 6, 24)),
     ("NCHW8c", "NCHW16c", (1, 4, 5, 5, 8)), ("NHWC", "NCHW16c", (1, 5, 9, 32))],
)
def test_changes_of_layout(target, src, dst, shape):
    x = var("x", shape)
    check(primitive([x], op.layout_transform(x, src_layout=src, dst_layout=dst)), target)


def test_a_reshape_ahead_of_a_transpose_is_seen_through():
    x = var("x", (1, 32, 6, 8))
    y = op.transpose(op.reshape(x, newshape=(1, 2, 16, 6, 8)), axes=(0, 1, 3, 4, 2))
    func = check(primitive([x], y), WIDE_CPU).func
    assert gathers(func) == []


def test_fused_axes_are_one_ramp():
    x, b = var("x", (1, 6, 5, 13)), var("b", (1, 6, 1, 1))
    func = check(primitive([x, b], op.add(x, b)), WIDE_CPU).func
    assert gathers(func) == []


@pytest.mark.sample(0.3)
@TARGETS
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_positions_of_extrema(target, axis, name):
    x = var("x", (5, 37, 70))
    check(primitive([x], getattr(op, name)(x, axis=(axis,), keepdims=False)), target)


@pytest.mark.parametrize("shape", [(700, 1000), (1003, 517)])
def test_a_sum_of_everything_is_shared_by_parts(shape):
    x = var("x", shape)
    func = check(primitive([x], op.sum(x, axis=None, keepdims=False)), WIDE_CPU, rtol=1e-3).func
    assert "in parallel(16)" in str(func)


@TARGETS
@pytest.mark.parametrize("shape", [(90, 300), (33, 16), (7, 5)])
@pytest.mark.parametrize("name", ["sum", "max"])
def test_reductions_of_columns(target, shape, name):
    x = var("x", shape)
    check(primitive([x], getattr(op, name)(x, axis=(0,), keepdims=False)), target)


@TARGETS
@pytest.mark.parametrize(("shape", "axes"), [((4, 30, 48), (1,)), ((1, 3, 7, 5, 16), (2, 3))])
def test_means_down_columns_are_vectors(target, shape, axes):
    """The division that follows shares all axes with the sum, and must not take its lanes."""
    x = var("x", shape)
    func = check(primitive([x], op.mean(x, axis=axes, keepdims=True)), target).func
    sums = [n for n in post_order_stmts(func.body)
            if isinstance(n, BufferStore) and "local" in n.buffer.scope]
    assert sums
    assert all(n.value.dtype.lanes > 1 for n in sums)


def test_partial_results_are_combined_by_halves():
    x = var("x", (3, 128))
    func = check(primitive([x], op.sum(x, axis=(1,), keepdims=False)), WIDE_CPU).func
    lanes = {e.dtype.lanes for e in shuffles(func)}
    assert lanes == {8, 4, 2, 1}


@TARGETS
@pytest.mark.parametrize("size", [1, 3, 5, 11])
def test_response_normalisation(target, size):
    x = var("x", (1, 13, 3, 7))
    check(primitive([x], op.nn.lrn(x, size=size, axis=1, alpha=0.1)), target)


def test_steps_of_loads():
    a = te.placeholder((4, 6, 8), name="a")
    b = te.compute((6, 4, 8), lambda i, j, k: a[j, i, k], name="b")
    (load,) = loads_of(b.op.body)
    assert [stride_along(load, axis) for axis in b.op.axis] == [8, 48, 1]


def test_steps_within_blocks():
    a = te.placeholder((2, 8, 16), name="a")
    b = te.compute((32, 8), lambda c, h: a[c // 16, h, c % 16], name="b")
    (load,) = loads_of(b.op.body)
    channels = b.op.axis[0]
    assert stride_along(load, channels) is None
    assert stride_along(load, channels, size=16) == 1
    assert stride_along(load, channels, size=32) is None


def test_no_transposed_access_where_reads_agree_with_the_result():
    a = te.placeholder((32, 32), name="a")
    same = te.compute((32, 32), lambda i, j: a[i, j] + 1.0, name="same")
    transposed = te.compute((32, 32), lambda i, j: a[j, i] + 1.0, name="transposed")
    groups = [[[axis] for axis in t.op.axis] for t in (same, transposed)]
    assert find_transposed_access(groups[0], same.op.body, 16) is None
    assert find_transposed_access(groups[1], transposed.op.body, 16) == TransposedAccess(0, 16)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_ties_and_nan_of_positions_as_numpy_has_them(name, last):
    x = var("x", (4, 130))
    function = primitive([x], getattr(op, name)(x, axis=(1,), keepdims=False,
                                                select_last_index=last))
    data = np.ones((4, 130), np.float32)
    data[0, [17, 40, 129]] = 3.0 if name == "argmax" else -3.0
    data[1, [9, 33]] = np.nan
    data[2] = -np.inf if name == "argmax" else np.inf
    data[3, [5, 64]] = np.nan, np.inf
    out = np.zeros(4, np.int64)
    evaluate(lower_function(function, WIDE_CPU).func, data, out)
    find = getattr(np, name)
    expected = 129 - find(data[:, ::-1], axis=1) if last else find(data, axis=1)
    np.testing.assert_array_equal(out, expected)


def test_positions_are_found_by_vectors_as_wide_as_those_of_values():
    x = var("x", (3, 256))
    func = check(primitive([x], op.argmax(x, axis=(1,), keepdims=False)), WIDE_CPU).func
    reads = [e for e in all_exprs(func.body) if isinstance(e, BufferLoad) and e.buffer.name == "p0"]
    assert {e.dtype.lanes for e in reads} == {16}


@pytest.mark.sample(0.4)
@TARGETS
@pytest.mark.parametrize("shape", [(2, 19, 37), (17, 131), (8, 64), (3, 5), (1, 6, 1, 9), (40, 3)])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_of_rows_side_by_side(target, shape, name):
    x = var("x", shape)
    check(primitive([x], getattr(op.nn, name)(x, axis=-1)), target)


@TARGETS
@pytest.mark.parametrize("shape", [(18, 7, 13), (6, 33), (21, 6), (19, 70)])
def test_layer_norm_behind_an_addition(target, shape):
    x, y = var("x", shape), var("y", shape)
    gamma, beta = var("gamma", shape[-1:]), var("beta", shape[-1:])
    check(primitive([x, y, gamma, beta], op.nn.layer_norm(op.add(x, y), gamma, beta)), target)


@TARGETS
@pytest.mark.parametrize("shape", [(33, 5), (16, 10), (7, 2), (64, 20), (50, 129)])
@pytest.mark.parametrize("name", ["sum", "max", "prod"])
def test_reductions_of_short_rows(target, shape, name):
    x = var("x", shape)
    check(primitive([x], getattr(op, name)(x, axis=(1,), keepdims=True)), target)


@pytest.mark.parametrize(("shape", "height"),
                         [((64, 100), 4), ((9, 100), 3), ((14, 100), 2), ((7, 100), 1),
                          ((37, 100), 4), ((64, 5000), 1), ((2, 12, 64), 4)])
def test_as_many_rows_side_by_side_as_hide_latency(shape, height):
    """Whole blocks where a height divides, a rest among many rows, and what a cache holds."""
    x = te.placeholder(shape, name="x")
    kept = KeptStages.of((softmax(x, len(shape) - 1),))
    rows = kept.shared_rows()
    assert rows == SharedRows(len(shape) - 1)
    assert RowBlocks.of(kept, rows, WIDE_CPU).height == height


def test_softmax_of_a_row_with_nan_is_nan():
    x = var("x", (4, 50))
    data = np.zeros((4, 50), np.float32)
    data[0, 7], data[1, 49], data[2, [3, 9]] = np.nan, np.nan, (np.inf, np.nan)
    out = np.zeros((4, 50), np.float32)
    evaluate(lower_function(primitive([x], op.nn.softmax(x)), WIDE_CPU).func, data, out)
    assert np.isnan(out[:3]).all()
    np.testing.assert_allclose(out[3], 0.02, rtol=1e-6)


@pytest.mark.parametrize("shape", [(37, 1024), (2, 18, 1024), (16, 2048)])
def test_rows_that_share_cache_sets_are_streamed(shape):
    """As whole rows by parts, with memory asked for ahead, where no cache holds them."""
    target = Target.of("llvm -mcpu=znver4 -l1=8192 -l3=65536")
    x = var("x", shape)
    function = primitive([x], op.sum(x, axis=(len(shape) - 2,), keepdims=False))
    text = str(check(function, target).func)
    assert "prefetch" in text
    assert "in parallel(16)" in text


@pytest.mark.parametrize("shape", [(37, 1025), (8, 1024), (37, 512)])
def test_other_columns_are_strips(shape):
    target = Target.of("llvm -mcpu=znver4 -l3=65536")
    x = var("x", shape)
    function = primitive([x], op.sum(x, axis=(0,), keepdims=False))
    assert "prefetch" not in str(check(function, target).func)


@TARGETS
@pytest.mark.parametrize(("columns", "is_long"), [(300, False), (2500, True)])
def test_a_long_row_of_softmax_needs_no_memory_of_its_own(target, columns, is_long):
    target = dataclasses.replace(target, l1_bytes=8192)
    x = var("x", (3, columns))
    func = check(primitive([x], op.nn.softmax(x, axis=-1)), target).func
    assert (func.attrs.get("workspace_bytes", 0) < columns * 4) == is_long


@TARGETS
@pytest.mark.parametrize(("shape", "groups"), [((2, 12, 5, 7), 3), ((1, 8, 4, 4), 2),
                                               ((1, 6, 3, 17), 6), ((3, 8, 33), 4), ((2, 16), 4)])
def test_group_norm_of_any_size(target, shape, groups):
    x, gamma, beta = var("x", shape), var("gamma", shape[1:2]), var("beta", shape[1:2])
    check(primitive([x, gamma, beta], op.nn.group_norm(x, gamma, beta, num_groups=groups)), target)


def test_groups_of_one_image_run_in_parallel():
    shape = (1, 32, 18, 18)
    x, gamma, beta = var("x", shape), var("gamma", (32,)), var("beta", (32,))
    function = primitive([x, gamma, beta], op.nn.group_norm(x, gamma, beta, num_groups=8))
    text = str(lower_function(function, WIDE_CPU).func)
    assert text.count("in parallel(8)") == text.count("parallel") == 1


@pytest.mark.sample(0.4)
@TARGETS
@pytest.mark.parametrize("shape", [(2, 12, 3, 40), (3, 5, 70), (1, 4, 2, 33), (2, 6, 5, 7)])
def test_groups_that_reduce_channels_run_in_strips(target, shape):
    """Positions of whole blocks, of a part of one, and too few for any."""
    x, gamma, beta = var("x", shape), var("gamma", shape[1:2]), var("beta", shape[1:2])
    check(primitive([x], op.nn.log_softmax(x, axis=1)), target)
    check(primitive([x], op.subtract(x, op.mean(x, axis=(1,), keepdims=True))), target)
    body = op.nn.layer_norm(op.nn.relu(x), gamma, beta, axis=1)
    func = check(primitive([x, gamma, beta], body), target).func
    sums = [n for n in post_order_stmts(func.body)
            if isinstance(n, BufferStore) and n.buffer.name in ("layer_norm_sum",
                                                                "layer_norm_squares")]
    assert shape[-1] not in (40, 70) or {n.buffer.scope for n in sums} == {"local"}


@pytest.mark.parametrize(("shape", "axis", "expected"), [
    ((2, 19, 64, 64), 1, (0, 2, 3)), ((2, 19, 64, 64), 2, (0, 1, 3)), ((40, 128), 0, (1,)),
    ((2, 19, 64, 64), 3, None), ((2, 19, 64, 20), 1, None), ((1, 4000, 64), 1, None)])
def test_column_blocks_where_they_are_wide_enough(shape, axis, expected):
    kept = KeptStages.of((softmax(te.placeholder(shape, name="x"), axis),))
    blocks = ColumnBlocks.of(kept, WIDE_CPU)
    assert (None if blocks is None else blocks.positions) == expected


@pytest.mark.parametrize("shape", [(6, 31), (4, 197), (9, 10)])
def test_the_rest_of_a_row_is_one_masked_vector(shape):
    x = var("x", shape)
    func = check(primitive([x], op.nn.softmax(x, axis=-1)), WIDE_CPU).func
    stores = [n for n in post_order_stmts(func.body)
              if isinstance(n, BufferStore) and n.buffer.name == "softmax_output"]
    assert {n.value.dtype.lanes for n in stores} == {16}


def test_scratch_walked_over_rows_stays_dense():
    """Room for masked vectors in its rows would tear the vectors apart that run on over them."""
    x = var("x", (2, 6, 5, 7))
    assert gathers(check(primitive([x], op.nn.softmax(x, axis=1)), WIDE_CPU).func) == []


def test_scratch_has_room_for_the_widest_vector_that_reads_it():
    """Bytes are stored four times as many at once as the floats that they are made of."""
    x = var("x", (3, 12))
    y = op.cast(op.multiply(op.nn.softmax(x, axis=-1), const(255.0, "float32")), dtype="uint8")
    check(primitive([x], y), WIDE_CPU)


@pytest.mark.sample(0.5)
@pytest.mark.parametrize(("caches", "is_fetched"), [("-l2=65536 -l3=65536", True),
                                                    ("-l2=8192 -l3=65536", False),
                                                    ("-l2=65536 -l3=1048576", False)])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_the_next_row_is_fetched_where_it_fits_and_all_rows_do_not(name, caches, is_fetched):
    target = Target.of(f"llvm -mcpu=znver4 -l1=4096 {caches}")
    x = var("x", (6, 1201))
    text = str(check(primitive([x], getattr(op.nn, name)(x, axis=-1)), target).func)
    assert ("prefetch" in text) == is_fetched


def test_what_is_read_through_inlined_operators_is_fetched():
    target = Target.of("llvm -mcpu=znver4 -l1=4096 -l2=65536 -l3=65536")
    x, y = var("x", (6, 1201)), var("y", (6, 1201))
    rows = check(primitive([x, y], op.nn.softmax(op.add(x, y), axis=-1)), target)
    assert "prefetch" in str(rows.func)
    z = var("z", (37, 1024))
    columns = primitive([z], op.sum(op.nn.relu(z), axis=(0,), keepdims=False))
    assert "prefetch" in str(check(columns, target).func)
