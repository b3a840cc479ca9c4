"""Converters of convolution, pooling, matmuls and normalisation against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.unit.frontend.onnx.onnx_cases import assert_agrees, single
from weft.frontend.onnx import from_onnx
from weft.ir.expr import Call
from weft.ir.visitor import post_order
from weft.op.nn.pool import PoolAttrs

RNG = np.random.default_rng(11)


def uniform(*shape: int) -> np.ndarray:
    return RNG.uniform(-1, 1, shape).astype(np.float32)


@pytest.mark.parametrize(
    "attrs",
    [
        {},
        {"pads": [1, 1, 1, 1]},
        {"pads": [0, 1, 2, 3], "strides": [2, 1]},
        {"dilations": [2, 2], "pads": [2, 2, 2, 2]},
        {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
        {"auto_pad": "SAME_LOWER", "strides": [2, 2]},
        {"auto_pad": "VALID"},
        {"kernel_shape": [3, 3]},
    ],
)
def test_conv(attrs: dict[str, Any]) -> None:
    arrays = [uniform(2, 4, 8, 7), uniform(6, 4, 3, 3), uniform(6)]
    assert_agrees(*single("Conv", arrays, constant=(1, 2), **attrs))


@pytest.mark.parametrize("group", [2, 4])
def test_grouped_conv(group: int) -> None:
    arrays = [uniform(1, 4, 6, 6), uniform(8, 4 // group, 3, 3)]
    assert_agrees(*single("Conv", arrays, constant=(1,), group=group))


def test_conv_over_one_axis() -> None:
    arrays = [uniform(2, 4, 9), uniform(6, 2, 3), uniform(6)]
    assert_agrees(*single("Conv", arrays, group=2, pads=[2, 1], strides=[2], dilations=[2]))


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize(
    "attrs",
    [
        {"kernel_shape": [3, 2]},
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [0, 0, 1, 1]},
        {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
        {"kernel_shape": [2, 2], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
        {"kernel_shape": [2, 2], "strides": [2, 2], "auto_pad": "SAME_LOWER"},
    ],
)
def test_pool(op: str, attrs: dict[str, Any]) -> None:
    assert_agrees(*single(op, [uniform(2, 3, 8, 7)], **attrs))


def test_pool_over_one_axis() -> None:
    assert_agrees(
        *single("MaxPool", [uniform(2, 3, 9)], kernel_shape=[3], strides=[2], pads=[1, 1])
    )


@pytest.mark.parametrize(("shape", "sizes"), [((2, 3, 9), [(1, 3)]),
                                              ((1, 2, 5, 6, 7), [(3, 1), (3, 1), (1, 3)])])
def test_the_last_axis_is_the_width_of_a_pool(shape: tuple[int, ...],
                                              sizes: list[tuple[int, int]]) -> None:
    model, _ = single("MaxPool", [uniform(*shape)], kernel_shape=[3] * (len(shape) - 2))
    pools = [node.attrs.pool_size for node in post_order(from_onnx(model)["main"])
             if isinstance(node, Call) and isinstance(node.attrs, PoolAttrs)]
    assert pools == sizes


def test_dilated_max_pool() -> None:
    assert_agrees(*single("MaxPool", [uniform(1, 2, 9, 9)], kernel_shape=[3, 3], dilations=[2, 2]))


@pytest.mark.parametrize("count_include_pad", [0, 1])
def test_average_pool_counts_padding_on_request(count_include_pad: int) -> None:
    assert_agrees(
        *single(
            "AveragePool",
            [uniform(1, 2, 6, 6)],
            kernel_shape=[3, 3],
            pads=[1, 1, 1, 1],
            count_include_pad=count_include_pad,
        )
    )


@pytest.mark.parametrize("op", ["GlobalAveragePool", "GlobalMaxPool"])
@pytest.mark.parametrize("shape", [(2, 3, 5, 4), (2, 3, 5)])
def test_global_pool(op: str, shape: tuple[int, ...]) -> None:
    assert_agrees(*single(op, [uniform(*shape)]))


@pytest.mark.parametrize("trans_a", [0, 1])
@pytest.mark.parametrize("trans_b", [0, 1])
@pytest.mark.parametrize("bias", [(5,), (3, 1), (1,), (), None])
def test_gemm(trans_a: int, trans_b: int, bias: tuple[int, ...] | None) -> None:
    a = uniform(*((4, 3) if trans_a else (3, 4)))
    b = uniform(*((5, 4) if trans_b else (4, 5)))
    arrays = [a, b] if bias is None else [a, b, uniform(*bias)]
    model = single("Gemm", arrays, transA=trans_a, transB=trans_b, alpha=0.5, beta=2.0)
    assert_agrees(*model)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((3, 4), (4, 5)),
        ((4,), (4, 5)),
        ((3, 4), (4,)),
        ((4,), (4,)),
        ((2, 3, 4), (4, 5)),
        ((2, 3, 4), (2, 4, 5)),
        ((2, 1, 3, 4), (7, 4, 5)),
        ((3, 4), (2, 4, 5)),
        ((2, 3, 4), (4,)),
        ((4,), (2, 4, 5)),
    ],
)
@pytest.mark.parametrize("constant", [(), (1,)])
def test_matmul_is_that_of_numpy(left: Any, right: Any, constant: Any) -> None:
    assert_agrees(*single("MatMul", [uniform(*left), uniform(*right)], constant=constant))


@pytest.mark.parametrize("opset", [7, 9, 14, 17])
def test_batch_normalization(opset: int) -> None:
    arrays = [uniform(2, 3, 4, 5), uniform(3), uniform(3), uniform(3), uniform(3) ** 2]
    assert_agrees(
        *single("BatchNormalization", arrays, opset=opset, constant=(1, 2, 3, 4), epsilon=1e-3)
    )


@pytest.mark.parametrize("size", [3, 5, 15, 101])
def test_lrn(size: int) -> None:
    assert_agrees(*single("LRN", [uniform(2, 7, 4, 4)], size=size, alpha=0.3, beta=0.6, bias=2.0))


@pytest.mark.parametrize("axis", [-1, 1, 2])
@pytest.mark.parametrize("with_bias", [False, True])
def test_layer_normalization(axis: int, with_bias: bool) -> None:
    x = uniform(2, 3, 4)
    shape = x.shape[axis:]
    arrays = [x, uniform(*shape)] + ([uniform(*shape)] if with_bias else [])
    assert_agrees(*single("LayerNormalization", arrays, axis=axis))


def test_instance_normalization() -> None:
    assert_agrees(*single("InstanceNormalization", [uniform(2, 3, 4, 5), uniform(3), uniform(3)]))


@pytest.mark.parametrize(("opset", "outputs"), [(7, 1), (12, 1), (12, 2)])
def test_dropout_drops_nothing(opset: int, outputs: int) -> None:
    assert_agrees(*single("Dropout", [uniform(3, 4)], opset=opset, outputs=outputs))
