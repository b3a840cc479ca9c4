"""Weights in blocks: the methods, what they lose, and the programs that read the blocks."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.unit.quantization.test_quantize import two_layers
from weft import op
from weft.ir import Constant, Function, IRModule, Span, infer_type, post_order, var
from weft.quantization.options import QuantizationOptions
from weft.quantization.weight_only.gram import Gram
from weft.quantization.weight_only.matrix import Quantizer
from weft.support.errors import InvalidInputError, OptionError
from weft.transform.analysis.graph import op_name

RNG = np.random.default_rng(0)


def correlated(rows, k, seed=0):
    """Data whose channels depend on each other and differ in size, as activations do."""
    rng = np.random.default_rng(seed)
    mixed = rng.standard_normal((rows, k // 4)) @ rng.standard_normal((k // 4, k)) * 0.2
    return ((mixed + rng.standard_normal((rows, k)))
            * np.exp(rng.standard_normal(k))).astype(np.float32)


def batches(k=64, count=40):
    return list(correlated(4 * count, k).reshape(count, 4, k))


def operators(module):
    return [op_name(node) for node in post_order(module["main"]) if op_name(node)]


def outputs(module, data):
    made = weft.compile(module)
    return np.concatenate([made(x) for x in data])


def relative(found, expected):
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def error_of(method, format="int4_g32", *, gram=True, matrix=None):
    data, rng = correlated(600, 128), np.random.default_rng(3)
    matrix = rng.standard_normal((48, 128)).astype(np.float32) if matrix is None else matrix
    moments = Gram.zeros(128)
    moments.add(data)
    quantizer = Quantizer(method, format, QuantizationOptions(max_error=None))
    known = moments if gram else None
    made, _ = quantizer.quantized(matrix, known, quantizer.factors([matrix], known))
    return made.error


@pytest.mark.parametrize("format", ["int4_g32", "q4_1", "nf4_g64"])
def test_each_method_loses_less_than_the_one_before_it(format):
    rounded, searched, awq, gptq = (error_of(m, format) for m in ("round", "search", "awq", "gptq"))
    assert gptq < 0.9 * awq
    assert awq < 1.001 * searched < 0.97 * rounded


def test_the_search_of_scales_needs_no_data():
    assert error_of("search", gram=False) < 0.96 * error_of("round", gram=False)


def test_gptq_rounds_as_its_definition():
    """A column at a time: the error of a column is spread over the later ones."""
    rng = np.random.default_rng(5)
    matrix, data = rng.standard_normal((3, 32)), correlated(200, 32, seed=5)
    moments = Gram.zeros(32)
    moments.add(data)
    from weft.quantization.weight_only.gptq import gptq

    found, groups = gptq(matrix.astype(np.float32), "int4_g16", moments, damping=0.01,
                         act_order=False)
    hessian = moments.products.astype(np.float64)
    hessian += 0.01 * np.trace(hessian) / 32 * np.eye(32)
    rest = matrix.copy()
    for k in range(32):
        scale = groups.scales[:, k // 16].astype(np.float64)
        rounded = np.clip(np.rint(rest[:, k] / scale), -8, 7) * scale
        inverse = np.linalg.inv(hessian[k:, k:])
        rest[:, k:] -= np.outer((rest[:, k] - rounded) / inverse[0, 0], inverse[0])
        np.testing.assert_allclose(found[:, k], rounded, atol=1e-4)


def test_a_quantised_program_multiplies_blocks_and_keeps_its_results():
    net, data = two_layers(), batches()
    expected = outputs(net, data)
    errors = {}
    for scheme in ("int4_rtn", "int4_search", "int4_awq", "int4_gptq", "int8_weight_only"):
        small = weft.quantize(net, data, scheme=scheme)
        assert operators(small).count("nn.block_quantized_dense") == 2
        errors[scheme] = relative(outputs(small, data), expected)
    assert errors["int8_weight_only"] < 0.01
    assert errors["int4_gptq"] < 0.9 * errors["int4_search"]
    assert errors["int4_search"] < errors["int4_rtn"] < 0.2


def test_reported_errors_are_those_of_the_outputs():
    net, data = two_layers(), batches()
    small = weft.quantize(net, data, scheme="int4_rtn", keep="down")
    first = small.report.layers[0]
    weights = net["main"].body.args[0].args[0].args[1].data
    rows = np.concatenate(data)
    blocks = next(node for node in post_order(small["main"])
                  if op_name(node) == "nn.block_quantized_dense").args[1]
    part = infer_type(IRModule.from_expr(op.nn.block_dequantize(blocks, format="int4_g32")))
    values = weft.compile(part)()
    assert first.error == pytest.approx(relative(rows @ values.T, rows @ weights.T), rel=1e-3)


def norm_program(*, others=False):
    """RMS norm, and two matrices that read its result."""
    x = var("x", (4, 64))
    scale = Constant(RNG.uniform(0.5, 2, 64).astype(np.float32))
    normal = op.nn.rms_norm(x, scale)
    weights = [Constant(RNG.standard_normal((32, 64)).astype(np.float32),
                        span=Span("<test>", node=f"{name}.weight")) for name in "qk"]
    body = op.nn.dense(normal, weights[0]) + op.nn.dense(normal, weights[1])
    body = body + op.sum(normal) if others else body
    return infer_type(IRModule.from_expr(Function((x,), body)))


@pytest.mark.parametrize("others", [False, True], ids=["folded", "divided"])
def test_awq_divides_in_the_norm_where_nothing_else_reads_it(others):
    net, data = norm_program(others=others), batches()
    small = weft.quantize(net, data, scheme="int4_awq")
    assert operators(small).count("multiply") == others
    assert relative(outputs(small, data), outputs(net, data)) < 0.12


def test_layers_above_a_bound_stay_wider_and_are_listed():
    net, data = two_layers(), batches()
    small = weft.quantize(net, data, scheme="int4_rtn", max_error=0.02)
    assert [one.after for one in small.report.kept] == ["int8_g32", "int8_g32"]
    assert "above 0.02" in small.report.kept[0].reason
    none = weft.quantize(net, data, scheme="int4_rtn", max_error=1e-6)
    assert [one.after for one in none.report.layers] == ["float32", "float32"]
    np.testing.assert_array_equal(outputs(none, data), outputs(net, data))


def test_layers_that_blocks_do_not_divide_have_smaller_groups_or_stay():
    small = weft.quantize(two_layers(k=48, n=40), scheme="int4", format="int4_g64")
    assert [(one.after, one.reason) for one in small.report.layers] \
        == [("int4_g16", ""), ("float32", "K = 40 is not a multiple of 16")]


def test_patterns_of_names_keep_layers():
    small = weft.quantize(two_layers(), scheme="int4", keep="do*")
    assert [one.after for one in small.report.layers] == ["int4_g32", "float32"]
    assert small.report.kept[0].reason == "kept by keep="


def test_tables_of_embeddings_are_quantised_on_request():
    ids = var("ids", (3,), "int64")
    table = Constant(RNG.standard_normal((10, 64)).astype(np.float32))
    net = infer_type(IRModule.from_expr(Function((ids,), op.take(table, ids, axis=0))))
    small = weft.quantize(net, scheme="int8_weight_only", embeddings=True)
    assert operators(small) == ["take", "nn.block_dequantize"]
    found = weft.compile(small)(np.array([7, 0, 7]))
    np.testing.assert_allclose(found, table.data[[7, 0, 7]], atol=0.02)
    assert weft.quantize(net, scheme="int8_weight_only").report.layers == ()


@pytest.mark.parametrize(("precision", "bound"), [
    ("bf16", 0.01), ("fp16", 0.002), ("int8", 0.01), ("int4", 0.2)])
def test_precision_is_a_setting_of_compilations(precision, bound):
    net, data = two_layers(), batches(count=2)
    made = weft.compile(net, precision=precision)
    expected = outputs(net, data)
    found = np.concatenate([made(x) for x in data])
    assert 0 < relative(found, expected) < bound
    # Weights are in their new dtype before layouts are chosen: that of 16-bit floats is packed.
    assert precision.startswith("int") or "NK16n" in made.as_text("optimized")


def test_matrices_in_every_layout_are_found():
    x = var("x", (2, 32))
    w = RNG.standard_normal((32, 32)).astype(np.float32)
    data = RNG.standard_normal((2, 32)).astype(np.float32)
    for body in (op.nn.dense(x, Constant(w)), op.nn.dense(x, Constant(w), weight_layout="KN"),
                 op.nn.matmul(x, Constant(w)), op.nn.matmul(x, Constant(w), transpose_b=True),
                 op.nn.dense(x, op.transpose(Constant(w), axes=(1, 0)))):
        net = infer_type(IRModule.from_expr(Function((x,), body)))
        small = weft.quantize(net, scheme="int8_weight_only")
        assert "nn.block_quantized_dense" in operators(small)
        assert relative(weft.compile(small)(data), weft.compile(net)(data)) < 0.01


@pytest.mark.parametrize(("arguments", "error", "says"), [
    ({"scheme": "int4_gptq"}, OptionError, "needs calibration data"),
    ({"scheme": "int4", "format": "q4_k"}, InvalidInputError, "read, not made"),
    ({"scheme": "int4", "format": "int4_g48"}, OptionError, "int4_g48"),
    ({"scheme": "int4_gptq", "data": [np.full((4, 64), np.nan, np.float32)]}, InvalidInputError,
     "not finite"),
], ids=["data", "format", "group", "nan"])
def test_errors(arguments, error, says):
    with pytest.raises(error, match=says):
        weft.quantize(two_layers(), **arguments)
