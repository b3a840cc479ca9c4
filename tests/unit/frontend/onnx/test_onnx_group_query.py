"""GroupQueryAttention over its attributes, against ONNX Runtime: prompts and decoding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import weft
from tests.onnxruntime_peer import run_onnxruntime
from tests.unit.frontend.onnx.contrib_cases import (
    assert_same,
    contrib_model,
    run_weft,
    some,
)
from weft.frontend.onnx import from_onnx
from weft.support.errors import UnsupportedModelError

HEADS, SHARED, WIDTH = 4, 2, 16
OUTPUTS = ("y", "k", "v")


def operands(rng: np.random.Generator, kind: str, *, packed: bool, length: int, batch: int
             ) -> list[np.ndarray | None]:
    q, k, v = (rng.uniform(-1, 1, (batch, length, heads * WIDTH)).astype(kind)
               for heads in (HEADS, SHARED, SHARED))
    return [np.concatenate([q, k, v], -1), None, None] if packed else [q, k, v]


def attributes(rng: np.random.Generator) -> dict[str, Any]:
    attrs: dict[str, Any] = {"num_heads": HEADS, "kv_num_heads": SHARED}
    if rng.random() < 0.3:
        attrs["softcap"] = 2.0
    if rng.random() < 0.4:
        attrs["local_window_size"] = int(rng.integers(1, 6))
    if rng.random() < 0.3:
        attrs["scale"] = 0.4
    if rng.random() < 0.6:
        attrs |= {"do_rotary": 1, "rotary_interleaved": int(rng.integers(0, 2))}
    return attrs


@pytest.mark.parametrize("seed", range(40))
def test_group_query_attention(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kind = "float16" if seed % 5 == 4 else "float32"
    attrs, batch = attributes(rng), int(rng.integers(1, 4))
    phase = rng.choice(["prompt", "prompt into a buffer", "decode", "decode in a buffer",
                        "several new"])
    length = int(rng.integers(2, 7)) if phase in ("prompt", "prompt into a buffer") else 1
    if phase == "several new":
        length, batch = 3, 1  # ONNX Runtime takes one row here
    past = 0 if "prompt" in phase else int(rng.integers(length, 8))
    total = past + length
    held = {"prompt": None, "prompt into a buffer": 12, "decode in a buffer": 12}.get(phase, past)
    ends = np.full(batch, total, np.int32)
    if batch > 1 and "prompt" not in phase:
        ends[1:] -= rng.integers(0, past, batch - 1, dtype=np.int32)
    arrays = operands(rng, kind, packed=bool(rng.integers(0, 2)), length=length, batch=batch)
    buffers = [None if held is None else rng.uniform(-1, 1, (batch, SHARED, held, WIDTH))
               .astype(kind) for _ in range(2)]
    arrays += [*buffers, ends - 1, np.array(total, np.int32)]
    if "do_rotary" in attrs:
        arrays += [some(16, WIDTH // 2, dtype=kind), some(16, WIDTH // 2, dtype=kind, seed=1)]
    model, feeds = contrib_model("GroupQueryAttention", arrays, outputs=OUTPUTS, constant=[6],
                                 **attrs)
    actual = run_weft(model, feeds)
    expected = run_onnxruntime(model, feeds, optimized=False)
    assert [a.shape for a in actual] == [e.shape for e in expected]
    tolerance = 1e-2 if kind == "float16" else 2e-5
    assert_same(actual[:1], expected[:1], tolerance)
    for a, e in zip(actual[1:], expected[1:], strict=True):  # beyond the ends is free space
        for row, end in enumerate(ends):
            assert_same([a[row, :, :end]], [e[row, :, :end]], tolerance)


def test_bias_and_positions() -> None:
    model, feeds = contrib_model("GroupQueryAttention", with_bias(), outputs=OUTPUTS, constant=[6],
                                 num_heads=HEADS, kv_num_heads=SHARED, do_rotary=1)
    assert_same(run_weft(model, feeds), run_onnxruntime(model, feeds, optimized=False))


def with_bias() -> list[np.ndarray | None]:
    arrays = operands(np.random.default_rng(3), "float32", packed=False, length=1, batch=2)
    return [*arrays, some(2, SHARED, 5, WIDTH), some(2, SHARED, 5, WIDTH, seed=1),
            np.array([5, 5], np.int32), np.array(6, np.int32), some(16, WIDTH // 2),
            some(16, WIDTH // 2, seed=1), np.array([[5], [5]], np.int64), some(2, 1, 1, 6)]


def test_norms_of_queries_and_keys() -> None:
    """ONNX Runtime normalises in this operator on GPUs alone; here it gets the normalised rows."""
    arrays, attrs = with_bias(), {"num_heads": HEADS, "kv_num_heads": SHARED, "do_rotary": 1}
    weights = [some(WIDTH) + 1, some(WIDTH, seed=2) + 1]

    def normalised(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        heads = x.reshape(*x.shape[:2], -1, WIDTH)
        square = np.square(heads).mean(-1, keepdims=True)
        return (heads / np.sqrt(square + 1e-6) * weight).reshape(x.shape).astype(np.float32)

    model, feeds = contrib_model("GroupQueryAttention", [*arrays, None, None, None, *weights],
                                 outputs=OUTPUTS, constant=[6], **attrs)
    rows = [normalised(x, w) for x, w in zip(arrays, weights, strict=False) if x is not None]
    apart, values = contrib_model("GroupQueryAttention", [*rows, *arrays[2:]], outputs=OUTPUTS,
                                  constant=[6], **attrs)
    assert_same(run_weft(model, feeds), run_onnxruntime(apart, values, optimized=False))


def test_without_a_causal_mask() -> None:
    rng = np.random.default_rng(5)
    arrays = operands(rng, "float32", packed=False, length=4, batch=1)
    arrays += [None, None, np.array([3], np.int32), np.array(4, np.int32)]
    model, feeds = contrib_model("GroupQueryAttention", arrays, outputs=OUTPUTS, constant=[6],
                                 num_heads=HEADS, kv_num_heads=SHARED, causal=0)
    assert_same(run_weft(model, feeds), run_onnxruntime(model, feeds, optimized=False))


def test_a_total_length_that_is_data_is_refused() -> None:
    rng = np.random.default_rng(5)
    arrays = operands(rng, "float32", packed=False, length=1, batch=1)
    arrays += [some(1, SHARED, 5, WIDTH), some(1, SHARED, 5, WIDTH), np.array([5], np.int32),
               np.array(6, np.int32)]
    model, _ = contrib_model("GroupQueryAttention", arrays, outputs=OUTPUTS, num_heads=HEADS,
                             kv_num_heads=SHARED)
    with pytest.raises(UnsupportedModelError, match="total_sequence_length that is data"):
        from_onnx(model)


@pytest.mark.parametrize("shared", [True, False])
def test_a_total_length_that_is_data(shared: bool) -> None:
    """Declared sizes say whether past and present are one buffer."""
    capacity = 16 if shared else "past"
    value, real, int32 = helper.make_tensor_value_info, TensorProto.FLOAT, TensorProto.INT32
    past = ["batch", SHARED, capacity, WIDTH]
    present = past if shared else ["batch", SHARED, "total_sequence_length", WIDTH]
    packed = (HEADS + 2 * SHARED) * WIDTH
    graph = helper.make_graph(
        [helper.make_node("GroupQueryAttention", ["x", "", "", "pk", "pv", "ends", "total"],
                          ["y", "k", "v"], domain="com.microsoft", num_heads=HEADS,
                          kv_num_heads=SHARED)], "layer",
        [value("x", real, ["batch", "seq", packed]), value("pk", real, past),
         value("pv", real, past), value("ends", int32, ["batch"]), value("total", int32, [])],
        [value("y", real, None), value("k", real, present), value("v", real, present)])
    model = helper.make_model(graph, ir_version=9, opset_imports=[
        helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)])
    compiled = weft.compile(model)
    rng, held = np.random.default_rng(0), 0
    buffers = [np.zeros((2, SHARED, 16 if shared else 0, WIDTH), np.float32)] * 2
    for length in (5, 1, 1):
        held += length
        feeds = {"x": rng.uniform(-1, 1, (2, length, packed)).astype(np.float32),
                 "pk": buffers[0], "pv": buffers[1], "total": np.array(held, np.int32),
                 "ends": np.full(2, held - 1, np.int32)}
        found = compiled.run(None, feeds)
        wanted = run_onnxruntime(model, feeds, optimized=False)
        assert_same(found[:1], wanted[:1])
        for mine, theirs in zip(found[1:], wanted[1:], strict=True):
            assert mine.shape == theirs.shape
            assert_same([mine[:, :, :held]], [theirs[:, :, :held]])
        buffers = found[1:]


def decoder() -> Any:
    """One attention layer as ONNX Runtime GenAI exports it: lengths come from the mask."""
    node = helper.make_node
    nodes = [
        node("ReduceSum", ["mask", "one"], ["counts"], keepdims=0),
        node("Sub", ["counts", "one"], ["last"]), node("Cast", ["last"], ["ends"], to=6),
        node("Shape", ["mask"], ["sizes"]), node("Gather", ["sizes", "one_"], ["total64"]),
        node("Cast", ["total64"], ["total"], to=6),
        node("GroupQueryAttention",
             ["x", "", "", "past_k", "past_v", "ends", "total", "cos", "sin"], ["y", "k", "v"],
             domain="com.microsoft", num_heads=HEADS, kv_num_heads=SHARED, do_rotary=1),
    ]
    real, whole = TensorProto.FLOAT, TensorProto.INT64
    value = helper.make_tensor_value_info
    past = ["batch", SHARED, "past", WIDTH]
    graph = helper.make_graph(
        nodes, "layer",
        [value("x", real, ["batch", "seq", (HEADS + 2 * SHARED) * WIDTH]),
         value("mask", whole, ["batch", "total"]), value("past_k", real, past),
         value("past_v", real, past)],
        [value(n, real, None) for n in OUTPUTS],
        [helper.make_tensor("one", whole, [1], [1]), helper.make_tensor("one_", whole, [], [1]),
         *(helper.make_tensor(n, real, [32, WIDTH // 2], some(32, WIDTH // 2, seed=i).ravel())
           for i, n in enumerate(("cos", "sin")))],
    )
    return helper.make_model(graph, ir_version=9, opset_imports=[
        helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)])


def test_a_decoder_with_symbolic_sizes() -> None:
    model = decoder()
    compiled = weft.compile(model)
    rng = np.random.default_rng(0)
    past = [np.zeros((2, SHARED, 0, WIDTH), np.float32)] * 2
    for length, held in ((5, 0), (1, 5), (1, 6)):
        feeds = {"x": rng.uniform(-1, 1, (2, length, (HEADS + 2 * SHARED) * WIDTH))
                 .astype(np.float32), "mask": np.ones((2, held + length), np.int64),
                 "past_k": past[0], "past_v": past[1]}
        expected = run_onnxruntime(model, feeds, optimized=False)
        assert_same(compiled.run(None, feeds), expected)
        past = expected[1:]
