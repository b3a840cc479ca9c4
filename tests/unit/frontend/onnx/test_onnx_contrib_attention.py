"""ONNX Runtime's attention operators over their attributes and masks, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.onnxruntime_peer import run_onnxruntime
from tests.unit.frontend.onnx.contrib_cases import (
    assert_agrees,
    assert_same,
    contrib_model,
    run_weft,
    some,
)

BATCH, HEADS, WIDTH = 2, 3, 4
HIDDEN = HEADS * WIDTH


def mask_of(kind: str, queries: int, keys: int, rng: np.random.Generator) -> np.ndarray | None:
    match kind:
        case "ends":
            values = rng.integers(1, keys + 1, (BATCH,))
        case "ends_and_starts":
            values = np.concatenate([rng.integers(keys // 2 + 1, keys + 1, (BATCH,)),
                                     rng.integers(0, keys // 2 + 1, (BATCH,))])
        case "keys":
            values = (rng.random((BATCH, keys)) < 0.7) | (np.arange(keys) == 0)
        case "queries_and_keys":
            values = (rng.random((BATCH, queries, keys)) < 0.7) | (np.arange(keys) == 0)
        case _:
            return None
    return values.astype(np.int32)


MASKS = ("none", "ends", "keys", "queries_and_keys")


@pytest.mark.parametrize("seed", range(30))
def test_multi_head_attention(seed: int) -> None:
    rng = np.random.default_rng(seed)
    queries, past = int(rng.integers(1, 6)), int(rng.choice([0, 0, 3]))
    form = rng.choice(["self", "cross", "split", "past"]) if not past else "past"
    keys = queries if form in ("self", "past") else int(rng.integers(1, 7))
    value_width = WIDTH if form != "self" or rng.random() < 0.5 else 5
    arrays: list[np.ndarray | None] = [some(BATCH, queries, HIDDEN, seed=seed)]
    if form == "split":
        arrays += [some(BATCH, HEADS, keys, WIDTH, seed=seed + i) for i in (1, 2)]
    else:
        arrays += [some(BATCH, keys, HIDDEN, seed=seed + 1),
                   some(BATCH, keys, HEADS * value_width, seed=seed + 2)]
    arrays.append(some(2 * HIDDEN + HEADS * value_width) if rng.random() < 0.5 else None)
    total = keys + past
    arrays.append(mask_of(str(rng.choice(MASKS)), queries, total, rng))
    bias = rng.choice(["none", "full", "row", "shared"])
    arrays.append({"none": None, "full": some(BATCH, HEADS, queries, total),
                   "row": some(1, HEADS, queries, total),
                   "shared": some(BATCH, 1, queries, total)}[bias])
    if past:
        arrays += [some(BATCH, HEADS, past, WIDTH, seed=7), some(BATCH, HEADS, past, WIDTH, seed=8)]
    while arrays[-1] is None:
        arrays.pop()
    # In cross-attention ONNX Runtime lets the last query see all keys.
    causal = int(rng.integers(0, 2)) if form in ("self", "past") else 0
    attrs: dict[str, Any] = {"num_heads": HEADS, "unidirectional": causal}
    if rng.random() < 0.5:
        attrs |= {"scale": 0.3, "mask_filter_value": -50.0}
    outputs = ("y", "k", "v") if form == "past" else ("y",)
    assert_agrees("MultiHeadAttention", arrays, outputs=outputs, compiled=seed % 20 == 0, **attrs)


@pytest.mark.parametrize("packed", ["qkv", "kv"])
def test_packed_operands_by_their_parts(packed: str) -> None:
    """ONNX Runtime unpacks these on GPUs alone; on CPUs it takes the parts."""
    q, k, v = (some(BATCH, 5, HIDDEN, seed=i) for i in range(3))
    parts = [x.reshape(BATCH, 5, HEADS, 1, WIDTH) for x in (q, k, v)]
    given = ([np.concatenate(parts, 3)] if packed == "qkv"
             else [q, np.concatenate(parts[1:], 3)])
    model, feeds = contrib_model("MultiHeadAttention", given, num_heads=HEADS)
    apart, values = contrib_model("MultiHeadAttention", [q, k, v], num_heads=HEADS)
    assert_same(run_weft(model, feeds), run_onnxruntime(apart, values, optimized=False))


@pytest.mark.sample(0.4)
@pytest.mark.parametrize("seed", range(30))
def test_attention_with_projections(seed: int) -> None:
    rng = np.random.default_rng([seed, 1])
    queries, past, inner = int(rng.integers(1, 6)), int(rng.choice([0, 3])), 6
    value_width = WIDTH if past or rng.random() < 0.5 else 5
    sizes = (HIDDEN, HIDDEN, HEADS * value_width)
    total = queries + past
    kinds = (*MASKS, "ends_and_starts")
    arrays = [some(BATCH, queries, inner, seed=seed), some(inner, sum(sizes)), some(sum(sizes)),
              mask_of(str(rng.choice(kinds)), queries, total, rng),
              some(2, BATCH, HEADS, past, WIDTH, seed=3) if past else None,
              some(1, HEADS, queries, total) if not past and rng.random() < 0.3 else None]
    while arrays[-1] is None:
        arrays.pop()
    attrs: dict[str, Any] = {"num_heads": HEADS, "unidirectional": int(rng.integers(0, 2))}
    if value_width != WIDTH:
        attrs["qkv_hidden_sizes"] = sizes
    outputs = ("y", "present") if value_width == WIDTH and rng.random() < 0.7 else ("y",)
    if past:
        outputs = ("y", "present")
    assert_agrees("Attention", arrays, constant=(1, 2), outputs=outputs,
                  compiled=seed % 20 == 0, **attrs)
