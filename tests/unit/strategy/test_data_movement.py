"""Schedules of kernels that move elements: values on odd shapes, and no choice in a hot loop."""

from __future__ import annotations

import pytest

from tests.unit.strategy.kernels import SMALL_CPU, WIDE_CPU, check, primitive
from weft import op
from weft.ir.expr import Tuple, var
from weft.ir.shape import as_dim
from weft.strategy import lower_function
from weft.tir.expr import BufferLoad, Call, Max, Ramp, Select, Shuffle, int_value
from weft.tir.stmt import BufferStore, IfThenElse
from weft.tir.visitor import all_exprs, post_order_stmts

TARGETS = pytest.mark.parametrize("target", [SMALL_CPU, WIDE_CPU], ids=["avx2", "avx512"])


def choices(func):
    """Expressions that take one of two values."""
    return [e for e in all_exprs(func.body) if isinstance(e, Select)
            or (isinstance(e, Call) and e.name == "if_then_else")]


def joined(shapes, axis):
    parts = [var(f"x{i}", shape) for i, shape in enumerate(shapes)]
    return primitive(parts, op.concatenate(Tuple(tuple(parts)), axis=axis))


@TARGETS
@pytest.mark.parametrize(("shapes", "axis"), [
    ([(3, 30), (3, 51), (3, 17)], 1),
    ([(1, 9, 5, 7), (1, 4, 5, 7), (1, 11, 5, 7)], 1),
    ([(2, 6, 33), (2, 1, 33)], 1),
    ([(7, 40), (2, 40)], 0),
])
def test_parts_of_a_concatenation_are_copied_by_loops_of_their_own(target, shapes, axis):
    assert choices(check(joined(shapes, axis), target).func) == []


@TARGETS
def test_short_rows_are_put_together_in_a_vector(target):
    check(joined([(9, 3), (9, 5), (9, 1)], 1), target)


def gathers(func):
    """Loads of several elements that are neither neighbours nor a few steps apart."""
    return [e for e in all_exprs(func.body) if isinstance(e, BufferLoad) and e.dtype.lanes > 1
            and not isinstance(e.indices[0], Ramp)]


@TARGETS
@pytest.mark.parametrize("shape", [(1, 3, 8, 16), (2, 2, 5, 9), (1, 3, 7, 7), (3, 2, 1, 5)])
def test_a_few_channels_are_interleaved(target, shape):
    x, b = var("x", shape), var("b", (1,))
    y = op.nn.relu(op.add(op.transpose(x, axes=(0, 2, 3, 1)), b))
    func = check(primitive([x, b], y), target).func
    assert gathers(func) == []


@TARGETS
def test_columns_of_one_element_are_interleaved_as_a_stack_is(target):
    func = check(joined([(6, 33, 1)] * 4, 2), target).func
    assert gathers(func) == []
    assert choices(func) == []


def test_whole_tiles_of_a_few_channels_are_shuffles_alone():
    x = var("x", (1, 3, 8, 16))
    func = check(primitive([x], op.transpose(x, axes=(0, 2, 3, 1))), WIDE_CPU).func
    stores = [n for n in post_order_stmts(func.body) if isinstance(n, BufferStore)]
    assert [type(n.value) for n in stores] == [Shuffle] * 3


@TARGETS
@pytest.mark.parametrize("count", [3, 4, 7])
def test_a_few_stacked_tensors_are_interleaved(target, count):
    parts = [var(f"x{i}", (5, 19)) for i in range(count)]
    func = check(primitive(parts, op.stack(Tuple(tuple(parts)), axis=2)), target).func
    assert choices(func) == []


@TARGETS
@pytest.mark.parametrize(("block", "mode"), [(2, "DCR"), (3, "CRD"), (4, "CRD"), (5, "DCR")])
def test_pixels_that_move_from_channels_to_space(target, block, mode):
    x = var("x", (1, 2 * block * block, 4, 11))
    func = check(primitive([x], op.nn.depth_to_space(x, block_size=block, mode=mode)), target).func
    if block < 4:
        assert gathers(func) == []


@TARGETS
@pytest.mark.parametrize(("shape", "reps"), [
    ((3, 41), (2, 3)), ((2, 5), (1, 7)), ((4, 2), (1, 9)), ((3, 16), (1, 2)), ((6, 1), (1, 20)),
])
def test_tiled_rows(target, shape, reps):
    x = var("x", shape)
    func = check(primitive([x], op.tile(x, reps=reps)), target).func
    if shape[1] >= 4:
        assert gathers(func) == []


@TARGETS
@pytest.mark.parametrize("repeats", [2, 3, 5])
def test_repeated_elements(target, repeats):
    x = var("x", (3, 19))
    check(primitive([x], op.repeat(x, repeats=repeats, axis=1)), target)


@TARGETS
@pytest.mark.parametrize("mode", ["reflect", "edge"])
@pytest.mark.parametrize("widths", [((0, 0), (3, 2)), ((2, 1), (0, 5)), ((1, 1), (0, 0))])
def test_borders_made_of_the_data(target, mode, widths):
    x = var("x", (5, 37))
    func = check(primitive([x], op.nn.pad(x, 0.0, pad_width=widths, pad_mode=mode)), target).func
    whole = [e for e in all_exprs(func.body) if isinstance(e, BufferLoad) and e.dtype.lanes >= 8
             and isinstance(e.indices[0], Ramp) and int_value(e.indices[0].stride) == 1]
    assert whole


@TARGETS
def test_rows_backwards(target):
    x = var("x", (3, 37))
    check(primitive([x], op.reverse(x, axis=1)), target)


@pytest.mark.parametrize(("shape", "axis"), [
    ((19, 7), 1), ((16, 5), 1), ((3, 9, 21), 0), ((3, 9, 21), 1), ((2, 11, 6), 2), ((33,), 0),
    ((1, 1), 0), ((70, 300), 1), ((9, 90, 31), 1),
])
@pytest.mark.parametrize("attrs", [{}, {"exclusive": True, "reverse": True}])
def test_running_sums(shape, axis, attrs):
    x = var("x", shape)
    check(primitive([x], op.cumsum(x, axis=axis, **attrs)), WIDE_CPU)


def test_running_sums_of_several_rows_do_not_wait_for_each_other():
    x = var("x", (16, 50))
    func = check(primitive([x], op.cumsum(x, axis=1)), WIDE_CPU).func
    totals = {e.indices for e in all_exprs(func.body)
              if isinstance(e, BufferLoad) and e.buffer.scope == "local"}
    assert len(totals) == 8


@TARGETS
@pytest.mark.parametrize(("size", "count"), [(100, 40), (1, 9), (1, 1)])
def test_a_search_has_no_branches(target, size, count):
    line, sought = var("line", (size,), "int64"), var("sought", (count,), "int64")
    func = check(primitive([line, sought], op.searchsorted(line, sought)), target).func
    assert not [s for s in post_order_stmts(func.body) if isinstance(s, IfThenElse)]


@TARGETS
def test_running_sums_of_columns_stay_in_registers(target):
    x = var("x", (5, 150))
    func = check(primitive([x], op.cumsum(x, axis=0)), target).func
    stored = {s.buffer for s in post_order_stmts(func.body) if isinstance(s, BufferStore)}
    assert {b.scope for b in stored - set(func.params)} == {"local"}


@TARGETS
def test_positions_of_a_resize_are_vectors_of_int32(target):
    x = var("x", (2, 3, 21, 30))
    func = check(primitive([x], op.image.resize2d(x, size=(40, 37))), target).func
    stores = [s for s in post_order_stmts(func.body) if isinstance(s, BufferStore)
              and s.buffer.name.startswith("positions")]
    assert {str(s.buffer.dtype) for s in stores} == {"int32"}
    assert any(isinstance(s.indices[0], Ramp) for s in stores)
    assert all(int_value(e.indices[0].stride) == 1 for e in all_exprs(func.body)
               if isinstance(e, BufferLoad) and isinstance(e.indices[0], Ramp))


@pytest.mark.parametrize(("dtype", "size", "expected"), [
    ("int32", 50, "int32"), ("int64", 50, "int64"), ("int32", "n", "int64")])
def test_positions_of_int32_are_clamped_as_they_are(dtype, size, expected):
    x, i = var("x", (3, as_dim(size))), var("i", (40,), dtype)
    func = lower_function(primitive([x, i], op.take(x, i, axis=1, mode="clip")), WIDE_CPU).func
    clamped = {str(e.dtype.element) for e in all_exprs(func.body) if isinstance(e, Max)
               and e.dtype.lanes > 1}
    assert clamped == {expected}
