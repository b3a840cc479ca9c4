"""GEMM and convolution in int8 and bfloat16: the instruction of each CPU, and the results."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import weft
from tests.unit.codegen.conftest import Compiler
from tests.unit.strategy.kernels import SMALL_CPU, WIDE_CPU, primitive
from weft import op
from weft.compiler.options import CompileOptions
from weft.compiler.pipeline import run_pipeline
from weft.ir.dtype import DType
from weft.ir.expr import Call, Function, const, var
from weft.ir.module import IRModule
from weft.strategy import LoweredKernel, lower_function
from weft.strategy.cpu.dot_product.instruction import select_dot_instruction
from weft.strategy.selection import implementations
from weft.target import CpuTarget, Target
from weft.tir.eval import evaluate
from weft.topi.layout import Layout, transform_array
from weft.transform.analysis.reference import evaluate as evaluate_reference

ARM_CPU = Target.of(
    "llvm -mtriple=aarch64-unknown-linux-gnu -mcpu=generic -mattr=+dotprod,+i8mm,+bf16")
OLD_ARM = Target.of("llvm -mtriple=aarch64-unknown-linux-gnu -mcpu=generic -mattr=+dotprod")
NO_VECTORS = Target.of("llvm -mcpu=x86-64")
PAIRS = [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8"), ("int8", "uint8"),
         ("bfloat16", "bfloat16"), ("int16", "int16")]


def draw(dtype: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """All values of a byte; int16 in the range of int8, so that sums do not wrap."""
    rng = np.random.default_rng(seed)
    if dtype == "bfloat16":
        return rng.standard_normal(shape).astype(ml_dtypes.bfloat16)
    ends = np.iinfo(dtype if dtype != "int16" else "int8")
    return rng.integers(ends.min, ends.max, shape, endpoint=True).astype(dtype)


def expected(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    wide = np.float64 if a.dtype == ml_dtypes.bfloat16 else np.int64
    return a.astype(wide) @ b.astype(wide)


def check(kernel: LoweredKernel, arrays: list[np.ndarray], want: np.ndarray) -> None:
    out = np.zeros(want.shape, np.float32 if want.dtype == np.float64 else np.int32)
    evaluate(kernel.func, *arrays, out)
    np.testing.assert_allclose(out, want, rtol=1e-5, atol=0 if want.dtype == np.int64 else 1e-4)
    assert "not_tensorized" not in str(kernel.func)


def by_dot_product(function: Function, target: CpuTarget) -> LoweredKernel:
    """The kernel by the dot-product instruction, also where another algorithm is faster."""
    assert isinstance(function.body, Call)
    a, b = (arg.checked_type.dtype for arg in function.body.args)
    plan = select_dot_instruction(a, b, target)
    assert plan is not None
    (found,) = (each for each in implementations(function.body, target)
                if each.name.endswith(f".{plan.instruction.name}"))
    return lower_function(function, target, implementation=found)


@pytest.mark.parametrize(("target", "left", "right", "name"), [
    (WIDE_CPU, "uint8", "int8", "vpdpbusd_512"),
    (WIDE_CPU, "int8", "uint8", "vpdpbusd_512_swapped"),
    (WIDE_CPU, "int8", "int8", "vpdpbusd_512"),
    (WIDE_CPU, "bfloat16", "bfloat16", "vdpbf16ps_512"),
    (WIDE_CPU, "int16", "int16", "vpmaddwd_512"),
    (SMALL_CPU, "uint8", "uint8", "vpmaddwd_256"),
    (SMALL_CPU, "bfloat16", "bfloat16", None),
    (ARM_CPU, "uint8", "int8", "usdot_128"),
    (ARM_CPU, "uint8", "uint8", "udot_128"),
    (ARM_CPU, "bfloat16", "bfloat16", "bfdot_128"),
    (OLD_ARM, "uint8", "int8", "sdot_128"),
    (OLD_ARM, "bfloat16", "bfloat16", None),
    (NO_VECTORS, "uint8", "int8", None),
    (WIDE_CPU, "float32", "float32", None),
])
def test_the_instruction_of_a_cpu(target, left, right, name):
    plan = select_dot_instruction(DType.of(left), DType.of(right), target)
    assert (None if plan is None else plan.instruction.name) == name


@pytest.mark.parametrize("target", [WIDE_CPU, SMALL_CPU, ARM_CPU], ids=["avx512", "avx2", "neon"])
@pytest.mark.parametrize(("left", "right"), PAIRS)
@pytest.mark.parametrize(("rows", "columns", "depth", "swap"),
                         [(3, 21, 10, False), (1, 16, 3, True)])
def test_matmul(target, left, right, rows, columns, depth, swap):
    if select_dot_instruction(DType.of(left), DType.of(right), target) is None:
        pytest.skip("this CPU has no dot-product instruction for these dtypes")
    a = var("a", (depth, rows) if swap else (rows, depth), left)
    b = var("b", (columns, depth) if swap else (depth, columns), right)
    out = "float32" if left == "bfloat16" else "int32"
    kernel = by_dot_product(primitive([a, b], op.nn.matmul(
        a, b, transpose_a=swap, transpose_b=swap, out_dtype=out)), target)
    x, y = draw(left, (rows, depth), 0), draw(right, (depth, columns), 1)
    given = [np.ascontiguousarray(v.T) if swap else v for v in (x, y)]
    check(kernel, given, expected(x, y))


@pytest.mark.parametrize(("left", "right"), PAIRS[:3])
def test_stacks_of_matrices_broadcast(left, right):
    a, b = var("a", (3, 5, 6), left), var("b", (1, 18, 6), right)
    kernel = by_dot_product(
        primitive([a, b], op.nn.batch_matmul(a, b, out_dtype="int32")), WIDE_CPU)
    x, y = draw(left, (3, 5, 6), 0), draw(right, (1, 18, 6), 1)
    check(kernel, [x, y], expected(x, y.swapaxes(-1, -2)))


@pytest.mark.parametrize(("left", "right"), PAIRS[:5])
@pytest.mark.parametrize(("lead", "units", "depth"), [((2, 3), 40, 9), ((33,), 7, 5)])
def test_weights_in_padded_panels(left, right, lead, units, depth):
    group = 2 if left == "bfloat16" else 4
    layout = f"NK48n{group}k"
    weight = draw(right, (units, depth), 1)
    padded = np.pad(weight, ((0, -units % 48), (0, -depth % group)))
    packed = transform_array(padded, Layout.parse("NK"), Layout.parse(layout))
    x, w = var("x", (*lead, depth), left), var("w", packed.shape, right)
    out = "float32" if left == "bfloat16" else "int32"
    y = op.nn.dense(x, w, units=units, weight_layout=layout, out_dtype=out)
    kernel = lower_function(primitive([x, w], y), WIDE_CPU)
    data = draw(left, (*lead, depth), 0)
    if (left, right) == ("uint8", "uint8"):
        assert kernel.implementation == "nn.dense.cpu.vpdpbusd_512_swapped"
    check(kernel, [data, packed], expected(data, weight.T))


def test_bfloat16_sums_are_rounded_once():
    a, b = var("a", (2, 300), "bfloat16"), var("b", (300, 16), "bfloat16")
    kernel = by_dot_product(primitive([a, b], op.nn.matmul(a, b)), WIDE_CPU)
    x, y = draw("bfloat16", (2, 300), 0), draw("bfloat16", (300, 16), 1)
    out = np.zeros((2, 16), ml_dtypes.bfloat16)
    evaluate(kernel.func, x, y, out)
    want = expected(x, y)
    np.testing.assert_allclose(out.astype(float), want, rtol=2**-8, atol=1e-4)


@pytest.mark.parametrize(("left", "right"), PAIRS[:5])
def test_compiled_models_use_dot_products(left, right):
    weight = draw(right, (37, 70), 1)
    x = var("x", (3, 70), left)
    out = "float32" if left == "bfloat16" else "int32"
    body = op.add(op.nn.dense(x, const(weight), out_dtype=out), const(np.ones(37, out)))
    module = weft.compile(Function((x,), body))
    data = draw(left, (3, 70), 0)
    want = expected(data, weight.T) + 1
    np.testing.assert_allclose(module(data), want, rtol=1e-5,
                               atol=1e-4 if left == "bfloat16" else 0)


def test_a_fused_result_is_in_registers_when_it_is_read():
    x, w = var("x", (9, 16), "uint8"), var("w", (1, 4, 32, 4), "int8")
    y = op.nn.dense(x, w, weight_layout="NK32n4k", out_dtype="int32")
    z = op.cast(op.nn.relu(op.cast(y, dtype="float32")), dtype="uint8")
    kernel = lower_function(primitive([x, w], z), WIDE_CPU)
    assert "vpdpbusd_512" in kernel.implementation
    assert kernel.func.attrs.get("workspace_bytes", 0) < 9 * 32 * 4
    Compiler().compile(kernel.func)


@pytest.mark.sample(0.3)
@pytest.mark.parametrize(("left", "right"), PAIRS[:5])
@pytest.mark.parametrize(("size", "kernel", "stride", "dilation", "outputs"), [
    ((5, 18), 3, 1, 1, 6), ((4, 7), 1, 1, 1, 5), ((7, 9), 3, 2, 1, 4), ((7, 20), 2, 1, 2, 3),
])
def test_convolutions(left, right, size, kernel, stride, dilation, outputs):
    group = 2 if left == "bfloat16" else 4
    layout = f"OHWI{group}i"
    plain = draw(right, (outputs, 8, kernel, kernel), 1)
    packed = transform_array(plain, Layout.parse("OIHW"), Layout.parse(layout))
    out = "float32" if left == "bfloat16" else "int32"
    attrs = {"strides": (stride, stride), "padding": (kernel // 2,) * 4, "channels": outputs,
             "dilation": (dilation, dilation), "kernel_size": (kernel, kernel), "out_dtype": out}
    x, w, v = (var("x", (1, 8, *size), left), var("w", packed.shape, right),
               var("v", plain.shape, right))
    data = draw(left, (1, 8, *size), 0)
    reference = IRModule.from_expr(primitive([x, v], op.nn.conv2d(x, v, **attrs)))
    want = evaluate_reference(reference, [data, plain])
    body = op.nn.conv2d(x, w, kernel_layout=layout, **attrs)
    kernel_ = lower_function(primitive([x, w], op.nn.relu(body)), WIDE_CPU)
    found = np.zeros(want.shape, want.dtype)
    evaluate(kernel_.func, data, packed, found)
    np.testing.assert_allclose(found, np.maximum(want, 0), rtol=1e-4, atol=1e-3)
    assert "not_tensorized" not in str(kernel_.func)
    assert "vpdpbusd" in kernel_.implementation or "vdpbf16ps" in kernel_.implementation


def test_convolutions_of_constant_kernels_are_packed_when_compiled():
    weight = draw("int8", (6, 8, 3, 3), 1)
    x = var("x", (1, 8, 5, 6), "uint8")
    body = op.nn.conv2d(x, const(weight), padding=(1,) * 4, channels=6, kernel_size=(3, 3),
                        out_dtype="int32")
    module = weft.compile(Function((x,), body))
    assert 'kernel_layout="OHWI4i"' in module.as_text("optimized")
    data = draw("uint8", (1, 8, 5, 6), 0)
    padded = np.pad(data.astype(np.int64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    want = np.einsum("nchwij,ocij->nohw", windows, weight.astype(np.int64))
    np.testing.assert_array_equal(module(data), want)


@pytest.mark.parametrize(("target", "left", "right"), [
    (WIDE_CPU, "uint8", "int8"), (ARM_CPU, "int8", "int8"), (WIDE_CPU, "bfloat16", "bfloat16"),
])
@pytest.mark.parametrize(("size", "taps", "stride", "dilation", "has_blocks"), [
    ((4, 7), 1, 1, 1, False), ((6, 9), 3, 2, 1, False), ((5, 8), 2, 1, 2, True),
    ((5, 6), 1, 2, 1, False), ((3, 5), 1, 1, 1, True),
])
def test_convolutions_of_adjacent_channels(target, left, right, size, taps, stride, dilation,
                                           has_blocks):
    """The data, in NHWC or with one block of channels, is read in place; output channels are the
    lanes.
    """
    lanes, is_real = 16 if target is WIDE_CPU else 4, left == "bfloat16"
    written, data = draw(right, (2 * lanes, 8, taps, taps), 1), draw(left, (2, *size, 8), 0)
    layout = f"OHWI{lanes}o{2 if is_real else 4}i"
    packed = transform_array(written, Layout.parse("OIHW"), Layout.parse(layout))
    attrs = {"strides": (stride, stride), "dilation": (dilation, dilation), "padding": (0,) * 4,
             "out_dtype": "float32" if is_real else "int32"}
    wide = np.float64 if is_real else np.int64
    want = np.maximum(op.nn.conv2d.reference(data.astype(wide), written.astype(wide), **attrs,
                                             data_layout="NHWC").astype(wide), 0)
    attrs["data_layout"] = "NCHW8c" if has_blocks else "NHWC"
    attrs["out_layout"] = f"NCHW{2 * lanes}c" if has_blocks else "NHWC"
    if has_blocks:
        data, want = data[:, None], want[:, None]
    x, w = var("x", data.shape, left), var("w", packed.shape, right)
    body = op.nn.conv2d(x, w, kernel_layout=layout, channels=2 * lanes,
                        kernel_size=(taps, taps), **attrs)
    kernel = lower_function(primitive([x, w], op.nn.relu(body)), target)
    assert kernel.implementation.endswith("dot_128_nhwc" if target is ARM_CPU else "512_nhwc")
    check(kernel, [data, packed], want)


@pytest.mark.parametrize(("left", "padding"), [("int8", 0), ("int8", 1), ("uint8", 1)])
def test_channels_last_data_is_padded_ahead_and_shifted_if_signed(left, padding):
    """``vpdpbusd`` takes unsigned data; the correction is a constant."""
    x = var("x", (1, 6, 6, 4), left)
    body = op.nn.conv2d(x, const(draw("int8", (3, 3, 4, 5), 1)), padding=(padding,) * 4,
                        data_layout="NHWC", kernel_layout="HWIO", out_dtype="int32")
    module = IRModule.from_expr(Function((x,), body))
    text = str(run_pipeline(module, CompileOptions.make(WIDE_CPU), stop_at="optimized"))
    assert ("bitwise_xor" in text) == (left == "int8")
    assert "OHWI16o4i" in text
    assert ("nn.pad(" in text) == bool(padding)


@pytest.mark.parametrize(("left", "right"), [("int8", "int8"), ("bfloat16", "bfloat16")])
def test_threads_change_no_bit(left, right):
    x, weight = var("x", (70, 90), left), draw(right, (100, 90), 1)
    out = "float32" if left == "bfloat16" else "int32"
    body = op.nn.dense(x, const(weight), out_dtype=out)
    data = draw(left, (70, 90), 0)
    found = [weft.compile(Function((x,), body), threads=n)(data) for n in (1, 2, 3)]
    assert all(np.array_equal(found[0], y) for y in found[1:])


@pytest.mark.parametrize(("layout", "kernel_layout"), [("NCHW", "OIHW"), ("NHWC", "HWIO")])
def test_threads_change_no_bit_of_convolutions_of_any_batch(layout, kernel_layout):
    """Odd channels are padded with zeros; the result is rounded once."""
    weight, data = draw("bfloat16", (21, 33, 3, 3), 1), draw("bfloat16", (3, 33, 14, 14), 0)
    attrs = {"padding": (1, 1), "data_layout": layout, "kernel_layout": kernel_layout}
    given, kernel = (transform_array(array, Layout.parse(before), Layout.parse(after))
                     for array, before, after in ((data, "NCHW", layout),
                                                  (weight, "OIHW", kernel_layout)))
    x = var("x", ("n", *given.shape[1:]), "bfloat16")
    function = Function((x,), op.nn.relu(op.nn.conv2d(x, const(kernel), **attrs)))
    found = [weft.compile(function, threads=n)(given) for n in (1, 3)]
    assert np.array_equal(*found)
    exact = np.maximum(op.nn.conv2d.reference(
        given.astype(np.float64), kernel.astype(np.float64), **attrs), 0)
    np.testing.assert_allclose(found[0].astype(np.float64), exact, rtol=2**-8, atol=1e-3)
    chosen = run_pipeline(IRModule.from_expr(function), CompileOptions.make(WIDE_CPU))
    assert 'algorithm="dot_product"' in str(chosen)


@pytest.mark.parametrize(("left", "right"), [("int8", "int8"), ("bfloat16", "bfloat16")])
@pytest.mark.parametrize(("conv", "taps", "stride", "channels_last"), [
    (op.nn.conv1d, 3, 1, False), (op.nn.conv1d, 3, 2, True), (op.nn.conv1d, 1, 1, True),
    (op.nn.conv3d, 2, 2, False), (op.nn.conv3d, 1, 1, False),
])
def test_signals_and_volumes(left, right, conv, taps, stride, channels_last):
    rank = 1 if conv is op.nn.conv1d else 3
    data = draw(left, (2, 9, *(7, 6, 5)[-rank:]), 0)
    kernel = draw(right, (32, 9, *(taps,) * rank), 1)
    attrs = {"strides": (stride,) * rank, "padding": (taps // 2,) * rank}
    if channels_last:
        data, kernel = np.moveaxis(data, 1, -1).copy(), np.moveaxis(kernel, (0, 1), (-1, -2)).copy()
        attrs |= {"data_layout": "NWC", "kernel_layout": "WIO"}
    x = var("x", data.shape, left)
    out, wide = ("int32", np.int64) if left == "int8" else ("float32", np.float64)
    function = Function((x,), conv(x, const(kernel), out_dtype=out, **attrs))
    np.testing.assert_allclose(
        weft.compile(function)(data),
        conv.reference(data.astype(wide), kernel.astype(wide), **attrs), rtol=1e-5, atol=1e-4)
    chosen = run_pipeline(IRModule.from_expr(function), CompileOptions.make(WIDE_CPU))
    assert 'algorithm="dot_product"' in str(chosen)


@pytest.mark.sample(0.3)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("seed", range(24))
def test_random_convolutions(seed, layout):
    """Random sizes, strides, dilations and paddings: sums of bytes are exact."""
    rng = np.random.default_rng(seed)
    left, right = PAIRS[seed % 5]
    if seed % 3 == 0:  # a 1x1 kernel: all pixels form one row
        taps, padding = (1, 1), (0, 0)
    else:
        taps = tuple(int(n) for n in rng.integers(1, 4, 2))
        padding = tuple(int(n) for n in rng.integers(0, 3, 4))
    attrs = {"strides": tuple(int(n) for n in rng.integers(1, 4, 2)), "padding": padding,
             "dilation": tuple(int(n) for n in rng.integers(1, 3, 2))}
    channels, outputs = (int(n) for n in rng.integers(1, 20, 2))
    shape = (int(rng.integers(1, 3)), channels, *(int(n) for n in rng.integers(6, 24, 2)))
    x, w = draw(left, shape, seed), draw(right, (outputs, channels, *taps), seed + 1)
    is_real = left == "bfloat16"
    if layout == "NHWC":
        x, w = np.ascontiguousarray(x.transpose(0, 2, 3, 1)), w.transpose(2, 3, 1, 0)
        attrs |= {"data_layout": layout, "kernel_layout": "HWIO"}
    data = var("x", x.shape, left)
    body = op.nn.conv2d(data, const(w), out_dtype="float32" if is_real else "int32", **attrs)
    target = "llvm -mcpu=haswell" if seed % 4 == 1 else None
    got = weft.compile(Function((data,), body), target=target)(x)
    wide = np.float64 if is_real else np.int64
    exact = op.nn.conv2d.reference(x.astype(wide), w.astype(wide), **attrs)
    if is_real:
        np.testing.assert_allclose(got, exact, rtol=1e-4, atol=2e-4)
    else:
        np.testing.assert_array_equal(got, exact)
