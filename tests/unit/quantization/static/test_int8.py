"""Programs in float32 become programs whose layers run in integers."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.unit.strategy.kernels import WIDE_CPU
from weft import op
from weft.compiler.options import CompileOptions
from weft.compiler.pipeline import run_pipeline
from weft.ir import Call, Expr, Function, IRModule, TensorType, const, infer_type, var
from weft.ir.visitor import post_order
from weft.quantization.options import QuantizationOptions
from weft.quantization.static.sites import simplified
from weft.quantization.static.smooth import smoothed
from weft.support.errors import InvalidInputError, OptionError

RNG = np.random.default_rng(0)
LAYERS = ("nn.conv2d", "nn.dense", "nn.batch_matmul")


def weight(*shape: int) -> Expr:
    return const((RNG.normal(size=shape) / np.sqrt(shape[-1])).astype(np.float32))


def module_of(body: Expr, *params: Expr) -> IRModule:
    return infer_type(IRModule.from_expr(Function(params, body)))


def convolutions() -> IRModule:
    """A residual block, a pool, two branches joined, and a classifier."""
    x = var("x", (1, 4, 8, 8))
    stem = op.nn.relu(op.nn.conv2d(x, weight(16, 4, 3, 3), padding=(1, 1)))
    pooled = op.nn.max_pool2d(stem, pool_size=(2, 2), strides=(2, 2))
    inner = op.add(op.nn.conv2d(pooled, weight(16, 16, 1, 1)), weight(16, 1, 1))
    block = op.nn.relu(op.add(inner, pooled))
    branches = [op.nn.relu(op.nn.conv2d(block, weight(16, 16, 1, 1))) for _ in range(2)]
    last = op.nn.conv2d(op.concatenate(branches, axis=1), weight(16, 32, 3, 3))
    return module_of(op.nn.dense(op.nn.batch_flatten(last), weight(10, 64)), x)


def attention() -> IRModule:
    x = var("x", (2, 9, 16))
    q, k, v = (op.nn.dense(x, weight(16, 16)) for _ in range(3))
    scores = op.nn.softmax(op.nn.batch_matmul(q, k))
    mixed = op.nn.batch_matmul(scores, v, transpose_b=False)
    return module_of(op.add(x, op.nn.dense(mixed, weight(16, 16))), x)


def samples(module: IRModule, count: int = 3) -> list[np.ndarray]:
    (x,) = module["main"].params
    shape = x.checked_type.shape
    return [RNG.normal(size=shape).astype(np.float32) for _ in range(count)]


def lost(module: IRModule, after: IRModule, data: np.ndarray) -> float:
    exact, found = (weft.compile(m)(data) for m in (module, after))
    return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))


def dtypes(module: IRModule) -> list[str]:
    """Those of the first operands of layers, when the program is compiled."""
    options = CompileOptions.make(WIDE_CPU)
    found = run_pipeline(module, options, stop_at="canonical")["main"]
    return [str(n.args[0].checked_type.dtype) for n in post_order(found)
            if isinstance(n, Call) and str(n.op) in LAYERS]


@pytest.mark.parametrize(("make", "activations"),
                         [(convolutions, "uint8"), (attention, "int8")],
                         ids=["convolutions", "attention"])
def test_all_layers_run_in_integers(make, activations) -> None:
    module = make()
    data = samples(module)
    after = weft.quantize(module, data, scheme="int8", activations=activations)
    assert set(dtypes(after)) == {activations}
    assert len(after.report.layers) == len(dtypes(after))
    assert not after.report.kept
    assert all(0 < layer.error < 0.03 for layer in after.report.layers)
    assert lost(module, after, data[0]) < 0.04


def test_no_tensor_between_integer_layers_is_stored_in_float32() -> None:
    module = convolutions()
    after = weft.quantize(module, samples(module, 1), scheme="int8", calibration="mse")
    lowered = run_pipeline(after, CompileOptions.make(WIDE_CPU))["main"]
    kernels = [n for n in post_order(lowered.body)
               if isinstance(n, Call) and isinstance(n.op, Function)]
    stored = [n.checked_type for n in kernels if isinstance(n.checked_type, TensorType)]
    wide = [t for t in stored if t.dtype.name not in ("uint8", "int8")]
    assert [t.shape for t in wide] == [(1, 10)]


def test_sensitive_layers_and_named_ones_stay() -> None:
    module = attention()
    data = samples(module)
    errors = sorted(r.error for r in weft.quantize(module, data, scheme="int8").report.layers)
    after = weft.quantize(module, data, scheme="int8", max_error=errors[-2])
    (kept,) = after.report.kept
    assert kept.error == pytest.approx(errors[-1])
    assert kept.after == "float32"
    assert "error above" in kept.reason
    assert dtypes(after).count("float32") == 1
    named = weft.quantize(module, data, scheme="int8", keep="nn.dense*")
    assert [r.operator for r in named.report.layers] == ["nn.batch_matmul"] * 2
    assert dtypes(named).count("float32") == 4


def test_dynamic_scales_are_those_of_each_row() -> None:
    x = var("x", (4, 32))
    module = module_of(op.nn.dense(x, weight(8, 32)), x)
    data = RNG.normal(size=(4, 32)).astype(np.float32)
    data[1] *= 1e4
    data[2] = 0
    after = weft.quantize(module, scheme="int8_dynamic")
    exact, found = (weft.compile(m)(data) for m in (module, after))
    np.testing.assert_array_equal(found[2], 0)
    for row in (0, 1, 3):
        assert np.linalg.norm(found[row] - exact[row]) < 0.02 * np.linalg.norm(exact[row])
    assert dtypes(after) == ["int8"]
    (layer,) = after.report.layers
    assert layer.after == "int8"
    assert 0 < layer.error < 0.02
    assert weft.quantize(module, scheme="int8").report.layers[0].error == layer.error


def test_smoothing_keeps_the_function_and_evens_out_channels() -> None:
    x = var("x", (6, 16))
    gains = np.ones(16, np.float32)
    gains[[3, 7]] = 60
    scaled = op.multiply(x, const(gains))
    w = RNG.normal(size=(8, 16)).astype(np.float32)
    w[:, [3, 7]] /= 60
    module = module_of(op.add(op.nn.dense(scaled, const(w)), op.nn.dense(scaled, weight(8, 16))), x)
    data = samples(module, 2)
    batches = [{"x": d} for d in data]
    same = smoothed(simplified(module), batches, QuantizationOptions())
    np.testing.assert_allclose(weft.compile(same)(data[0]), weft.compile(module)(data[0]),
                               rtol=1e-4, atol=1e-4)
    errors = [max(layer.error for layer in weft.quantize(module, data, scheme=s).report.layers)
              for s in ("int8", "smoothquant")]
    assert errors[1] < 0.5 * errors[0]


def test_bad_options_and_data() -> None:
    module = attention()
    with pytest.raises(OptionError, match="needs calibration data"):
        weft.quantize(module, scheme="smoothquant")
    for options in ({"percentile": 3}, {"activations": "int4"}, {"smoothing": 2},
                    {"calibration": "minmix"}):
        with pytest.raises(OptionError):
            weft.quantize(module, samples(module), scheme="int8", **options)
    with pytest.raises(InvalidInputError, match="not finite"):
        weft.quantize(module, np.full((2, 9, 16), np.inf, np.float32), scheme="int8")
