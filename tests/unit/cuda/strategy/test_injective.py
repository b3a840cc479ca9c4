"""Injective groups on CUDA: values, and the threads and vectors that they take."""

from __future__ import annotations

import pytest

import weft.strategy.cuda  # noqa: F401 - registers the schedules
from tests.unit.cuda.strategy.nests import bound, check_nest, schedule_of, vectors
from tests.unit.strategy.kernels import primitive
from weft import op
from weft.ir.expr import var
from weft.tir.stmt import Allocate
from weft.tir.visitor import post_order_stmts


@pytest.mark.parametrize("shape", [(), (1,), (5, 7), (3, 1, 9), (129, 257), (0, 4)], ids=str)
def test_elementwise_groups_of_any_shape(shape):
    x, y = var("x", shape), var("y", shape)
    check_nest(primitive([x, y], op.nn.relu(op.add(op.exp(x), y))))


@pytest.mark.parametrize("shape", [(7, 1), (1, 33), (33,), ()], ids=str)
def test_broadcasts(shape):
    x, y = var("x", (4, 7, 33)), var("y", shape)
    check_nest(primitive([x, y], op.multiply(x, y)))


def test_a_large_tensor_is_read_in_vectors_of_128_bits():
    for dtype, lanes in (("float32", 4), ("float16", 8), ("float64", 2)):
        x = var("x", (4096, 1024), dtype)
        nest = schedule_of(primitive([x], op.nn.relu(x))).loop_nest()
        assert [loop.extent.value for loop in vectors(nest)] == [lanes], dtype


def test_rows_that_vectors_do_not_divide_are_read_by_elements():
    x, row = var("x", (4096, 1023)), var("r", (1023,))
    nest = schedule_of(primitive([x, row], op.add(x, row))).loop_nest()
    assert not vectors(nest)


def test_a_huge_tensor_is_a_grid_stride_loop():
    x = var("x", (1 << 14, 1 << 14))
    nest = schedule_of(primitive([x], op.nn.relu(x))).loop_nest()
    (grid,) = bound(nest, "blockIdx.x")
    assert grid.extent.value == 132 * 8 * 16  # H100: 16 rounds of 8 blocks on each SM


def test_outputs_of_several_shapes_are_launches_of_their_own():
    x = var("x", (6, 10))
    nest = check_nest(primitive([x], op.split(x, indices_or_sections=2, axis=1)))
    assert len(bound(nest, "blockIdx.x")) == 2


@pytest.mark.parametrize("axes", [(1, 0, 2), (2, 1, 0), (0, 2, 1)])
def test_transposes(axes):
    x = var("x", (3, 34, 40))
    check_nest(primitive([x], op.nn.relu(op.transpose(x, axes=axes))))


@pytest.mark.parametrize(
    ("src", "dst", "shape"),
    [("NCHW", "NHWC", (2, 48, 14, 15)), ("NHWC", "NCHW", (1, 9, 17, 40)),
     ("NCHW", "NCHW16c", (1, 32, 12, 11))],
)
def test_changes_of_layout_go_through_a_padded_tile(src, dst, shape):
    x = var("x", shape)
    nest = check_nest(primitive([x], op.layout_transform(x, src_layout=src, dst_layout=dst)))
    (tile,) = [n.buffer for n in post_order_stmts(nest.body) if isinstance(n, Allocate)]
    # A column of the tile is in 32 banks: the stride of a row is odd.
    assert tile.scope == "shared"
    assert tile.static_shape[-1] == 33


def test_a_transpose_after_elementwise_operators_reads_its_source_in_tiles():
    x, b = var("x", (70, 90)), var("b", (70,))
    y = op.add(op.transpose(op.exp(x), axes=(1, 0)), b)
    nest = check_nest(primitive([x, b], y))
    assert sum(isinstance(n, Allocate) for n in post_order_stmts(nest.body)) == 1
