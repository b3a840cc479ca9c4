"""The knobs of schedules: every point computes what the cost model's choice does."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.unit.strategy.kernels import primitive
from weft import op
from weft.compiler.options import CompileOptions
from weft.ir import IRModule
from weft.ir.expr import Constant, Function, var
from weft.strategy.build_tensors import anchor_of
from weft.strategy.implementation import Implementation
from weft.strategy.selection import Reason, candidates, select
from weft.strategy.space import Knob, Space, divisors_up_to, doubled_up_to, flag
from weft.support.config import config
from weft.support.errors import InternalError, LoweringError, ScheduleError
from weft.support.records_file import NO_RECORDS
from weft.target import CpuTarget
from weft.tune.here import work_of
from weft.tune.measure import agree
from weft.tune.running_kernel import RunningKernel

HOST = CpuTarget.host()


def dense(m, k, n):
    x, w = var("x", (m, k), "float32"), var("w", (n, k), "float32")
    return primitive([x, w], op.nn.dense(x, w))


def matmul(m, k, n):
    x, w = var("x", (m, k), "float32"), var("w", (k, n), "float32")
    return primitive([x, w], op.nn.relu(op.nn.matmul(x, w)))


def packed_dense(m, k, n, nr=32):
    x, w = var("x", (m, k), "float32"), var("w", (-(-n // nr), k, nr), "float32")
    return primitive([x, w], op.nn.dense(x, w, weight_layout=f"NK{nr}n", units=n))


def conv(channels, outputs, size, taps, stride=1, groups=1):
    x = var("x", (1, channels, size, size), "float32")
    w = var("w", (outputs, channels // groups, taps, taps), "float32")
    return primitive([x, w], op.nn.relu(op.nn.conv2d(
        x, w, strides=(stride, stride), padding=(taps // 2,) * 4, groups=groups)))


def blocked_conv(channels, outputs, size, taps, block=16):
    x = var("x", (1, channels // block, size, size, block), "float32")
    w = var("w", (outputs // block, taps, channels // block, taps, block, block), "float32")
    return primitive([x, w], op.nn.relu(op.nn.conv2d(
        x, w, padding=(taps // 2,) * 4, data_layout=f"NCHW{block}c",
        kernel_layout=f"OHIW{block}i{block}o", out_layout=f"NCHW{block}c")))


def blocked_depthwise(channels, size, taps, block=16):
    x = var("x", (1, channels // block, size, size, block), "float32")
    w = var("w", (channels // block, 1, taps, taps, 1, block), "float32")
    return primitive([x, w], op.nn.relu(op.nn.conv2d(
        x, w, padding=(taps // 2,) * 4, groups=channels, data_layout=f"NCHW{block}c",
        kernel_layout=f"OIHW1i{block}o", out_layout=f"NCHW{block}c")))


def winograd(channels, outputs, size, tile=4, block=16):
    x = var("x", (1, channels // block, size, size, block), "float32")
    w = var("w", (tile + 2, tile + 2, outputs // block, channels, block), "float32")
    return primitive([x, w], op.nn.relu(op.nn.winograd_conv2d(
        x, w, tile=tile, padding=(1, 1, 1, 1), data_layout=f"NCHW{block}c",
        kernel_layout=f"HWOI{block}o", out_layout=f"NCHW{block}c")))


def dot_products(channels, outputs, size):
    """A convolution of bytes in the layout that the program of it chooses."""
    x = var("x", (1, channels, size, size), "uint8")
    w = Constant(np.random.default_rng(0).integers(-9, 9, (outputs, channels, 3, 3)).astype("i1"))
    module = IRModule.from_expr(Function((x,), op.nn.conv2d(
        x, w, padding=(1, 1), out_dtype="int32")))
    with config(records=NO_RECORDS):
        tasks = work_of(module, CompileOptions.make()).tasks
    return next(task.function for task in tasks if "nn.conv2d" in task.text)


def of_one(make, *shape):
    x = var("x", shape, "float32")
    return primitive([x], make(x))


def attention(heads, queries, keys, depth):
    q, k, v = (var(name, (2, heads, size, depth), "float32")
               for name, size in zip("qkv", (queries, keys, keys), strict=True))
    return primitive([q, k, v], op.nn.attention(q, k, v))


KERNELS = {
    "dense": lambda: dense(37, 200, 71),
    "matmul": lambda: matmul(65, 300, 90),
    "deep matmul": lambda: matmul(6, 2048, 40),
    "packed dense": lambda: packed_dense(40, 256, 90),
    "convolution": lambda: conv(12, 20, 17, 3),
    "strided convolution": lambda: conv(16, 24, 21, 3, 2),
    "pointwise convolution": lambda: conv(64, 48, 20, 1),
    "blocked convolution": lambda: blocked_conv(32, 48, 14, 3),
    "depthwise convolution": lambda: conv(24, 24, 19, 3, groups=24),
    "blocked depthwise convolution": lambda: blocked_depthwise(32, 19, 5),
    "dot products": lambda: dot_products(32, 48, 14),
    "dot products of adjacent channels": lambda: dot_products(64, 64, 28),
    "winograd": lambda: winograd(32, 48, 14),
    "pooling": lambda: of_one(lambda x: op.nn.max_pool2d(
        x, pool_size=(3, 3), strides=(2, 2), padding=(1, 1, 1, 1)), 1, 8, 33, 33),
    "softmax": lambda: of_one(op.nn.softmax, 40, 130),
    "sum": lambda: of_one(lambda x: op.sum(x, axis=[0]), 300, 70),
    "elementwise": lambda: of_one(lambda x: op.tanh(op.exp(x)), 100, 333),
    "attention": lambda: attention(3, 50, 70, 32),
}
# Random points of a kernel that compile.
POINTS = 2


@pytest.fixture(params=KERNELS)
def kernel(request):
    function = KERNELS[request.param]()
    found = next(c for c in candidates(anchor_of(function), HOST) if c.space is not None)
    return function, found, found.space(), random.Random(request.param)


def random_point(space, draw):
    """Half of the points near the model's choice: fewer of those are refused."""
    knobs = [knob for knob in space.knobs if len(knob.values) > 1]
    changed = draw.sample(knobs, min(2, len(knobs))) if draw.random() < 0.5 else space.knobs
    return {**space.chosen, **{knob.name: draw.choice(knob.values) for knob in changed}}


@pytest.mark.sample(0.4, least=6)
def test_random_points_give_the_same_results_on_any_number_of_threads(kernel):
    function, chosen, space, draw = kernel
    expected = RunningKernel(function, chosen, HOST, 1)
    expected.seconds()
    found = 0
    for _ in range(40 * POINTS):
        try:
            point = space.at(random_point(space, draw))
            running = RunningKernel(function, point, HOST, 1)
        except (ScheduleError, LoweringError):
            continue
        running.seconds()
        assert agree(expected.outputs, running.outputs), point.name
        alone = [output.copy() for output in running.outputs]
        threaded = RunningKernel(function, point, HOST, 3)
        threaded.seconds()
        for one, three in zip(alone, threaded.outputs, strict=True):
            np.testing.assert_array_equal(one, three)
        found += 1
        if found == POINTS:
            return
    pytest.fail(f"{found} of {40 * POINTS} points compiled")


def test_names_of_points_are_read_back(kernel):
    _, chosen, space, draw = kernel
    assert space.point_of(chosen.name) == space.chosen
    assert space.name_of(space.chosen) == chosen.name
    for _ in range(20):
        point = random_point(space, draw)
        assert space.point_of(space.name_of(point)) == point


def toy(made=lambda _: Implementation("toy", lambda _: None)):
    return Space("toy", (Knob.of("mr", (4, 1, 2), 2), flag("packs", chosen=True)), made)


def test_a_space_says_which_values_are_legal():
    space = toy()
    assert space.size == 6
    assert space.at({"mr": 4, "packs": 0}).name == "toy[mr=4,packs=0]"
    with pytest.raises(ScheduleError, match="mr of toy cannot have this value") as caught:
        space.at({"mr": 3, "packs": 0})
    assert "1, 2, 4" in str(caught.value)
    with pytest.raises(InternalError, match="not among its legal values"):
        Knob("mr", (1, 2), 3)


@pytest.mark.parametrize("name", [
    "other[mr=4,packs=0]", "toy[mr=3,packs=0]", "toy[mr=4]", "toy[packs=0,mr=x]",
    "toy[nr=1,packs=0]"])
def test_unknown_names_have_no_point(name):
    assert toy().named(name) is None


def test_a_point_that_does_not_fit_has_no_implementation():
    def refuse(_):
        raise ScheduleError("the register tile exceeds the registers")

    assert toy(refuse).named("toy[mr=4,packs=0]") is None


def test_a_record_may_name_a_point():
    call = anchor_of(matmul(65, 300, 90))
    chosen = candidates(call, HOST)[0]
    space = chosen.space()
    names = (space.name_of({**space.chosen, "mr": 3}), chosen.name)
    found = select(call, HOST, ("gone", "nn.matmul.cpu.gemm[mr=99]", *names))
    assert found.reason is Reason.RECORD
    assert found.chosen.name == names[0]


def test_helpers_of_knobs():
    assert divisors_up_to(12, 6) == [1, 2, 3, 4, 6]
    assert doubled_up_to(20, 3) == [3, 6, 12]
    assert doubled_up_to(2, 3) == []
