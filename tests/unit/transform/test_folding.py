"""Constant folding, inference forms, canonical forms, scales into weights."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.transform.helpers import check_example, check_values, op_calls, parse_program
from weft import op
from weft.ir import deferred
from weft.ir.deferred import Joined, Product
from weft.ir.expr import Constant, Function, Tuple, TupleGetItem, const, var
from weft.ir.module import IRModule
from weft.ir.passes import Sequential
from weft.ir.typing.infer import infer_type
from weft.ir.visitor import post_order
from weft.transform.passes.canonicalize_ops import CanonicalizeOps
from weft.transform.passes.fold_constant import FoldConstant, evaluate_constant
from weft.transform.passes.fold_scale_axis import (
    BackwardFoldScaleAxis,
    FoldScaleAxis,
    ForwardFoldScaleAxis,
)
from weft.transform.passes.simplify_inference import SimplifyInference
from weft.transform.rules.scale import finite_product


@pytest.mark.parametrize(
    "pass_",
    [FoldConstant(), SimplifyInference(), CanonicalizeOps(), FoldScaleAxis(),
     ForwardFoldScaleAxis(), BackwardFoldScaleAxis()],
    ids=str,
)
def test_example(pass_):
    check_example(pass_)


def module(body, *params) -> IRModule:
    return infer_type(IRModule.from_expr(Function(params, body)))


def weight(*shape, seed=0):
    return const(np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32))


def changed(pass_, mod):
    after = pass_(mod)
    check_values(mod, after, rtol=1e-4)
    return after


# -- constants -----------------------------------------------------------------------------------


def test_branches_on_constants_and_projections_are_decided():
    mod = parse_program("""
        def @main(%x: Tensor[(2,), float32]) {
          %0 = (exp(%x), %x);
          if (less(1f, 2f)) { %0.1 } else { %0.0 }
        }""")
    after = changed(FoldConstant(), mod)
    assert after["main"].body is after["main"].params[0]


def test_results_of_several_tensors_fold():
    parts = op.split(weight(4, 2), indices_or_sections=2, axis=0)
    after = changed(FoldConstant(), module(TupleGetItem(parts, 1)))
    assert isinstance(after["main"].body, Constant)


def test_a_large_broadcast_of_a_constant_stays():
    x = var("x", (64, 64, 8))
    spread = op.broadcast_to(weight(8), shape=(64, 64, 8))
    mod = module(op.add(x, spread), x)
    assert FoldConstant(max_bytes=1 << 10)(mod) is mod
    assert op_calls(FoldConstant()(mod)) == ["add"]


def test_creation_folds_at_any_size():
    mod = module(op.nn.relu(op.zeros(shape=(8, 8), dtype="float32")))
    after = FoldConstant(max_bytes=1)(mod)
    assert isinstance(after["main"].body, Constant)


# -- inference and canonical forms ---------------------------------------------------------------


def batch_norm(x, channels, **attrs):
    vectors = [weight(channels, seed=i) for i in range(3)]
    variance = const(np.abs(weight(channels, seed=3).data) + np.float32(0.1))
    return op.nn.batch_norm(x, *vectors, variance, **attrs)


@pytest.mark.parametrize("attrs", [{}, {"axis": -1}, {"scale": False}, {"center": False}], ids=str)
def test_batch_norm_is_a_scale_and_a_shift(attrs):
    x = var("x", (2, 4, 3, 4))
    normalised = batch_norm(x, 4, **attrs)
    fields = Tuple(tuple(TupleGetItem(normalised, i) for i in range(3)))
    after = changed(SimplifyInference(), module(fields, x))
    assert op_calls(after) == ["multiply", "add"]


def test_batch_norm_with_statistics_as_inputs():
    x, s = var("x", (2, 4, 3)), var("s", (4,))
    positive = op.exp(s)
    normalised = op.nn.batch_norm(x, s, s, s, positive)
    changed(SimplifyInference(), module(TupleGetItem(normalised, 0), x, s))


def test_matrix_products_with_constants_are_dense():
    x = var("x", (3, 5))
    for flag, shape in ((False, (5, 4)), (True, (4, 5))):
        mod = module(op.nn.matmul(x, weight(*shape), transpose_b=flag), x)
        after = changed(Sequential((CanonicalizeOps(), FoldConstant())), mod)
        assert op_calls(after) == ["nn.dense"]
        assert after["main"].body.args[1].data.shape == (4, 5)


def test_dense_weights_are_rows():
    x = var("x", (3, 5))
    mod = module(op.nn.dense(x, weight(5, 4), weight_layout="KN"), x)
    after = changed(CanonicalizeOps(), mod)
    assert op_calls(after) == ["transpose", "nn.dense"]
    assert after["main"].body.attrs.weight_layout == "NK"


def test_windows_are_spelled_out():
    x = var("x", (1, 4, 6, 6))
    y = op.nn.max_pool2d(x, pool_size=(3, 3), padding=(1,))
    after = changed(
        CanonicalizeOps(), module(op.nn.conv2d(y, weight(8, 4, 3, 3), padding=(1, 0)), x)
    )
    convolution = after["main"].body
    assert convolution.attrs.padding == (1, 0, 1, 0)
    assert convolution.attrs.channels == 8
    assert convolution.attrs.kernel_size == (3, 3)
    assert convolution.args[0].attrs.padding == (1, 1, 1, 1)
    assert CanonicalizeOps()(after) is after


def test_flattening_keeps_a_symbolic_batch():
    mod = parse_program("""
        def @main(%x: Tensor[(n, 2, 3), float32]) { nn.batch_flatten(%x) }""")
    after = CanonicalizeOps()(mod)
    assert op_calls(after) == ["reshape"]
    assert after["main"].body.checked_type == mod["main"].body.checked_type


# -- scales --------------------------------------------------------------------------------------


def conv(x, outputs=8, inputs=4, **attrs):
    return op.nn.conv2d(x, weight(outputs, inputs, 3, 3), padding=(1, 1, 1, 1), **attrs)


X = var("x", (1, 4, 5, 5))


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("shape", [(8, 1, 1), (1, 8, 1, 1), ()])
def test_convolutions_absorb_the_scale_behind_them(groups, shape):
    y = op.multiply(conv(X, inputs=4 // groups, groups=groups), weight(*shape))
    assert op_calls(changed(FoldScaleAxis(), module(y, X))) == ["nn.conv2d"]


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_convolutions_absorb_the_scale_before_them(groups):
    y = conv(op.multiply(X, weight(4, 1, 1)), inputs=4 // groups, groups=groups)
    assert op_calls(changed(FoldScaleAxis(), module(y, X))) == ["nn.conv2d"]


def test_a_scale_passes_a_bias_and_a_relu():
    biased = op.add(conv(X), weight(8, 1, 1, seed=1))
    y = op.multiply(op.nn.relu(biased), const(np.full((8, 1, 1), 0.5, np.float32)))
    after = changed(FoldScaleAxis(), module(y, X))
    assert op_calls(after) == ["nn.conv2d", "add", "nn.relu"]


def test_batch_norm_behind_a_convolution_is_one_addition():
    mod = module(TupleGetItem(batch_norm(conv(X), 8), 0), X)
    after = changed(Sequential((SimplifyInference(), FoldConstant(), FoldScaleAxis())), mod)
    assert op_calls(after) == ["nn.conv2d", "add"]


def test_division_is_a_scale():
    y = op.divide(conv(X), const(np.full((8, 1, 1), 3.0, np.float32)))
    assert op_calls(changed(FoldScaleAxis(), module(y, X))) == ["nn.conv2d"]
    by_zero = module(op.divide(conv(X), const(0.0)), X)
    assert FoldScaleAxis()(by_zero) is by_zero


def test_two_scales_in_a_row():
    y = op.multiply(op.multiply(conv(X), weight(8, 1, 1)), const(2.0))
    assert op_calls(changed(FoldScaleAxis(), module(y, X))) == ["nn.conv2d"]


@pytest.mark.parametrize("layout", ["NK", "KN"])
def test_dense_absorbs_scales_on_both_sides(layout):
    x = var("x", (3, 5))
    matrix = weight(7, 5) if layout == "NK" else weight(5, 7)
    product = op.nn.dense(op.multiply(x, weight(5)), matrix, weight_layout=layout)
    after = changed(FoldScaleAxis(), module(op.multiply(product, weight(1, 7)), x))
    assert op_calls(after) == ["nn.dense"]


def test_what_must_stay():
    y = conv(X)
    shared = Tuple((op.multiply(y, weight(8, 1, 1)), op.exp(y)))
    per_pixel = op.multiply(conv(X), weight(5, 5))
    negative = op.multiply(op.nn.relu(conv(X)), const(-1.0))
    spreading = op.multiply(conv(X), weight(2, 1, 1, 1))
    for body in (shared, per_pixel, negative, spreading):
        mod = module(body, X)
        assert FoldScaleAxis()(mod) is mod


@pytest.mark.parametrize(("dtype", "large"), [("float16", 6e4), ("float32", 3e38)])
def test_a_scale_stays_where_a_constant_would_overflow(dtype, large):
    x = var("x", (2, 3), dtype)
    factor = const(np.full(3, 10, dtype))
    big, row = (const(np.full(shape, large, dtype)) for shape in ((3, 3), 3))
    programs = [
        op.multiply(op.nn.dense(x, big), factor),
        op.nn.dense(op.multiply(x, factor), big),
        op.multiply(op.add(op.nn.dense(x, const(np.ones((3, 3), dtype))), row), factor),
        op.multiply(op.multiply(x, row), factor),
    ]
    for body in programs:
        mod = module(body, x)
        after = FoldScaleAxis()(mod)
        constants = [n.data for n in post_order(after["main"].body) if isinstance(n, Constant)]
        assert all(np.isfinite(c).all() for c in constants)


def test_a_scale_absorbs_the_scale_behind_its_shift():
    y = op.add(op.multiply(X, weight(4, 1, 1)), weight(4, 1, 1, seed=1))
    y = op.multiply(op.nn.relu(y), const(2.0))
    assert op_calls(changed(FoldScaleAxis(), module(y, X))) == ["multiply", "add", "nn.relu"]
    crossing = op.multiply(op.multiply(X, weight(4, 1, 1)), weight(5))
    mod = module(crossing, X)
    assert FoldScaleAxis()(mod) is mod


# What stands between the scale and the weights, and whether only positive scales pass.
BETWEEN = {
    "relu": (op.nn.relu, True),
    "leaky_relu": (lambda x: op.nn.leaky_relu(x, alpha=0.1), True),
    "max_pool2d": (lambda x: op.nn.max_pool2d(x, pool_size=(3, 3), padding=(1, 1, 1, 1)), True),
    "avg_pool2d": (lambda x: op.nn.avg_pool2d(x, pool_size=(2, 2), strides=(2, 2)), False),
    "global_avg_pool2d": (op.nn.global_avg_pool2d, False),
    "add": (lambda x: op.add(x, const(3.0)), False),
    "subtract": (lambda x: op.subtract(const(3.0), x), False),
}


def per_channel(channels, *, positive):
    values = np.random.default_rng(5).uniform(0.5, 2, (channels, 1, 1)).astype(np.float32)
    values[1] *= 1 if positive else -1
    return const(values)


@pytest.mark.parametrize("name", BETWEEN)
@pytest.mark.parametrize("positive", [True, False])
def test_what_a_scale_passes_on_its_way_back(name, positive):
    between, only_positive = BETWEEN[name]
    y = op.multiply(between(conv(X)), per_channel(8, positive=positive))
    mod = module(y, X)
    after = changed(BackwardFoldScaleAxis(), mod) if positive or not only_positive else mod
    assert ("multiply" in op_calls(after)) == (only_positive and not positive)
    assert BackwardFoldScaleAxis()(after) is after
    assert ForwardFoldScaleAxis()(mod) is mod


@pytest.mark.parametrize("name", BETWEEN)
@pytest.mark.parametrize("positive", [True, False])
def test_what_a_scale_passes_on_its_way_forward(name, positive):
    between, only_positive = BETWEEN[name]
    y = conv(between(op.multiply(X, per_channel(4, positive=positive))))
    mod = module(y, X)
    after = changed(ForwardFoldScaleAxis(), mod) if positive or not only_positive else mod
    assert ("multiply" in op_calls(after)) == (only_positive and not positive)
    assert ForwardFoldScaleAxis()(after) is after
    assert BackwardFoldScaleAxis()(mod) is mod


def test_both_sides_of_a_sum_take_a_scale_or_neither():
    scale = per_channel(8, positive=True)
    both = op.multiply(op.nn.relu(op.add(conv(X), op.add(conv(X), const(1.0)))), scale)
    after = changed(BackwardFoldScaleAxis(), module(both, X))
    assert sorted(op_calls(after)) == ["add", "add", "nn.conv2d", "nn.conv2d", "nn.relu"]
    y = conv(X)
    for one in (op.add(conv(X), op.exp(conv(X))), op.add(y, y)):
        mod = module(op.multiply(one, scale), X)
        assert BackwardFoldScaleAxis()(mod) is mod


def test_what_stops_a_scale_on_its_way_forward():
    scale, pool = per_channel(4, positive=True), {"pool_size": (5, 5)}
    scaled = op.multiply(X, scale)
    used_twice = op.add(conv(op.nn.relu(scaled)), op.mean(scaled))
    per_pixel = conv(op.nn.max_pool2d(op.multiply(X, weight(5, 5)), **pool))
    by_nothing = conv(op.add(op.multiply(X, const(np.float32([[[0]]] * 4))), const(1.0)))
    too_small = conv(op.add(op.multiply(X, const(1e-37)), const(1e10)))
    other = conv(op.tanh(scaled))
    for body in (used_twice, per_pixel, by_nothing, too_small, other):
        mod = module(body, X)
        assert ForwardFoldScaleAxis()(mod) is mod


# -- large weights -------------------------------------------------------------------------------


def test_a_large_weight_is_scaled_when_it_is_packed(monkeypatch):
    monkeypatch.setattr(deferred, "MIN_BYTES", 1)
    x = var("x", (1, 3))
    mod = module(op.multiply(op.nn.dense(x, weight(2, 3)), const([2.0, 3.0])), x)
    after = changed(FoldScaleAxis(), mod)
    scaled = after["main"].body.args[1]
    np.testing.assert_array_equal(scaled.data, weight(2, 3).data * np.float32([[2], [3]]))
    both = finite_product(weight(2, 3), np.float32([[2], [3]]))
    assert isinstance(both.content, Product)
    np.testing.assert_array_equal(both.data, scaled.data)


@pytest.mark.parametrize("number", [np.inf, np.nan, 3e38])
def test_a_large_weight_that_would_overflow_stays(monkeypatch, number):
    monkeypatch.setattr(deferred, "MIN_BYTES", 1)
    x = var("x", (1, 3))
    mod = module(op.multiply(op.nn.dense(x, const(np.float32([[1, number, 2]]))), const([2.0])), x)
    assert FoldScaleAxis()(mod)["main"].body.op.name == "multiply"


@pytest.mark.parametrize(("widths", "mode", "joins"), [
    (((0, 3), (0, 0)), "constant", True), (((1, 3), (0, 0)), "constant", False),
    (((0, 3), (0, 1)), "constant", False), (((0, 0), (0, 0)), "constant", False),
    (((0, 2), (0, 0)), "edge", False)])
def test_rows_are_appended_when_a_weight_is_packed(monkeypatch, widths, mode, joins):
    monkeypatch.setattr(deferred, "MIN_BYTES", 1)
    call = op.nn.pad(weight(5, 4), const(7.0), pad_width=widths, pad_mode=mode)
    folded = evaluate_constant(call)
    assert isinstance(folded.content, Joined) == joins
    options = {"constant_values": 7} if mode == "constant" else {}
    np.testing.assert_array_equal(folded.data, np.pad(weight(5, 4).data, widths, mode, **options))
