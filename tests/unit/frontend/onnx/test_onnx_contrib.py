"""ONNX Runtime's activations, normalisations and matmuls against ONNX Runtime."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from tests.unit.frontend.onnx.contrib_cases import assert_agrees, contrib_model, run_weft, some

KINDS = ("float32", "float16")


@pytest.mark.parametrize("op", ["Gelu", "QuickGelu"])
def test_activations(op: str) -> None:
    assert_agrees(op, [some(2, 3, 8) * 4], compiled=True)


def test_quick_gelu_with_alpha() -> None:
    assert_agrees("QuickGelu", [some(3, 5)], alpha=0.7)


@pytest.mark.parametrize("kind", KINDS)
def test_gelu_with_bias(kind: str) -> None:
    x, bias = some(2, 3, 8, dtype=kind), some(8, dtype=kind)
    assert_agrees("FastGelu", [x, bias])
    assert_agrees("FastGelu", [x])
    if kind == "float32":
        assert_agrees("BiasGelu", [x, bias], compiled=True)


def test_bias_split_gelu_by_definition() -> None:
    """ONNX Runtime has this operator for GPUs alone."""
    x, bias = some(2, 3, 8), some(8)
    model, feeds = contrib_model("BiasSplitGelu", [x, bias])
    left, right = np.split(x + bias, 2, axis=-1)
    expected = left * right * 0.5 * (1 + np.vectorize(math.erf)(right / np.sqrt(2)))
    np.testing.assert_allclose(run_weft(model, feeds)[0], expected, rtol=1e-5, atol=1e-6)
    model, feeds = contrib_model("BiasAdd", [x, bias, x])
    np.testing.assert_allclose(run_weft(model, feeds)[0], 2 * x + bias, rtol=1e-6)


@pytest.mark.parametrize(("a", "b"), [((4, 5), (5, 6)), ((2, 3, 4, 5), (2, 3, 5, 6)),
                                      ((2, 4, 5), (5, 6)), ((3, 4, 5), (3, 5, 6))])
def test_fused_matmul(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    for flags in itertools.product((0, 1), repeat=4):
        left, right, batch_left, batch_right = flags
        if (batch_left or batch_right) and (len(a) < 3 or len(a) != len(b)):
            continue
        operands = []
        for shape, swapped, batched, seed in ((a, left, batch_left, 1), (b, right, batch_right, 2)):
            wanted = (*shape[:-2], shape[-1], shape[-2]) if swapped else shape
            stored = (wanted[-2], *wanted[:-2], wanted[-1]) if batched else wanted
            operands.append(some(*stored, seed=seed))
        attrs = dict(zip(("transA", "transB", "transBatchA", "transBatchB"), flags, strict=True))
        assert_agrees("FusedMatMul", operands, alpha=0.5, **attrs)


@pytest.mark.parametrize("activation", ["", "Relu", "LeakyRelu", "Tanh", "Sigmoid"])
def test_fused_gemm(activation: str) -> None:
    attrs: dict[str, Any] = {"activation": activation} if activation else {}
    if activation == "LeakyRelu":
        attrs["activation_alpha"] = 0.3
    if not activation:
        attrs["activation"] = "Relu"
    for trans in (0, 1):
        b = some(6, 5) if trans else some(5, 6)
        assert_agrees("FusedGemm", [some(4, 5), b, some(6)], constant=[1], transB=trans, alpha=0.5,
                      beta=2.0, **attrs)


@pytest.mark.parametrize(("activation", "given"), [
    ("Relu", None), ("LeakyRelu", [0.2]), ("Clip", [-0.1, 0.3]), ("HardSigmoid", [0.3, 0.4]),
    ("Tanh", None), ("Sigmoid", None)])
@pytest.mark.parametrize("residual", [False, True])
def test_fused_conv(activation: str, given: list[float] | None, residual: bool) -> None:
    arrays = [some(1, 3, 6, 6), some(4, 3, 3, 3), some(4)]
    arrays += [some(1, 4, 6, 6)] * residual
    rest: dict[str, Any] = {"activation_params": given} if given else {}
    assert_agrees("FusedConv", arrays, constant=[1, 2], pads=[1, 1, 1, 1], activation=activation,
                  **rest)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("op", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
@pytest.mark.parametrize("with_beta", [False, True])
@pytest.mark.parametrize("with_bias", [False, True])
def test_norms_of_sums(op: str, kind: str, with_beta: bool, with_bias: bool) -> None:
    x, skip = (some(2, 3, 8, dtype=kind, seed=i) for i in (0, 1))
    gamma = some(8, dtype=kind, seed=2)
    bias = some(8, dtype=kind, seed=9) if with_bias else None
    extra = [bias]
    if op == "SkipLayerNormalization":
        extra = [some(8, dtype=kind, seed=5) if with_beta else None, bias]
    while extra and extra[-1] is None:
        extra.pop()
    assert_agrees(op, [x, skip, gamma, *extra], outputs=("y", "", "", "total"), epsilon=1e-3,
                  tolerance=1e-2 if kind == "float16" else None)


@pytest.mark.parametrize("shape", [(1, 3, 8), (3, 8)])
def test_norm_of_a_sum_with_a_broadcast_residual(shape: tuple[int, ...]) -> None:
    assert_agrees("SkipLayerNormalization", [some(2, 3, 8), some(*shape), some(8), some(8)],
                  compiled=True)


@pytest.mark.parametrize("axis", [-1, 1])
def test_simplified_layer_normalization(axis: int) -> None:
    scale = some(8) if axis == -1 else some(3, 8)
    assert_agrees("SimplifiedLayerNormalization", [some(2, 3, 8), scale], domain="", axis=axis,
                  epsilon=1e-3, stash_type=1)


@pytest.mark.parametrize(("segments", "masked", "placed"),
                         list(itertools.product((False, True), repeat=3)))
def test_embed_layer_normalization(segments: bool, masked: bool, placed: bool) -> None:
    rng = np.random.default_rng(3)
    def ids(limit: int) -> np.ndarray:
        return rng.integers(0, limit, (2, 5)).astype(np.int32)

    arrays = [ids(11), ids(2) if segments else None, some(11, 8), some(7, 8, seed=1),
              some(2, 8, seed=2) if segments else None, some(8), some(8, seed=3),
              (np.arange(5) < np.array([[3], [5]])).astype(np.int32) if masked else None,
              ids(7) if placed else None]
    while arrays[-1] is None:
        arrays.pop()
    assert_agrees("EmbedLayerNormalization", arrays, epsilon=1e-3,
                  outputs=("y", "count:int32", "total"))


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("activation", [0, 1])
def test_group_norm_by_definition(last: int, activation: int) -> None:
    """ONNX Runtime has these operators for GPUs alone."""
    x, gamma, beta, skip = some(2, 3, 3, 8), some(8), some(8, seed=1), some(2, 3, 3, 8, seed=2)
    given = x if last else np.moveaxis(x, -1, 1)
    attrs = {"activation": activation, "channels_last": last, "groups": 4, "epsilon": 1e-3}

    def expected(data: np.ndarray) -> np.ndarray:
        parts = data.reshape(2, 9, 4, 2).astype(np.float64)
        mean = parts.mean((1, 3), keepdims=True)
        normal = (parts - mean) / np.sqrt(parts.var((1, 3), keepdims=True) + 1e-3)
        result = normal.reshape(data.shape) * gamma + beta
        return result / (1 + np.exp(-result)) if activation else result

    model, feeds = contrib_model("GroupNorm", [given, gamma, beta], **attrs)
    actual = run_weft(model, feeds)[0]
    np.testing.assert_allclose(actual if last else np.moveaxis(actual, 1, -1), expected(x),
                               rtol=1e-4, atol=1e-5)
    if last:
        model, feeds = contrib_model("SkipGroupNorm", [x, gamma, beta, skip, gamma],
                                     outputs=("y", "total"), **attrs)
        total = x + skip + gamma
        for a, e in zip(run_weft(model, feeds), (expected(total), total), strict=True):
            np.testing.assert_allclose(a, e, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize(("rank", "part"), [(3, 8), (4, 8), (3, 4), (4, 4)])
@pytest.mark.parametrize("offset", [False, True])
def test_rotary_embedding(rank: int, part: int, interleaved: int, offset: bool, kind: str) -> None:
    x = some(2, 5, 24, dtype=kind) if rank == 3 else some(2, 3, 5, 8, dtype=kind)
    places = (np.array([4], np.int64) if offset
              else np.random.default_rng(1).integers(0, 16, (2, 5)).astype(np.int64))
    attrs: dict[str, Any] = {"interleaved": interleaved}
    if part < 8:
        attrs |= {"num_heads": 3, "rotary_embedding_dim": part}
    assert_agrees("RotaryEmbedding", [x, places, some(16, part // 2, dtype=kind),
                                      some(16, part // 2, dtype=kind, seed=1)], **attrs)
