"""Corner kernels: operators besides contractions, each for weft and for every peer that has it.

A kernel is a function of torch, which weft compiles as well unless there is an ONNX graph: that one
is for weft and ONNX Runtime. ``array`` is the same in NumPy's interface, for NumPy and JAX.
"""

# ruff: noqa: ARG005 - every library passes itself, whether a kernel needs it or not

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import helper

from benchmarks.models import GraphBuilder
from benchmarks.peers import PEERS, Feeds, Runner

Call = Callable[..., Any]  # of a library and the inputs


@dataclass(frozen=True)
class Draw:
    """A random input: floats between -1 and 1, or integers from 0 to below ``high``."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    high: int = 1000
    kind: str = ""

    def array(self, rng: np.random.Generator) -> np.ndarray:
        if self.kind == "boxes":
            corner, size = rng.uniform(0, 0.9, (2, *self.shape[:-1], 2))
            return np.concatenate([corner, corner + size * 0.2], -1).astype(self.dtype)
        if self.kind == "definite":
            x = rng.uniform(-1, 1, self.shape)
            return (x @ x.swapaxes(-1, -2) + np.eye(self.shape[-1]) * 4).astype(self.dtype)
        if self.dtype == "bool":
            return rng.integers(0, 2, self.shape).astype(bool)
        if "int" in self.dtype:
            return rng.integers(0, self.high, self.shape).astype(self.dtype)
        return rng.uniform(-1, 1, self.shape).astype(self.dtype)


@dataclass(frozen=True)
class Corner:
    """A kernel; ``onnx`` appends nodes that read ``x``, ``x1``, ... and gives the outputs."""

    name: str
    inputs: tuple[Draw, ...]
    torch: Call
    array: Call | None = None
    jax: Call | None = None
    onnx: Callable[[GraphBuilder], str | Sequence[str]] | None = None
    text: str = ""  # weft's program
    random: bool = False  # whether results differ between peers
    opset: int = 18

    def feeds(self) -> Feeds:
        rng = np.random.default_rng(11)
        return {f"x{i or ''}": draw.array(rng) for i, draw in enumerate(self.inputs)}

    def model(self, feeds: Feeds) -> onnx.ModelProto:
        assert self.onnx is not None
        builder = GraphBuilder("corner", (), seed=7)
        outputs = self.onnx(builder)
        graph = helper.make_graph(
            builder.nodes, "corner",
            [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
             for n, a in feeds.items()],
            [helper.make_empty_tensor_value_info(name)
             for name in ([outputs] if isinstance(outputs, str) else outputs)],
            builder.initializers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)])
        model.ir_version = 9
        return onnx.shape_inference.infer_shapes(model, data_prop=True)


def f(*shape: int, dtype: str = "float32", kind: str = "") -> Draw:
    return Draw(shape, dtype, kind=kind)


def i(high: int, *shape: int, dtype: str = "int64") -> Draw:
    return Draw(shape, dtype, high)


def _node(op: str, *inputs: str | np.ndarray, outputs: int = 1, **attrs: Any) -> Any:
    """One ONNX node; arrays among its inputs become constants."""
    def body(g: GraphBuilder) -> str | Sequence[str]:
        names = [g.array(one) if isinstance(one, np.ndarray) else one for one in inputs or ("x",)]
        first = g.node(op, *names, **attrs)
        more = [f"{first}_{k}" for k in range(1, outputs)]
        g.nodes[-1].output.extend(more)
        return [first, *more]
    return body


def _ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def _suppressed(most: int) -> Any:
    return _node("NonMaxSuppression", "x", "x1", _ints(most), np.array([0.5], np.float32),
                 np.array([0.3], np.float32))


def _put(t: Any, x: Any, at: Any, rows: Any) -> Any:
    return t.index_put(x, (at,), rows, accumulate=True)


def _jax_put(j: Any, x: Any, at: Any, rows: Any) -> Any:
    return j.numpy.asarray(x).at[at].add(rows)


def _cast(dtype: str) -> dict[str, Call]:
    return {"torch": lambda t, x: x.to(getattr(t, dtype)),
            "array": lambda n, x: x.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)}


def _group_norm(j: Any, x: Any) -> Any:
    parts = x.reshape(x.shape[0], 8, -1)
    centred = parts - parts.mean(-1, keepdims=True)
    scale = j.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)
    return (centred * scale).reshape(x.shape)


def _layer_norm(j: Any, x: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred * j.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)


def _pool(j: Any, x: Any, size: tuple[int, ...], step: tuple[int, ...]) -> Any:
    return j.lax.reduce_window(x, -j.numpy.inf, j.lax.max, size, step, "VALID")


def _select_chain(n: Any, x: Any, y: Any, z: Any) -> Any:
    return n.where(x > 0, n.where(y > 0.5, z, x), n.where(z < 0, y * z, x + y))


SIZE = 1 << 20
KEY = Draw((2,), "uint32", 1 << 31)


def _random(name: str, text: str, torch: Call, draw: str, *more: Draw) -> Corner:
    """Random numbers: weft's program of ``key`` and what the others draw without it."""
    params = "".join(f", %x{k}: Tensor[{d.shape}, {d.dtype}]" for k, d in enumerate(more, 1))
    return Corner(name, (KEY, *more), lambda t, key, *x: torch(t, *x),
                  jax=lambda j, key, *x: getattr(j.random, draw)(
                      key, *(x or [(SIZE,), j.numpy.float32])),
                  text=f"def @main(%x: Tensor[(2,), uint32]{params}) {{ {text} }}", random=True)


IMAGE = (1, 64, 56, 56)

ORDER = (
    Corner("sort 64x1000", (f(64, 1000),), lambda t, x: t.sort(x, dim=-1, stable=True)[0],
           lambda n, x: n.sort(x, -1)),
    Corner("sort 1M", (f(SIZE),), lambda t, x: t.sort(x, stable=True)[0],
           lambda n, x: n.sort(x)),
    Corner("sort int64 100k", (i(1 << 40, 100_000),), lambda t, x: t.sort(x, stable=True)[0],
           lambda n, x: n.sort(x)),
    Corner("sort columns 1000x64", (f(1000, 64),), lambda t, x: t.sort(x, dim=0, stable=True)[0],
           lambda n, x: n.sort(x, 0)),
    Corner("argsort 64x1000", (f(64, 1000),), lambda t, x: t.argsort(x, dim=-1, stable=True),
           lambda n, x: n.argsort(x, -1, stable=True)),
    Corner("argsort 100k", (f(100_000),), lambda t, x: t.argsort(x, stable=True),
           lambda n, x: n.argsort(x, stable=True)),
    Corner("topk 10 of 64x1000", (f(64, 1000),), lambda t, x: tuple(t.topk(x, 10)),
           jax=lambda j, x: _first(j.lax.top_k(x, 10)),
           onnx=_node("TopK", "x", _ints(10), outputs=2)),
    Corner("topk 50 of 1x50257", (f(1, 50257),), lambda t, x: tuple(t.topk(x, 50)),
           jax=lambda j, x: _first(j.lax.top_k(x, 50)),
           onnx=_node("TopK", "x", _ints(50), outputs=2)),
    Corner("topk 500 of 4x8400", (f(4, 8400),), lambda t, x: tuple(t.topk(x, 500)),
           jax=lambda j, x: _first(j.lax.top_k(x, 500)),
           onnx=_node("TopK", "x", _ints(500), outputs=2)),
    Corner("unique 100k of 1000", (i(1000, 100_000),),
           lambda t, x: t.unique(x), lambda n, x: n.unique(x), onnx=_node("Unique", sorted=1)),
    Corner("nonzero 1M bool", (f(1 << 20, dtype="bool"),), lambda t, x: t.nonzero(x).T,
           onnx=_node("NonZero")),
    Corner("searchsorted 100k in 10k", (i(1 << 30, 100_000), i(1000, 10_000)),
           lambda t, x, y: t.searchsorted(y.cumsum(0) * 200, x),
           lambda n, x, y: n.searchsorted(n.cumsum(y) * 200, x)),
    Corner("NMS 1000 boxes", (f(1, 1000, 4, kind="boxes"), f(1, 1, 1000)),
           lambda t, x, y: None, onnx=_suppressed(100)),
    Corner("NMS 80 classes of 2000", (f(1, 2000, 4, kind="boxes"), f(1, 80, 2000)),
           lambda t, x, y: None, onnx=_suppressed(100)),
    Corner("NMS 5000 boxes, all kept", (f(1, 5000, 4, kind="boxes"), f(1, 1, 5000)),
           lambda t, x, y: None, onnx=_suppressed(5000)),
)

INTEGERS = (
    Corner("int64 x * y + z 1M", (i(1000, SIZE), i(1000, SIZE), i(1000, 1 << 20)),
           lambda t, x, y, z: x * y + z, lambda n, x, y, z: x * y + z),
    Corner("int64 x // 7 1M", (i(1 << 40, SIZE),), lambda t, x: x // 7, lambda n, x: x // 7),
    Corner("int64 x % y 1M", (i(1 << 40, SIZE), i(1 << 20, 1 << 20)),
           lambda t, x, y: x % (y + 1), lambda n, x, y: x % (y + 1)),
    Corner("int32 x // 7 1M", (i(1 << 30, 1 << 20, dtype="int32"),), lambda t, x: x // 7,
           lambda n, x: x // 7),
    Corner("int64 sum rows 1024x1024", (i(1000, 1024, 1024),), lambda t, x: x.sum(1),
           lambda n, x: x.sum(1)),
    Corner("uint8 add 4M", (i(100, 1 << 22, dtype="uint8"), i(100, 1 << 22, dtype="uint8")),
           lambda t, x, y: x + y, lambda n, x, y: x + y),
    Corner("compare, and, not 1M", (f(SIZE), f(1 << 20)),
           lambda t, x, y: (x > y) & ~(x > 0.5), lambda n, x, y: (x > y) & ~(x > 0.5)),
    Corner("where chain 1M", (f(SIZE), f(SIZE), f(1 << 20)), _select_chain, _select_chain),
)

INDEXING = (
    Corner("embedding 4096 of 30522x64", (f(30522, 64), i(30522, 4096)),
           lambda t, x, k: t.nn.functional.embedding(k, x), lambda n, x, k: x[k],
           onnx=_node("Gather", "x", "x1")),
    Corner("gather columns 1024x1000", (f(1024, 1000), i(1000, 1024, 100)),
           lambda t, x, k: t.gather(x, 1, k), lambda n, x, k: n.take_along_axis(x, k, 1),
           onnx=_node("GatherElements", "x", "x1", axis=1)),
    Corner("take axis 1 of 512x1000", (f(512, 1000), i(1000, 300)),
           lambda t, x, k: t.index_select(x, 1, k), lambda n, x, k: n.take(x, k, 1),
           onnx=_node("Gather", "x", "x1", axis=1)),
    Corner("gather_nd 20k of 256x256x8", (f(256, 256, 8), i(256, 20_000, 2)),
           lambda t, x, k: x[k[:, 0], k[:, 1]], lambda n, x, k: x[k[:, 0], k[:, 1]],
           onnx=_node("GatherND", "x", "x1")),
    Corner("scatter_add rows 4096 to 30522x64", (f(30522, 64), i(30522, 4096), f(4096, 64)),
           lambda t, x, k, u: t.index_add(x, 0, k, u), jax=_jax_put),
    Corner("index_put 20k of 100k", (f(100_000), i(100_000, 20_000), f(20_000)), _put,
           jax=_jax_put),
    Corner("scatter_add 1024x100", (f(1024, 1000), i(1000, 1024, 100), f(1024, 100)),
           lambda t, x, k, u: t.scatter_add(x, 1, k, u),
           onnx=_node("ScatterElements", "x", "x1", "x2", axis=1, reduction="add")),
    Corner("boolean mask fill 1M", (f(SIZE), f(1 << 20, dtype="bool")),
           lambda t, x, m: x.masked_fill(m, 0.0), lambda n, x, m: n.where(m, n.float32(0), x)),
    Corner("one hot 4096 of 1000", (i(1000, 4096),),
           lambda t, x: t.nn.functional.one_hot(x, 1000).to(t.float32),
           jax=lambda j, x: j.nn.one_hot(x, 1000),
           onnx=_node("OneHot", "x", _ints(1000), np.array([0, 1], np.float32))),
)

REDUCTIONS = (
    Corner("sum middle 64x1003x65", (f(64, 1003, 65),), lambda t, x: x.sum(1),
           lambda n, x: x.sum(1), onnx=_node("ReduceSum", "x", _ints(1), keepdims=0)),
    Corner("sum first 100003x7", (f(100_003, 7),), lambda t, x: x.sum(0), lambda n, x: x.sum(0),
           onnx=_node("ReduceSum", "x", _ints(0), keepdims=0)),
    Corner("sum last 100003x7", (f(100_003, 7),), lambda t, x: x.sum(1), lambda n, x: x.sum(1),
           onnx=_node("ReduceSum", "x", _ints(1), keepdims=0)),
    Corner("sum outer and inner 33x517x65", (f(33, 517, 65),), lambda t, x: x.sum((0, 2)),
           lambda n, x: x.sum((0, 2)), onnx=_node("ReduceSum", "x", _ints(0, 2), keepdims=0)),
    Corner("variance 1000x333", (f(1000, 333),), lambda t, x: x.var(1, correction=0),
           lambda n, x: x.var(1)),
    Corner("prod 1000x64", (f(1000, 64),), lambda t, x: x.prod(1), lambda n, x: x.prod(1)),
    Corner("argmax first 1000x513", (f(1000, 513),), lambda t, x: x.argmax(0),
           lambda n, x: x.argmax(0), onnx=_node("ArgMax", axis=0, keepdims=0)),
    Corner("argmax middle 8x21x4096", (f(8, 21, 4096),), lambda t, x: x.argmax(1),
           lambda n, x: x.argmax(1), onnx=_node("ArgMax", axis=1, keepdims=0)),
    Corner("cumsum rows 1000x1000", (f(1000, 1000),), lambda t, x: x.cumsum(1),
           lambda n, x: n.cumsum(x, 1), onnx=_node("CumSum", "x", _ints(1))),
    Corner("cumsum columns 1000x1000", (f(1000, 1000),), lambda t, x: x.cumsum(0),
           lambda n, x: n.cumsum(x, 0), onnx=_node("CumSum", "x", _ints(0))),
    Corner("cumsum 1M", (f(SIZE),), lambda t, x: x.cumsum(0), lambda n, x: n.cumsum(x),
           onnx=_node("CumSum", "x", _ints(0))),
    Corner("softmax axis 1 of 16x333x65", (f(16, 333, 65),), lambda t, x: x.softmax(1),
           jax=lambda j, x: j.nn.softmax(x, 1), onnx=_node("Softmax", axis=1)),
    Corner("softmax 4000x37", (f(4000, 37),), lambda t, x: x.softmax(1),
           jax=lambda j, x: j.nn.softmax(x, 1), onnx=_node("Softmax", axis=1)),
    Corner("logsumexp 1000x777", (f(1000, 777),), lambda t, x: x.logsumexp(1),
           jax=lambda j, x: j.nn.logsumexp(x, 1),
           onnx=_node("ReduceLogSumExp", "x", _ints(1), keepdims=0)),
    Corner("layer norm 500x333", (f(500, 333),),
           lambda t, x: t.nn.functional.layer_norm(x, (333,)), jax=_layer_norm),
    Corner("group norm 8 of 4x64x31x33", (f(4, 64, 31, 33),),
           lambda t, x: t.nn.functional.group_norm(x, 8), jax=_group_norm),
)

MOVEMENT = (
    Corner("every third of 1000x3001", (f(1000, 3001),), lambda t, x: x[:, ::3].contiguous(),
           lambda n, x: n.array(x[:, ::3]),
           onnx=_node("Slice", "x", _ints(0), _ints(3001), _ints(1), _ints(3))),
    Corner("transpose 32x65x33x17", (f(32, 65, 33, 17),),
           lambda t, x: x.permute(3, 1, 0, 2).contiguous(),
           lambda n, x: n.transpose(x, (3, 1, 0, 2)).copy(),
           onnx=_node("Transpose", perm=[3, 1, 0, 2])),
    Corner("transpose uint8 1024x1024", (i(200, 1024, 1024, dtype="uint8"),),
           lambda t, x: x.T.contiguous(), lambda n, x: x.T.copy(),
           onnx=_node("Transpose", perm=[1, 0])),
    Corner("roll 1000x1000", (f(1000, 1000),), lambda t, x: x.roll((3, 5), (0, 1)),
           lambda n, x: n.roll(x, (3, 5), (0, 1))),
    Corner("flip last 1000x1000", (f(1000, 1000),), lambda t, x: x.flip(1),
           lambda n, x: n.array(n.flip(x, 1))),
    Corner("tile 100x100 by 10x10", (f(100, 100),), lambda t, x: x.repeat(10, 10),
           lambda n, x: n.tile(x, (10, 10)), onnx=_node("Tile", "x", _ints(10, 10))),
    Corner("repeat 1000x250 by 4", (f(1000, 250),), lambda t, x: x.repeat_interleave(4, 1),
           lambda n, x: n.repeat(x, 4, 1)),
    Corner("stack 4 of 512x513, last", tuple(f(512, 513) for _ in range(4)),
           lambda t, *x: t.stack(x, -1), lambda n, *x: n.stack(x, -1)),
    Corner("pad constant 64x100x101", (f(64, 100, 101),),
           lambda t, x: t.nn.functional.pad(x, (3, 2, 1, 1)),
           lambda n, x: n.pad(x, ((0, 0), (1, 1), (3, 2))),
           onnx=_node("Pad", "x", _ints(0, 1, 3, 0, 1, 2))),
    Corner("pad reflect 64x100x101", (f(64, 100, 101),),
           lambda t, x: t.nn.functional.pad(x, (3, 2, 1, 1), mode="reflect"),
           lambda n, x: n.pad(x, ((0, 0), (1, 1), (3, 2)), mode="reflect"),
           onnx=_node("Pad", "x", _ints(0, 1, 3, 0, 1, 2), mode="reflect")),
    Corner("lower triangle 1000x1000", (f(1000, 1000),), lambda t, x: x.tril(),
           lambda n, x: n.tril(x), onnx=_node("Trilu", upper=0)),
    Corner("resize bilinear 64@56 to 112", (f(*IMAGE),),
           lambda t, x: t.nn.functional.interpolate(x, scale_factor=2, mode="bilinear"),
           onnx=_node("Resize", "x", "", np.array([1, 1, 2, 2], np.float32), mode="linear")),
    Corner("resize nearest 64@56 to 112", (f(*IMAGE),),
           lambda t, x: t.nn.functional.interpolate(x, scale_factor=2),
           onnx=_node("Resize", "x", "", np.array([1, 1, 2, 2], np.float32), mode="nearest",
                      coordinate_transformation_mode="asymmetric", nearest_mode="floor")),
    Corner("resize bilinear 3@480 to 224", (f(1, 3, 480, 480),),
           lambda t, x: t.nn.functional.interpolate(x, (224, 224), mode="bilinear"),
           onnx=_node("Resize", "x", "", "", _ints(1, 3, 224, 224), mode="linear")),
    Corner("max pool 3x3/1 64@57", (f(1, 64, 57, 57),),
           lambda t, x: t.nn.functional.max_pool2d(x, 3, 1),
           jax=lambda j, x: _pool(j, x, (1, 1, 3, 3), (1, 1, 1, 1)),
           onnx=_node("MaxPool", kernel_shape=[3, 3])),
    Corner("max pool 1d 5/2 128@3001", (f(1, 128, 3001),),
           lambda t, x: t.nn.functional.max_pool1d(x, 5, 2),
           jax=lambda j, x: _pool(j, x, (1, 1, 5), (1, 1, 2)),
           onnx=_node("MaxPool", kernel_shape=[5], strides=[2])),
    Corner("average pool 3d 2 16@16x28x28", (f(1, 16, 16, 28, 28),),
           lambda t, x: t.nn.functional.avg_pool3d(x, 2),
           onnx=_node("AveragePool", kernel_shape=[2] * 3, strides=[2] * 3)),
)

CASTS = tuple(
    Corner(f"cast {source} to {target} 1M", (Draw((1 << 20,), source, 100),), **_cast(target))
    for source, target in (
        ("float32", "bfloat16"), ("bfloat16", "float32"), ("float32", "float16"),
        ("float16", "float32"), ("float32", "int8"), ("int8", "float32"), ("float32", "uint8"),
        ("uint8", "float32"), ("int64", "int32"), ("int64", "float32"), ("float32", "int64"),
        ("bool", "float32"), ("float16", "bfloat16"), ("float32", "float64")))

NUMERICS = (
    Corner("rfft 64x1024", (f(64, 1024),), lambda t, x: t.view_as_real(t.fft.rfft(x)),
           jax=lambda j, x: _parts(j.numpy, j.numpy.fft.rfft(x)),
           array=lambda n, x: _parts(n, n.fft.rfft(x))),
    Corner("rfft 64x1000", (f(64, 1000),), lambda t, x: t.view_as_real(t.fft.rfft(x)),
           array=lambda n, x: _parts(n, n.fft.rfft(x))),
    Corner("fft2 256x256", (f(256, 256),), lambda t, x: t.view_as_real(t.fft.fft2(x)),
           array=lambda n, x: _parts(n, n.fft.fft2(x))),
    Corner("solve 64x64, 8 columns, batch 16", (f(16, 64, 64, kind="definite"), f(16, 64, 8)),
           lambda t, a, b: t.linalg.solve(a, b), lambda n, a, b: n.linalg.solve(a, b)),
    Corner("solve 512x512", (f(512, 512, kind="definite"), f(512, 8)),
           lambda t, a, b: t.linalg.solve(a, b), lambda n, a, b: n.linalg.solve(a, b)),
    Corner("cholesky 256", (f(256, 256, kind="definite"),), lambda t, a: t.linalg.cholesky(a),
           lambda n, a: n.linalg.cholesky(a)),
    Corner("qr 128x64", (f(128, 64),), lambda t, a: abs(t.linalg.qr(a)[1]),
           lambda n, a: abs(n.linalg.qr(a)[1])),
    Corner("svd values 64x48", (f(64, 48),), lambda t, a: t.linalg.svd(a, full_matrices=False)[1],
           lambda n, a: n.linalg.svd(a, full_matrices=False)[1]),
    Corner("eigh 64", (f(64, 64, kind="definite"),), lambda t, a: t.linalg.eigh(a)[0],
           lambda n, a: n.linalg.eigh(a)[0]),
    Corner("inverse 128", (f(128, 128, kind="definite"),), lambda t, a: t.linalg.inv(a),
           lambda n, a: n.linalg.inv(a)),
    _random("uniform 1M", f"random.uniform(%x, 0f, 1f, out_shape=[{SIZE}])",
            lambda t: t.rand(SIZE), "uniform"),
    _random("normal 1M", f"random.normal(%x, 0f, 1f, out_shape=[{SIZE}])",
            lambda t: t.randn(SIZE), "normal"),
    _random("dropout 1M", "random.dropout(%x, %x1, rate=0.1)",
            lambda t, x: t.nn.functional.dropout(x, 0.1), "bernoulli", f(SIZE)),
    _random("multinomial 16 of 64x1000", "random.multinomial(%x, %x1, num_samples=16)",
            lambda t, x: t.multinomial(x + 1.01, 16, replacement=True), "categorical",
            f(64, 1000)),
)

CORNERS: tuple[Corner, ...] = (
    *ORDER, *INTEGERS, *INDEXING, *REDUCTIONS, *MOVEMENT, *CASTS, *NUMERICS)


def _first(pair: Sequence[Any]) -> tuple[Any, Any]:
    return pair[0], pair[1].astype("int64")


def _parts(n: Any, x: Any) -> Any:
    return n.stack([x.real, x.imag], -1).astype(n.float32)


def _listed(results: Any) -> list[Any]:
    return list(results) if isinstance(results, (tuple, list)) else [results]


def _numpy(corner: Corner, _: Feeds) -> Runner:
    array = corner.array
    if array is None:
        raise LookupError("no kernel of NumPy")
    return lambda given: _listed(array(np, *given.values()))


def _jax(corner: Corner, feeds: Feeds) -> Runner:
    import jax

    jax.config.update("jax_enable_x64", True)
    own = corner.jax
    if own is not None:
        function = jax.jit(lambda *x: own(jax, *x))
    elif corner.array is not None:
        array = corner.array
        function = jax.jit(lambda *x: array(jax.numpy, *x))
    else:
        raise LookupError("no kernel of JAX")
    inputs = [jax.numpy.asarray(one) for one in feeds.values()]
    return lambda _: _listed(jax.block_until_ready(function(*inputs)))


def _module(corner: Corner, feeds: Feeds) -> tuple[Any, tuple[Any, ...]]:
    import torch

    class Module(torch.nn.Module):
        def forward(self, *x: Any) -> Any:
            return corner.torch(torch, *x)

    return Module(), tuple(torch.from_numpy(one) if one.dtype.kind != "V" else
                           torch.from_numpy(one.view(np.uint16)).view(torch.bfloat16)
                           for one in feeds.values())


def _torch(corner: Corner, feeds: Feeds, threads: int) -> Runner:
    import torch

    torch.set_num_threads(threads)
    module, inputs = _module(corner, feeds)
    if module(*inputs) is None:
        raise LookupError("no kernel of torch")

    def run(_: Feeds) -> list[Any]:
        with torch.inference_mode():
            return _listed(corner.torch(torch, *inputs))
    return run


def _weft(corner: Corner, feeds: Feeds) -> Runner:
    import torch

    import weft

    source = (weft.parse(corner.text) if corner.text
              else torch.export.export(*_module(corner, feeds)))
    compiled = weft.compile(source)
    values = list(feeds.values())
    return lambda _: _listed(compiled(*values))


def corner_named(name: str) -> Corner:
    return next(one for one in CORNERS if one.name == name)


def load(name: str, peer: str, feeds: Feeds, path: Path, threads: int) -> Runner:
    """A kernel of the table by a peer. Raises ``LookupError`` if the peer has none."""
    corner = corner_named(name)
    if peer == "onnxruntime" or (peer == "weft" and corner.onnx):
        if corner.onnx is None:
            raise LookupError("no ONNX graph")
        onnx.save(corner.model(feeds), path)
        return PEERS[peer](path, threads)
    if peer == "torch":
        return _torch(corner, feeds, threads)
    return {"weft": _weft, "jax": _jax, "numpy": _numpy}[peer](corner, feeds)
