"""Floats of 16 bits: stored narrow, computed in float32, on schedules as good as float32's."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from tests.unit.strategy.kernels import SMALL_CPU, WIDE_CPU
from weft import op
from weft.compiler.options import CompileOptions
from weft.compiler.pipeline import run_pipeline
from weft.ir.expr import Call, Constant, Expr, Function, Var, var
from weft.ir.module import IRModule
from weft.ir.visitor import post_order
from weft.strategy import lower_function
from weft.target import Target

NARROW = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
HALF_ULP = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
TARGETS = {"host": None, "avx2": "llvm -mcpu=haswell"}


def draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return rng.standard_normal(shape).astype(NARROW.get(dtype, dtype))


def implementations(function: Function, target: Target = WIDE_CPU) -> set[str]:
    """What runs the kernels of a program on a CPU, none of which is compiled."""
    module = run_pipeline(IRModule.from_expr(function), CompileOptions.make(target))
    return {lower_function(node.op, target).implementation
            for node in post_order(module["main"].body)
            if isinstance(node, Call) and isinstance(node.op, Function)}


def assert_rounded_once(got: np.ndarray, exact: np.ndarray, dtype: str, size: float) -> None:
    """``got`` is ``exact``, rounded to ``dtype`` after float32 sums of magnitude ``size``."""
    assert got.dtype == NARROW[dtype]
    bound = 1.01 * HALF_ULP[dtype] * np.abs(exact) + 2e-5 * size
    np.testing.assert_array_less(np.abs(got.astype(np.float64) - exact), bound + 1e-7)


# -- sums -----------------------------------------------------------------------------------


@pytest.mark.parametrize("opt_level", [0, 3])
@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("shape", [(4096, 2), (2, 4096), (4096,)])
def test_ones_are_counted_beyond_the_precision_of_the_type(shape, dtype, opt_level) -> None:
    """Sums of 16 bits stop growing at 256 and 2048."""
    x = var("x", shape, dtype)
    body = op.sum(x, axis=(int(np.argmax(shape)),))
    got = weft.compile(Function((x,), body), opt_level=opt_level)(np.ones(shape, NARROW[dtype]))
    assert set(got.astype(np.float32).ravel().tolist()) == {4096.0}


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("build", [
    op.nn.dense, lambda x, w: op.nn.dense(w, x),
    lambda x, w: op.nn.matmul(x, w, transpose_b=True),
    lambda x, w: op.nn.matmul(x, op.transpose(w)),
], ids=["dense", "constant_left", "matmul", "transposed"])
@pytest.mark.parametrize("opt_level", [0, 3])
def test_products_add_up_in_float32(build, dtype, opt_level) -> None:
    x = var("x", (3, 3000), dtype)
    ones = np.ones((5, 3000), NARROW[dtype])
    module = weft.compile(Function((x,), build(x, Constant(ones))), opt_level=opt_level)
    found = module(np.ones((3, 3000), NARROW[dtype])).astype(np.float32)
    assert set(found.ravel().tolist()) == {float(NARROW[dtype](3000))}


# -- convolutions ---------------------------------------------------------------------------

CONVOLUTIONS = {
    "1x1": ((1, 6, 5, 7), (9, 6, 1, 1), {}),
    "3x3": ((2, 16, 9, 8), (32, 16, 3, 3), {"padding": (1, 1)}),
    "strided": ((1, 5, 11, 9), (7, 5, 3, 3), {"strides": (2, 2), "padding": (1, 1)}),
    "dilated": ((1, 8, 12, 12), (16, 8, 3, 3), {"dilation": (2, 2)}),
    "grouped": ((1, 8, 6, 6), (12, 4, 3, 3), {"groups": 2, "padding": (1, 1)}),
    "depthwise": ((1, 24, 9, 10), (24, 1, 3, 3), {"groups": 24, "padding": (1, 1)}),
    "pixel": ((1, 32, 1, 1), (48, 32, 1, 1), {}),
    "one_channel": ((1, 1, 6, 6), (1, 1, 3, 3), {}),
    "hwio": ((1, 6, 7, 8), (3, 3, 6, 16), {"kernel_layout": "HWIO"}),
    "last": ((1, 6, 7, 8), (3, 3, 8, 16), {"data_layout": "NHWC", "kernel_layout": "HWIO"}),
}


@pytest.mark.sample(0.3)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution(name, dtype, target) -> None:
    shape, kernel, attrs = CONVOLUTIONS[name]
    rng = np.random.default_rng(0)
    x, w = draw(rng, shape, dtype), draw(rng, kernel, dtype)
    data = var("x", shape, dtype)
    body = op.nn.conv2d(data, Constant(w), **attrs)
    got = weft.compile(Function((data,), body), target=TARGETS[target])(x)
    wide = [a.astype(np.float64) for a in (x, w)]
    exact = op.nn.conv2d.reference(*wide, **attrs)
    size = op.nn.conv2d.reference(*map(np.abs, wide), **attrs)
    assert_rounded_once(got, exact, dtype, float(size.max()))


@pytest.mark.sample(0.3)
@pytest.mark.parametrize("target", [WIDE_CPU, SMALL_CPU], ids=["avx512", "avx2"])
@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("name", [n for n in CONVOLUTIONS if n != "hwio"])
def test_convolutions_get_no_generic_schedule(name, dtype, target) -> None:
    shape, kernel, attrs = CONVOLUTIONS[name]
    weight = draw(np.random.default_rng(0), kernel, dtype)
    x = var("x", shape, dtype)
    chosen = implementations(Function((x,), op.nn.conv2d(x, Constant(weight), **attrs)), target)
    assert not any(c.endswith("generic") for c in chosen), chosen


@pytest.mark.parametrize(("layout", "size"), [("NCHW", 14), ("NCHW", 7), ("NHWC", 7)])
def test_bfloat16_takes_dot_products_where_the_cpu_has_them(layout, size) -> None:
    """Rows of 7 fill no vector, output channels do."""
    chosen = implementations(bfloat16_conv(layout, size, dilation=2), WIDE_CPU)
    assert "nn.conv2d.cpu.vdpbf16ps_512_nhwc" in chosen, chosen


def test_bfloat16_in_rows_of_a_prime_size_is_computed_in_float32() -> None:
    """Register tiles of one position of 31 would read the weights from L2 for each of them."""
    chosen = implementations(bfloat16_conv("NHWC", 31, dilation=2), WIDE_CPU)
    assert not any("vdpbf16ps" in c or c.endswith("generic") for c in chosen), chosen


def test_bfloat16_takes_winograd_where_it_is_faster_still() -> None:
    chosen = implementations(bfloat16_conv("NCHW", 56, dilation=1), WIDE_CPU)
    assert "nn.winograd_conv2d.cpu.blocked" in chosen, chosen


def bfloat16_conv(layout: str, size: int, dilation: int) -> Function:
    """A kernel whose taps are apart has no Winograd form."""
    x = var("x", (1, 64, size, size) if layout == "NCHW" else (1, size, size, 64), "bfloat16")
    weight = Constant(np.ones((64, 64, 3, 3), ml_dtypes.bfloat16))
    return Function((x,), op.nn.conv2d(x, weight, padding=(dilation,) * 2, data_layout=layout,
                                       dilation=(dilation,) * 2))


@pytest.mark.parametrize(("build", "shape"), [
    (lambda x, w: op.nn.conv1d(x, w, padding=(1,)), (1, 8, 20)),
    (op.nn.conv3d, (1, 8, 4, 5, 6)),
    (lambda x, w: op.nn.conv1d_transpose(x, w, strides=(2,)), (1, 8, 9)),
    (lambda x, w: op.nn.conv2d_transpose(x, w, strides=(2, 2)), (1, 8, 5, 6)),
], ids=["conv1d", "conv3d", "transposed1d", "transposed2d"])
def test_relatives_of_conv2d(build, shape) -> None:
    rng, dtype = np.random.default_rng(1), "float16"
    kernel = draw(rng, (8, 8, *(3 for _ in shape[2:])), dtype)
    x, data = var("x", shape, dtype), draw(rng, shape, dtype)
    function = Function((x,), build(x, Constant(kernel)))
    assert not any(c.endswith("generic") for c in implementations(function))
    wide = var("x", shape, "float64")
    exact = weft.compile(Function((wide,), build(wide, Constant(kernel.astype(np.float64)))))
    got = weft.compile(function)(data)
    assert_rounded_once(got, exact(data.astype(np.float64)), dtype, 30.0)


# -- dense layers ---------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["NK", "KN"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8"])
def test_constant_weights_are_packed_in_either_layout(layout, dtype) -> None:
    shape = (24, 40) if layout == "NK" else (40, 24)
    rng = np.random.default_rng(0)
    weight = (rng.integers(-99, 99, shape).astype(np.int8) if dtype == "int8"
              else draw(rng, shape, dtype))
    x = var("x", (5, 40), dtype)
    out = "int32" if dtype == "int8" else None
    # A sum of the weights keeps the rewriting of KN into NK from seeing a constant.
    transposed = op.transpose(op.transpose(Constant(weight)))
    function = Function((x,), op.nn.dense(x, transposed, weight_layout=layout, out_dtype=out))
    assert not any(c.endswith("generic") for c in implementations(function))
    data = (rng.integers(-99, 99, (5, 40)).astype(np.int8) if dtype == "int8"
            else draw(rng, (5, 40), dtype))
    right = weight.T if layout == "NK" else weight
    exact = data.astype(np.float64) @ right.astype(np.float64)
    got = weft.compile(function)(data)
    np.testing.assert_allclose(got.astype(np.float64), exact, rtol=1e-2, atol=0.1)


@pytest.mark.parametrize("build", [
    lambda x: op.nn.dense(x, Constant(np.ones((48, 64), np.float16))),
    lambda x: op.nn.matmul(x, op.transpose(x)),
], ids=["dense", "matmul"])
def test_the_broadcast_operand_is_upcast_once(build) -> None:
    """Its elements are read for every panel."""
    x = var("x", (32, 64), "float16")
    (kernel,) = kernels_of(Function((x,), build(x)))
    assert "a_upcast" in str(lower_function(kernel, WIDE_CPU).func)


@pytest.mark.parametrize("dtype", NARROW)
def test_products_of_activations_may_have_wide_results(dtype) -> None:
    a, b = var("a", (4, 9, 33), dtype), var("b", (4, 33, 20), dtype)
    body = op.nn.batch_matmul(a, b, transpose_b=False, out_dtype="float32")
    function = Function((a, b), body)
    assert not any(c.endswith("generic") for c in implementations(function))
    rng = np.random.default_rng(0)
    x, y = draw(rng, (4, 9, 33), dtype), draw(rng, (4, 33, 20), dtype)
    got = weft.compile(function)(x, y)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, x.astype(np.float64) @ y.astype(np.float64), rtol=1e-5,
                               atol=1e-4)


# -- what kernels compute in ----------------------------------------------------------------


def kernels_of(function: Function) -> list[Expr]:
    module = run_pipeline(IRModule.from_expr(function), CompileOptions.make(WIDE_CPU))
    return [n.op for n in post_order(module["main"].body)
            if isinstance(n, Call) and isinstance(n.op, Function)]


def operators(kernel: Expr) -> list[tuple[str, str]]:
    """Names and dtypes of the calls in a kernel."""
    assert isinstance(kernel, Function)
    return [(str(n.op), str(n.checked_type.dtype)) for n in post_order(kernel.body)
            if isinstance(n, Call)]


def test_a_chain_is_rounded_at_its_end_only() -> None:
    x = var("x", (8,), "bfloat16")
    (kernel,) = kernels_of(Function((x,), op.exp(op.tanh(op.negative(x)))))
    assert operators(kernel) == [("cast", "float32"), ("negative", "float32"),
                                 ("tanh", "float32"), ("exp", "float32"), ("cast", "bfloat16")]


def test_comparisons_see_rounded_numbers() -> None:
    """``(x + 1) - 1 == 0`` holds for numbers that 16 bits swallow."""
    x = var("x", (4,), "float16")
    one = Constant(np.float16(1))
    body = op.equal(op.add(x, one), one)
    tiny = np.array([0, 1e-5, 2e-4, 1e-2], np.float16)
    got = weft.compile(Function((x,), body))(tiny)
    np.testing.assert_array_equal(got, (tiny + np.float16(1)) == 1)


def test_conversions_to_integers_see_rounded_numbers() -> None:
    x = var("x", (3,), "float16")
    body = op.cast(op.multiply(x, Constant(np.float16(3))), dtype="int32")
    data = np.array([0.33325, 0.66650, 1.3330], np.float16)
    np.testing.assert_array_equal(weft.compile(Function((x,), body))(data),
                                  (data * np.float16(3)).astype(np.int32))


def test_sums_of_products_are_rounded_once() -> None:
    """What follows a product in its kernel sees the sums themselves."""
    x = var("x", (2, 600), "float16")
    body = op.subtract(op.nn.dense(x, Constant(np.ones((3, 600), np.float16))),
                       Constant(np.float16(2048)))
    data = np.ones((2, 600), np.float16)
    data[:, 0] = 1450.0
    data[:, 1] = 1.5
    got = weft.compile(Function((x,), body))(data)
    np.testing.assert_array_equal(got, np.full((2, 3), 1450 + 1.5 + 598 - 2048, np.float16))


def test_moves_of_elements_stay_narrow() -> None:
    x = var("x", (8, 16), "float16")
    (kernel,) = kernels_of(Function((x,), op.transpose(op.reverse(x, axis=0))))
    assert {dtype for _, dtype in operators(kernel)} == {"float16"}


UNARY = (op.negative, op.abs, op.tanh, op.sigmoid, op.exp, op.nn.relu, op.erf, op.sin)
BINARY = (op.add, op.subtract, op.multiply, op.maximum, op.minimum)


@st.composite
def chains(draw_: st.DrawFn) -> tuple[list[int], str, tuple[int, ...]]:
    steps = draw_(st.lists(st.integers(0, len(UNARY) + len(BINARY) - 1), min_size=1, max_size=6))
    shape = draw_(st.sampled_from([(5,), (3, 17), (2, 64), (1, 1), (33,)]))
    return steps, draw_(st.sampled_from(sorted(NARROW))), shape


def build_chain(steps: list[int], x: Var, y: Var) -> Expr:
    values: list[Expr] = [x, y]
    for step in steps:
        if step < len(UNARY):
            values.append(UNARY[step](values[-1]))
        else:
            values.append(BINARY[step - len(UNARY)](values[-1], values[-2]))
    return values[-1]


@settings(max_examples=25, deadline=None, derandomize=True)
@given(chains())
def test_chains_are_nearer_to_real_numbers_than_rounding_each_step(case) -> None:
    """The result is that of float32, rounded once."""
    steps, dtype, shape = case
    x, y = (var(n, shape, dtype) for n in "xy")
    wide_x, wide_y = (var(n, shape, "float32") for n in "xy")
    rng = np.random.default_rng(len(steps))
    data = [draw(rng, shape, dtype) for _ in range(2)]
    with np.errstate(all="ignore"):
        got = weft.compile(Function((x, y), build_chain(steps, x, y)))(*data)
        wide = weft.compile(Function((wide_x, wide_y), build_chain(steps, wide_x, wide_y)))(
            *(d.astype(np.float32) for d in data))
        np.testing.assert_array_equal(got, wide.astype(NARROW[dtype]))


@pytest.mark.sample(0.4)
@pytest.mark.parametrize("build", [
    lambda x: op.nn.softmax(x, axis=-1), lambda x: op.nn.log_softmax(x, axis=-1),
    lambda x: op.sum(x, axis=(1, 3)), lambda x: op.max(x, axis=(1,)),
    lambda x: op.nn.max_pool2d(x, pool_size=(3, 3), strides=(2, 2), padding=(1, 1)),
    lambda x: op.nn.avg_pool2d(x, pool_size=(3, 3), strides=(2, 2), padding=(1, 1)),
    op.nn.global_avg_pool2d, lambda x: op.nn.l2_normalize(x, axis=(1,)),
    lambda x: op.image.resize2d(x, size=(9, 9)),
], ids=["softmax", "log_softmax", "sum", "max", "max_pool", "avg_pool", "gap", "l2", "resize"])
@pytest.mark.parametrize("dtype", NARROW)
def test_operators_with_sums_are_those_of_float32_rounded(build, dtype) -> None:
    shape = (2, 6, 11, 13)
    data = draw(np.random.default_rng(2), shape, dtype)
    narrow, wide = (var("x", shape, d) for d in (dtype, "float32"))
    got = weft.compile(Function((narrow,), build(narrow)))(data)
    expected = weft.compile(Function((wide,), build(wide)))(data.astype(np.float32))
    np.testing.assert_array_equal(got, expected.astype(NARROW[dtype]))


# -- conversion -----------------------------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("count", [1, 7, 8, 16, 64, 1000])
def test_rounding_to_bfloat16_keeps_denormals_and_nans(count, target) -> None:
    """The instruction that rounds flushes denormals; a vector that has one goes another way."""
    rng = np.random.default_rng(count)
    bits = rng.integers(0, 2**32, (6, count), dtype=np.uint64).astype(np.uint32)
    bits[1] = (bits[1] & 0x807FFFFF)  # denormals and zeros
    bits[2, :: max(1, count // 3)] &= 0x807FFFFF  # some among others
    bits[3] |= 0x7F800000  # infinities and NaN
    bits[4] = (bits[4] & 0xFFFF0000) | 0x8000  # ties
    bits[5] = rng.choice(np.array([0, 1 << 31, 1, 0x7FFFFF, 0x800000, 0x7F7FFFFF], np.uint32),
                         count)
    x = var("x", (6, count), "float32")
    data = bits.view(np.float32)
    got = weft.compile(Function((x,), op.cast(x, dtype="bfloat16")), target=TARGETS[target])(data)
    with np.errstate(all="ignore"):
        expected = data.astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    same = ~np.isnan(expected.astype(np.float32))
    np.testing.assert_array_equal(got.view(np.uint16)[same], expected.view(np.uint16)[same])


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_do_not_change_a_bit(threads) -> None:
    x = var("x", (1, 16, 20, 20), "bfloat16")
    rng = np.random.default_rng(0)
    weight = Constant(draw(rng, (32, 16, 3, 3), "bfloat16"))
    body = op.nn.max_pool2d(op.nn.relu(op.nn.conv2d(x, weight)), pool_size=(2, 2))
    data = draw(rng, (1, 16, 20, 20), "bfloat16")
    one, several = (weft.compile(Function((x,), body), threads=n)(data) for n in (1, threads))
    assert one.tobytes() == several.tobytes()
