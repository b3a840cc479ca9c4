"""Reduction groups on CUDA: values on odd shapes, no data races, and the launches they take."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft.strategy.cuda  # noqa: F401 - registers the schedules
from tests.unit.cuda.strategy.nests import A100, H100, bound, check_nest, schedule_of, vectors
from tests.unit.strategy.kernels import primitive
from weft import op
from weft.ir.expr import var
from weft.ir.typing.infer import infer_expr
from weft.strategy import lower_function
from weft.strategy.decision import decision_of

SHAPES = [(1, 1), (3, 5), (33, 128), (2, 1031), (300, 16), (5, 2048)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("axis", [0, 1])
def test_sums_and_softmax_of_any_shape(shape, axis):
    x = var("x", shape)
    check_nest(primitive([x], op.sum(x, axis=(axis,))), rtol=1e-4)
    check_nest(primitive([x], op.nn.softmax(x, axis=axis)))


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.data())
def test_reductions_over_any_axes(shape, data):
    axes = data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
    x = var("x", tuple(shape))
    check_nest(primitive([x], op.max(x, axis=tuple(axes))))
    check_nest(primitive([x], op.mean(x, axis=tuple(axes), keepdims=True)))


@pytest.mark.parametrize("target", [A100, H100], ids=["sm_80", "sm_90a"])
@pytest.mark.parametrize("length", [7, 64, 768, 2500])
def test_normalisations(target, length):
    x, g, b = var("x", (6, length)), var("g", (length,)), var("b", (length,))
    check_nest(primitive([x, g, b], op.nn.layer_norm(x, g, b)), target, rtol=1e-4)
    check_nest(primitive([x, g], op.nn.rms_norm(x, g)), target, rtol=1e-4)


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_group_norm_is_one_launch(groups):
    x, g, b = var("x", (2, 6, 5, 7)), var("g", (6,)), var("b", (6,))
    nest = check_nest(primitive([x, g, b], op.nn.group_norm(x, g, b, num_groups=groups)),
                      rtol=1e-4)
    assert len(bound(nest, "blockIdx.x")) == 1


def test_a_softmax_is_one_launch_with_vectors_along_its_rows():
    x = var("x", (512, 1024))
    nest = schedule_of(primitive([x], op.nn.softmax(x))).loop_nest()
    assert len(bound(nest, "blockIdx.x")) == 1
    assert {loop.extent.value for loop in vectors(nest)} == {4}


def test_a_softmax_over_channels_reads_along_the_contiguous_axis():
    x = var("x", (2, 21, 16, 32))
    kernel = schedule_of(primitive([x], op.nn.softmax(x, axis=1)))
    nest = check_nest(primitive([x], op.nn.softmax(x, axis=1)))
    # Adjacent threads are adjacent columns; threadIdx.y shares the channels.
    assert len(bound(nest, "blockIdx.x")) == 1
    result = kernel.schedule[kernel.tensors[-1]]
    tags = {result.thread_tags[a]: a.name for a in result.thread_tags}
    assert tags["threadIdx.x"].startswith("i3")


def test_a_long_sum_is_two_launches():
    x = var("x", (2, 1 << 20))
    nest = schedule_of(primitive([x], op.sum(x, axis=(1,)))).loop_nest()
    assert len(bound(nest, "blockIdx.x")) == 2
    first, second = bound(nest, "blockIdx.x")
    assert first.extent.value >= 128 > second.extent.value


@pytest.mark.parametrize("keepdims", [False, True])
def test_arg_reductions_and_their_ties(keepdims):
    x = var("x", (7, 130), "int32")  # the random integers are 0: only ties
    for make in (op.argmax, op.argmin):
        for last in (False, True):
            check_nest(primitive([x], make(x, axis=(1,), keepdims=keepdims,
                                           select_last_index=last)))


def test_a_row_with_several_results_of_a_reduction():
    # The gradient of a max pool reduces windows for each position of a plane.
    dy, x = var("dy", (1, 2, 4, 4)), var("x", (1, 2, 8, 8))
    call = op.nn.max_pool2d_grad(dy, x, pool_size=(2, 2), strides=(2, 2))
    check_nest(primitive([dy, x], call))


@pytest.mark.parametrize("shape", [(1, 3, 9, 9), (2, 8, 16, 16)], ids=str)
def test_pools(shape):
    x = var("x", shape)
    check_nest(primitive([x], op.nn.max_pool2d(x, pool_size=(3, 3), padding=(1,) * 4)))
    check_nest(primitive([x], op.nn.avg_pool2d(x, pool_size=(2, 2), strides=(2, 2))))
    check_nest(primitive([x], op.nn.global_avg_pool2d(x)))


def test_the_decision_of_an_operator():
    def decided(make, shape):
        call = infer_expr(make(var("x", shape)))
        return decision_of(call, H100)

    softmax = decided(op.nn.softmax, (4096, 1024))
    assert softmax.algorithm == "rows"
    assert [r.algorithm for r in softmax.rejected] == ["separate"]
    # 4 bytes read and 4 written: a copy at the bandwidth of H100 takes about 11 microseconds.
    assert 11e-6 < softmax.seconds < 15e-6
    # A row of 200 KB does not fit in shared memory: its exponentials are computed twice.
    assert decided(op.nn.softmax, (512, 50257)).algorithm == "recomputed_rows"


def test_rows_that_do_not_fit_in_shared_memory():
    x = var("x", (3, 13001))
    assert len(bound(check_nest(primitive([x], op.nn.softmax(x))), "blockIdx.x")) == 1


@pytest.mark.parametrize("length", [3000, 5000, 6100, 12000])
def test_a_group_takes_less_shared_memory_than_every_block_has(length):
    x = var("x", (64, length))
    func = lower_function(primitive([x], op.nn.softmax(x)), H100).func
    offsets = func.attrs["shared_offsets"]
    assert max(at + (buffer.static_bytes or 0) for buffer, at in offsets.items()) < 48 * 1024
