"""Converters of TensorFlow's operators against NumPy, evaluated by the reference interpreter."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest

from tests.unit.compat.graphdef.helpers import Fixed, run
from weft.compat.graphdef.registry import CONVERTERS
from weft.ir.dtype import DType
from weft.support.errors import InvalidModelError, UnsupportedModelError

RNG = np.random.default_rng(0)
F32, I32, I64, F64 = map(DType.of, ("float32", "int32", "int64", "float64"))


def f(*shape: int, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    return RNG.uniform(low, high, shape).astype(np.float32)


def i(*shape: int, low: int = -5, high: int = 6) -> np.ndarray:
    return RNG.integers(low, high, shape).astype(np.int32)


def check(op: str, *operands, expected, results: int = 1, tol: float = 1e-5, **attrs) -> None:
    got = run(op, *operands, results=results, **attrs)
    wanted = expected if isinstance(expected, tuple) else (expected,)
    for a, b in zip(got if results > 1 else (got,), map(np.asarray, wanted), strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), tol, tol)


X, Y = f(2, 3), f(2, 3)
P = f(2, 3, low=0.2)
N = i(2, 3)
D = i(2, 3, low=1, high=5)
vector = np.vectorize

UNARY = {
    "Abs": (X, np.abs), "Acos": (X / 3, np.arccos), "Acosh": (P + 1, np.arccosh),
    "Asin": (X / 3, np.arcsin), "Asinh": (X, np.arcsinh), "Atan": (X, np.arctan),
    "Atanh": (X / 3, np.arctanh), "Ceil": (X, np.ceil), "Cos": (X, np.cos), "Cosh": (X, np.cosh),
    "Erf": (X, vector(math.erf, otypes=[np.float32])),
    "Erfc": (X, vector(math.erfc, otypes=[np.float32])), "Exp": (X, np.exp),
    "Expm1": (X, np.expm1), "Floor": (X, np.floor), "Invert": (N, np.invert),
    "IsFinite": (X, np.isfinite), "IsInf": (X, np.isinf), "IsNan": (X, np.isnan),
    "Lgamma": (P, vector(math.lgamma, otypes=[np.float32])), "Log": (P, np.log),
    "Log1p": (P, np.log1p), "LogicalNot": (N > 0, np.logical_not), "Neg": (X, np.negative),
    "OnesLike": (X, np.ones_like), "Relu": (X, lambda x: np.maximum(x, 0)),
    "Rint": (np.float32([0.5, 1.5, -2.5]), np.rint), "Round": (np.float32([0.5, 1.5]), np.rint),
    "Rsqrt": (P, lambda x: 1 / np.sqrt(x)), "Sigmoid": (X, lambda x: 1 / (1 + np.exp(-x))),
    "Sign": (X, np.sign), "Sin": (X, np.sin), "Sinh": (X, np.sinh), "Sqrt": (P, np.sqrt),
    "Tan": (X / 2, np.tan), "Tanh": (X, np.tanh), "ZerosLike": (X, np.zeros_like),
    "Square": (X, np.square), "Reciprocal": (P, np.reciprocal), "Inv": (P, np.reciprocal),
    "Relu6": (X * 5, lambda x: np.clip(x, 0, 6)),
    "Elu": (X, lambda x: np.where(x > 0, x, np.expm1(x))),
    "Selu": (X, lambda x: 1.05070098 * np.where(x > 0, x, 1.67326324 * np.expm1(x))),
    "Softplus": (X, lambda x: np.log1p(np.exp(x))), "Softsign": (X, lambda x: x / (1 + np.abs(x))),
    "Softmax": (X, lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True)),
    "LogSoftmax": (X, lambda x: x - np.log(np.exp(x).sum(-1, keepdims=True))),
    "L2Loss": (X, lambda x: np.float32((x * x).sum() / 2)), "Identity": (X, lambda x: x),
    "Snapshot": (X, lambda x: x), "StopGradient": (X, lambda x: x),
    "PlaceholderWithDefault": (X, lambda x: x), "CheckNumerics": (X, lambda x: x),
    "Rank": (X, lambda _: np.int32(2)), "Size": (X, lambda _: np.int32(6)),
    "Shape": (X, lambda _: np.int32([2, 3])),
    "InvertPermutation": (np.int32([2, 0, 1]), np.argsort),
    "Digamma": (np.float32([1.0]), lambda _: np.float32([-0.5772157])),
    "Ndtri": (np.float32([0.5, 0.975]), lambda _: np.float32([0.0, 1.959964])),
    "Erfinv": (np.float32([0.0, 0.5]), lambda _: np.float32([0.0, 0.4769363])),
}


@pytest.mark.parametrize("op", UNARY)
def test_functions_of_elements(op):
    x, reference = UNARY[op]
    expected = np.asarray(reference(x))
    dtype = expected.dtype if op not in ("InvertPermutation", "Selu", "Softmax") else x.dtype
    check(op, x, expected=expected.astype(dtype))


B = N > 0
BINARY = {
    "Add": (X, Y[0], np.add), "AddV2": (X, Y[0], np.add), "BitwiseAnd": (N, D, np.bitwise_and),
    "BitwiseOr": (N, D, np.bitwise_or), "BitwiseXor": (N, D, np.bitwise_xor),
    "Div": (N, D, lambda a, b: np.trunc(a / b)), "RealDiv": (X, P, np.divide),
    "TruncateDiv": (N, D, lambda a, b: np.trunc(a / b)), "FloorDiv": (N, D, np.floor_divide),
    "FloorMod": (N, D, np.mod), "Mod": (N, D, np.fmod), "TruncateMod": (N, D, np.fmod),
    "Greater": (X, Y, np.greater), "GreaterEqual": (N, D, np.greater_equal),
    "Less": (X, Y, np.less), "LessEqual": (N, D, np.less_equal), "Equal": (N, D, np.equal),
    "NotEqual": (N, D, np.not_equal), "LeftShift": (N, D, np.left_shift),
    "RightShift": (N, D, np.right_shift), "LogicalAnd": (B, ~B, np.logical_and),
    "LogicalOr": (B, ~B, np.logical_or), "Maximum": (X, Y, np.maximum),
    "Minimum": (X, Y, np.minimum), "Mul": (X, Y, np.multiply), "Pow": (P, Y, np.power),
    "Sub": (X, Y, np.subtract), "SquaredDifference": (X, Y, lambda a, b: (a - b) ** 2),
    "DivNoNan": (X, np.float32([0, 1, 2]), lambda a, b: np.where(b == 0, 0, a / np.where(b, b, 1))),
    "MulNoNan": (X, np.float32([0, 1, 2]), np.multiply),
    "Xdivy": (np.float32([0, 1]), np.float32([0, 2]), lambda _a, _b: np.float32([0, 0.5])),
    "BiasAdd": (X, Y[0], np.add), "BiasAddV1": (X, Y[0], np.add),
}


@pytest.mark.parametrize("op", BINARY)
def test_functions_of_two_tensors(op):
    a, b, reference = BINARY[op]
    expected = np.asarray(reference(a, b))
    check(op, a, b, expected=expected if expected.dtype == bool else expected.astype(a.dtype))


REDUCTIONS = {"Max": np.max, "Mean": np.mean, "Min": np.min, "Prod": np.prod, "Sum": np.sum}


@pytest.mark.parametrize("op", REDUCTIONS)
def test_reductions(op):
    x = f(2, 3, 4)
    check(op, x, Fixed([0, -1]), expected=REDUCTIONS[op](x, axis=(0, 2)))
    check(op, x, Fixed(1), keep_dims=True, expected=REDUCTIONS[op](x, axis=1, keepdims=True))
    check(op, x, Fixed(np.zeros(0, np.int32)), expected=x)


def test_other_reductions():
    x = f(2, 5)
    check("All", x > 0, Fixed(1), expected=(x > 0).all(1))
    check("Any", x > 0, Fixed(1), expected=(x > 0).any(1))
    check("EuclideanNorm", x, Fixed(1), expected=np.sqrt((x * x).sum(1)))
    check("ArgMax", x, Fixed(1), expected=x.argmax(1))
    check("ArgMin", x, Fixed(0), output_type=I32, expected=x.argmin(0).astype(np.int32))
    order = np.argsort(-x, axis=1)[:, :2]
    check("TopKV2", x, Fixed(2), results=2,
          expected=(np.take_along_axis(x, order, 1), order.astype(np.int32)))
    check("TopK", x, k=2, results=2,
          expected=(np.take_along_axis(x, order, 1), order.astype(np.int32)))
    target = np.int32([order[0, 1], np.argmin(x[1])])
    check("InTopKV2", x, target, Fixed(2), expected=np.array([True, False]))
    check("InTopK", x, target, k=2, expected=np.array([True, False]))
    check("Cumsum", x, Fixed(1), expected=np.cumsum(x, 1))
    check("Cumsum", x, Fixed(1), exclusive=True, reverse=True,
          expected=np.cumsum(x[:, ::-1], 1)[:, ::-1] - x)
    check("Cumprod", x, Fixed(-1), expected=np.cumprod(x, 1))


def test_matrix_products():
    a, b = f(2, 4, 3), f(2, 3, 5)
    check("MatMul", a[0], b[0], expected=a[0] @ b[0])
    check("MatMul", a[0].T.copy(), b[0].T.copy(), transpose_a=True, transpose_b=True,
          expected=a[0] @ b[0])
    check("BatchMatMul", a, b, expected=a @ b)
    check("BatchMatMulV2", a, b[:1], expected=a @ b[:1])
    check("BatchMatMulV2", a.transpose(0, 2, 1).copy(), b.transpose(0, 2, 1).copy(), adj_x=True,
          adj_y=True, expected=a @ b)
    check("BatchMatMulV3", a, b, Ta=F32, Tb=F32, Tout=F32, expected=a @ b)
    check("Einsum", a, b, equation="bij, bjk -> bik", N=2, expected=a @ b)


def test_arithmetic_of_several_tensors():
    check("AddN", X, Y, P, N=3, expected=X + Y + P)
    check("AddN", X, N=1, expected=X)
    check("ClipByValue", X, Fixed(-0.5, "float32"), Fixed(0.5, "float32"),
          expected=np.clip(X, -0.5, 0.5))
    check("Cast", X, SrcT=F32, DstT=I32, expected=X.astype(np.int32))
    check("Bitcast", X, type=I32, expected=X.view(np.int32))
    check("SelectV2", B, X, Y, expected=np.where(B, X, Y))
    check("Select", B[:, 0], X, Y, expected=np.where(B[:, :1], X, Y))
    check("Range", Fixed(2), Fixed(11), Fixed(3), expected=np.arange(2, 11, 3, np.int32))
    check("LinSpace", Fixed(0, "float32"), Fixed(1, "float32"), Fixed(5),
          expected=np.linspace(0, 1, 5, dtype=np.float32))
    check("LeakyRelu", X, expected=np.where(X > 0, X, np.float32(0.2) * X))
    check("IdentityN", X, N, T=(F32, I32), results=2, expected=(X, N))
    check("ShapeN", X, f(4), N=2, out_type=I64, results=2,
          expected=(np.array([2, 3]), np.array([4])))
    check("Const", value=X, dtype=F32, expected=X)
    check("HostConst", value=N, dtype=I32, expected=N)


def test_shapes_and_joins():
    x = f(2, 3, 4)
    check("Reshape", x, Fixed([4, -1]), expected=x.reshape(4, 6))
    check("Transpose", x, Fixed([2, 0, 1]), expected=x.transpose(2, 0, 1))
    check("ExpandDims", x, Fixed(-1), expected=x[..., None])
    check("Squeeze", x[:, :1], squeeze_dims=(1,), expected=x[:, 0])
    check("Squeeze", x[:1, :1], expected=x[0, 0])
    check("ConcatV2", x, x, Fixed(-1), N=2, expected=np.concatenate([x, x], -1))
    check("Concat", Fixed(1), x, x, N=2, expected=np.concatenate([x, x], 1))
    check("Pack", X, Y, axis=-1, expected=np.stack([X, Y], -1))
    check("Unpack", X, num=3, axis=1, results=3, expected=tuple(X.T))
    check("Split", Fixed(2), x, num_split=2, results=2, expected=(x[..., :2], x[..., 2:]))
    check("SplitV", x, Fixed([1, -1]), Fixed(2), num_split=2, results=2,
          expected=(x[..., :1], x[..., 1:]))
    check("Tile", X, Fixed([2, 1]), expected=np.tile(X, (2, 1)))
    check("Fill", Fixed([2, 2]), Fixed(3.0, "float32"), expected=np.full((2, 2), 3, np.float32))
    check("BroadcastTo", X[:1], Fixed([2, 2, 3]), expected=np.broadcast_to(X[:1], (2, 2, 3)))
    check("Pad", X, Fixed([[1, 0], [0, 2]]), expected=np.pad(X, ((1, 0), (0, 2))))
    check("PadV2", X, Fixed([[1, 0], [0, 2]]), Fixed(7.0, "float32"),
          expected=np.pad(X, ((1, 0), (0, 2)), constant_values=7))
    check("MirrorPad", X, Fixed([[1, 0], [0, 2]]), mode="REFLECT",
          expected=np.pad(X, ((1, 0), (0, 2)), mode="reflect"))
    check("ReverseV2", x, Fixed([0, -1]), expected=x[::-1, :, ::-1])
    check("ReverseSequence", X, np.int32([2, 3]), seq_dim=1, batch_dim=0,
          expected=np.stack([X[0][[1, 0, 2]], X[1][::-1]]))
    check("OneHot", np.int32([1, 0]), Fixed(3), Fixed(1.0, "float32"), Fixed(0.0, "float32"),
          expected=np.eye(3, dtype=np.float32)[[1, 0]])
    square = f(4, 4)
    check("MatrixBandPart", square, Fixed(1), Fixed(-1), expected=np.triu(square, -1))
    check("MatrixBandPart", square, Fixed(0), Fixed(1),
          expected=np.tril(np.triu(square), 1))


def test_slices_and_gathers():
    x = f(4, 5, 6)
    check("Slice", x, Fixed([1, 0, 2]), Fixed([2, -1, 3]), expected=x[1:3, :, 2:5])
    check("StridedSlice", x, Fixed([1, 0]), Fixed([3, 5]), Fixed([1, 2]), expected=x[1:3, 0:5:2])
    check("StridedSlice", x, Fixed([0, -1, 0]), Fixed([0, 0, 0]), Fixed([1, 1, 1]),
          begin_mask=1, end_mask=5, shrink_axis_mask=2, expected=x[:, -1, :])
    check("StridedSlice", x, Fixed([0, 0, 2]), Fixed([0, 0, 5]), Fixed([1, 1, 1]),
          ellipsis_mask=1, new_axis_mask=2, expected=x[..., None, 2:5])
    check("StridedSlice", x, Fixed([0]), Fixed([0]), Fixed([-1]), begin_mask=1, end_mask=1,
          expected=x[::-1])
    at = np.int32([[2, 0], [1, 1]])
    check("Gather", x, at, expected=x[at])
    check("GatherV2", x, at, Fixed(1), expected=x[:, at])
    rows = np.int32([[0, 2], [1, 1], [4, 0], [3, 3]])
    check("GatherV2", x[..., 0], rows, Fixed(1), batch_dims=1,
          expected=np.take_along_axis(x[..., 0], rows, 1))
    pairs = np.int32([[0, 1], [3, 4]])
    check("GatherNd", x, pairs, expected=x[[0, 3], [1, 4]])
    updates = f(2, 6)
    expected = np.zeros_like(x)
    expected[[0, 3], [1, 4]] = updates
    check("ScatterNd", pairs, updates, Fixed([4, 5, 6]), expected=expected)
    for op, mode in (("Update", None), ("Add", np.add), ("Max", np.maximum), ("Min", np.minimum)):
        changed = x.copy()
        if mode is None:
            changed[[0, 3], [1, 4]] = updates
        else:
            mode.at(changed, ([0, 3], [1, 4]), updates)
        check(f"TensorScatter{op}", x, pairs, updates, expected=changed)
    check("Where", B, expected=np.argwhere(B))


def same_pads(size: int, window: int, stride: int) -> tuple[int, int]:
    total = max((-(-size // stride) - 1) * stride + window - size, 0)
    return total // 2, total - total // 2


def convolved(x, w, strides, pads, dilation=1, groups=1):
    """A convolution of NHWC by HWIO, as a sum over the taps."""
    x = np.pad(x.astype(np.float64), ((0, 0), *pads, (0, 0)))
    (kh, kw, ci, co), s = w.shape, strides
    rows = (x.shape[1] - (kh - 1) * dilation - 1) // s + 1
    columns = (x.shape[2] - (kw - 1) * dilation - 1) // s + 1
    y = np.zeros((x.shape[0], rows, columns, co))
    for g in range(groups):
        out = slice(g * co // groups, (g + 1) * co // groups)
        for a in range(kh):
            for b in range(kw):
                part = x[:, a * dilation:a * dilation + rows * s:s,
                         b * dilation:b * dilation + columns * s:s, g * ci:(g + 1) * ci]
                y[..., out] += part @ w[a, b, :, out]
    return y.astype(np.float32)


@pytest.mark.parametrize(("padding", "stride", "dilation"),
                         [("SAME", 1, 1), ("SAME", 2, 1), ("VALID", 2, 1), ("SAME", 1, 2)])
def test_convolutions(padding, stride, dilation):
    x, w = f(1, 7, 8, 4), f(3, 2, 4, 6)
    pads = [same_pads(n, (k - 1) * dilation + 1, stride) if padding == "SAME" else (0, 0)
            for n, k in ((7, 3), (8, 2))]
    attrs = {"strides": (1, stride, stride, 1), "dilations": (1, dilation, dilation, 1),
             "padding": padding}
    check("Conv2D", x, Fixed(w), expected=convolved(x, w, stride, pads, dilation), **attrs)
    grouped = f(3, 2, 2, 6)
    check("Conv2D", x, grouped, expected=convolved(x, grouped, stride, pads, dilation, 2), **attrs)
    first = {name: tuple(v[i] for i in (0, 3, 1, 2)) for name, v in attrs.items() if name[0] != "p"}
    check("Conv2D", x.transpose(0, 3, 1, 2).copy(), Fixed(w), padding=padding, data_format="NCHW",
          expected=convolved(x, w, stride, pads, dilation).transpose(0, 3, 1, 2), **first)
    deep = f(3, 2, 4, 2)
    full = np.zeros((3, 2, 1, 8), np.float32)
    full[:, :, 0] = deep.reshape(3, 2, 8)
    check("DepthwiseConv2dNative", x, Fixed(deep),
          expected=convolved(x, full, stride, pads, dilation, 4), **attrs)
    if dilation == 1:
        dy = f(*convolved(x, w, stride, pads).shape)
        check("Conv2DBackpropInput", Fixed(np.int32(x.shape)), w, dy,
              expected=gradient_of_image(x, w, dy, stride, pads), tol=1e-4, **attrs)


def gradient_of_image(x, w, dy, stride, pads):
    padded = np.zeros((1, *(n + sum(p) for n, p in zip(x.shape[1:3], pads, strict=True)),
                       x.shape[3]))
    for a in range(w.shape[0]):
        for b in range(w.shape[1]):
            padded[:, a:a + dy.shape[1] * stride:stride, b:b + dy.shape[2] * stride:stride] += \
                dy @ w[a, b].T
    (top, bottom), (left, right) = pads
    return padded[:, top:padded.shape[1] - bottom, left:padded.shape[2] - right].astype(np.float32)


def test_explicit_padding():
    x, w = f(1, 5, 5, 2), f(3, 3, 2, 2)
    check("Conv2D", x, w, strides=(1, 1, 1, 1), padding="EXPLICIT",
          explicit_paddings=(0, 0, 1, 2, 0, 1, 0, 0),
          expected=convolved(x, w, 1, [(1, 2), (0, 1)]))


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_pools(padding):
    x = f(2, 5, 6, 3)
    pads = [same_pads(n, 3, 2) if padding == "SAME" else (0, 0) for n in (5, 6)]
    attrs = {"ksize": (1, 3, 3, 1), "strides": (1, 2, 2, 1), "padding": padding}
    nan = np.pad(x, ((0, 0), *pads, (0, 0)), constant_values=np.nan)
    views = np.lib.stride_tricks.sliding_window_view(nan, (3, 3), axis=(1, 2))[:, ::2, ::2]
    check("MaxPool", x, expected=np.nanmax(views, (-2, -1)), **attrs)
    check("AvgPool", x, expected=np.nanmean(views, (-2, -1)), **attrs)


def test_volumes():
    x, w = f(1, 3, 4, 4, 2), f(1, 3, 3, 2, 3)
    attrs = {"strides": (1, 1, 1, 1, 1), "padding": "SAME"}
    planes = convolved(x[0], w[0], 1, [(1, 1), (1, 1)])[None]
    check("Conv3D", x, w, expected=planes, **attrs)
    pool = {"ksize": (1, 1, 2, 2, 1), "strides": (1, 1, 2, 2, 1), "padding": "VALID"}
    blocks = x.reshape(1, 3, 2, 2, 2, 2, 2)
    check("MaxPool3D", x, expected=blocks.max((3, 5)), **pool)
    check("AvgPool3D", x, expected=blocks.mean((3, 5)), **pool)


def test_normalisation():
    x = f(2, 4, 4, 3)
    gamma, beta, mean, var = f(3), f(3), f(3), f(3, low=0.5)
    normed = (x - mean) / np.sqrt(var + np.float32(1e-3)) * gamma + beta
    for op in ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"):
        check(op, x, gamma, beta, mean, var, is_training=False, epsilon=1e-3, results=3,
              expected=(normed, mean, var), tol=1e-4)
    own, spread = x.mean((0, 1, 2)), x.var((0, 1, 2))
    normed = (x - own) / np.sqrt(spread + np.float32(1e-3)) * gamma + beta
    empty = np.zeros(3, np.float32)
    check("FusedBatchNormV3", x, gamma, beta, empty, empty, epsilon=1e-3, results=3,
          expected=(normed, own, spread * np.float32(32 / 31)), tol=1e-4)
    padded = np.pad(x * x, ((0, 0), (0, 0), (0, 0), (1, 1)))
    sums = padded[..., :-2] + padded[..., 1:-1] + padded[..., 2:]
    check("LRN", x, depth_radius=1, bias=2.0, alpha=0.3, beta=0.5,
          expected=x / (2 + 0.3 * sums) ** np.float32(0.5))


def test_losses():
    logits, labels = f(4, 5), np.int32([1, 0, 4, 2])
    hot = np.eye(5, dtype=np.float32)[labels]
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    expected = (-np.log(p)[np.arange(4), labels], p - hot)
    check("SparseSoftmaxCrossEntropyWithLogits", logits, labels, results=2, expected=expected)
    check("SoftmaxCrossEntropyWithLogits", logits, hot, results=2, expected=expected)


def test_images():
    x = f(1, 2, 2, 1)
    twice = x.repeat(2, 1).repeat(2, 2)
    check("ResizeNearestNeighbor", x, Fixed([4, 4]), expected=twice)
    check("ResizeNearestNeighbor", x, Fixed([4, 4]), half_pixel_centers=True, expected=twice)
    line = x[0, :, 0, 0]
    rows = np.float32([line[0], line.mean(), line[1], line[1]])
    check("ResizeBilinear", x[:, :, :1], Fixed([4, 1]), expected=rows.reshape(1, 4, 1, 1))
    third = np.float32([line @ [1 - t, t] for t in (0, 1 / 3, 2 / 3, 1)])
    check("ResizeBilinear", x[:, :, :1], Fixed([4, 1]), align_corners=True,
          expected=third.reshape(1, 4, 1, 1))
    half = np.float32([line @ [1 - t, t] for t in (0, 0.25, 0.75, 1)])
    check("ResizeBilinear", x[:, :, :1], Fixed([4, 1]), half_pixel_centers=True,
          expected=half.reshape(1, 4, 1, 1))
    check("ResizeBicubic", x, Fixed([2, 2]), half_pixel_centers=True, expected=x)
    y = f(1, 4, 4, 2)
    deep = y.reshape(1, 2, 2, 2, 2, 2).transpose(0, 1, 3, 2, 4, 5).reshape(1, 2, 2, 8)
    check("SpaceToDepth", y, block_size=2, expected=deep)
    check("DepthToSpace", deep, block_size=2, expected=y)
    batches = y.reshape(1, 2, 2, 2, 2, 2).transpose(2, 4, 0, 1, 3, 5).reshape(4, 2, 2, 2)
    check("SpaceToBatchND", y, Fixed([2, 2]), Fixed([[0, 0], [0, 0]]), expected=batches)
    check("BatchToSpaceND", batches, Fixed([2, 2]), Fixed([[0, 0], [0, 0]]), expected=y)
    box = np.float32([[0, 0, 1, 1]])
    check("CropAndResize", y, box, np.int32([0]), Fixed([2, 2]), expected=y[:, ::3, ::3])


@pytest.mark.parametrize(("op", "operands", "attrs", "match"), [
    ("Relu", (X, X), {}, "wrong number of inputs"),
    ("Relu", (X,), {"alpha": 1.0}, "unknown attribute 'alpha'"),
    ("Reshape", (X, np.int32([6])), {}, "must be known at compile time"),
    ("Conv2D", (f(1, 4, 4, 3), f(1, 1, 2, 2)), {"strides": (1, 1, 1, 1), "padding": "SAME"},
     "do not divide"),
    ("Conv2D", (f(1, 4, 4, 2), f(1, 1, 2, 2)), {"strides": (2, 1, 1, 1), "padding": "SAME"},
     "along the batch"),
    ("Conv2D", (f(1, 4, 4, 2), f(1, 1, 2, 2)), {"strides": (1, 1, 1, 1), "padding": "HALF"},
     "unknown padding"),
    ("Slice", (X, Fixed([1, 0]), Fixed([2, 1])), {}, "outside of the tensor"),
    ("Sum", (X, Fixed([0, 0])), {}, "given twice"),
    ("Sum", (X, Fixed([2])), {}, "axis out of range"),
    ("Cast", (X,), {}, "attribute 'DstT' is missing"),
    ("Unpack", (X,), {"num": 5}, "number of results"),
])
def test_errors(op, operands, attrs, match):
    with pytest.raises((InvalidModelError, UnsupportedModelError), match=match) as error:
        run(op, *operands, **attrs)
    assert f"y ({op})" in str(error.value)


def test_every_operator_is_checked():
    """Each operator is named in this file or in those of the other groups."""
    elsewhere = {"NoOp", "ControlTrigger", "Assert", "Print", "PreventGradient", "EnsureShape",
                 "DeepCopy", "SymbolicGradient"}
    texts = [path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py")]
    named = set(re.findall(r'"(\w+)"', " ".join(texts)))
    named |= {f"TensorScatter{op}" for op in ("Update", "Add", "Max", "Min")}
    assert set(CONVERTERS.names()) - named - elsewhere == set()


def test_the_page_lists_the_operators():
    page = (Path(__file__).parents[4] / "docs" / "graphs.md").read_text(encoding="utf-8")
    listed = re.search(r"weft reads these operators:\n\n(.*?)\n\n", page, re.DOTALL)
    assert listed is not None
    assert re.findall(r"`(\w+)`", listed[1]) == list(CONVERTERS.names())
