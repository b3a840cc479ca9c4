"""Names of sizes that are sums of others: one program for a decoder with a growing cache."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import weft
from tests.onnxruntime_peer import run_onnxruntime
from tests.unit.frontend.onnx.contrib_cases import assert_same
from tests.unit.frontend.onnx.onnx_cases import make_model
from weft.frontend.onnx import from_onnx
from weft.support.errors import WeftError

F32, INT32 = TensorProto.FLOAT, TensorProto.INT32


def multi_head(unidirectional: int) -> Any:
    cache = (["batch", 2, "past", 8], F32)
    rows = (["batch", "seq", 16], F32)
    node = helper.make_node(
        "MultiHeadAttention", ["q", "k", "v", "", "mask", "", "past_k", "past_v"],
        ["y", "new_k", "new_v"], domain="com.microsoft", num_heads=2,
        unidirectional=unidirectional)
    return make_model([node], {
        "q": rows, "k": rows, "v": rows, "mask": (["batch", "total"], INT32),
        "past_k": cache, "past_v": cache}, ["y", "new_k", "new_v"], output_type=F32,
        domains=["com.microsoft"])


def masked_scores() -> Any:
    """As exporters write attention: a mask of the total length is added to scores."""
    nodes = [helper.make_node("Concat", ["past", "new"], ["keys"], axis=1),
             helper.make_node("Transpose", ["keys"], ["across"], perm=[0, 2, 1]),
             helper.make_node("MatMul", ["new", "across"], ["scores"]),
             helper.make_node("Add", ["scores", "mask"], ["y"])]
    return make_model(nodes, {
        "past": (["batch", "held", 4], F32), "new": (["batch", "seq", 4], F32),
        "mask": (["batch", 1, "total"], F32)}, ["y"])


@pytest.mark.parametrize("unidirectional", [0, 1])
def test_multi_head_attention_with_a_growing_cache(unidirectional: int) -> None:
    model = multi_head(unidirectional)
    compiled = weft.compile(model)
    assert compiled.general is not None, compiled.reason
    rng = np.random.default_rng(0)
    for held, new in ((0, 5), (5, 1), (6, 1), (3, 4)):
        feeds = {n: rng.normal(size=(2, new, 16)).astype(np.float32) for n in "qkv"}
        feeds |= {n: rng.normal(size=(2, 2, held, 8)).astype(np.float32)
                  for n in ("past_k", "past_v")}
        feeds["mask"] = rng.integers(0, 2, (2, held + new)).astype(np.int32)
        feeds["mask"][:, 0] = 1
        assert_same(compiled.run(None, feeds), run_onnxruntime(model, feeds, optimized=False))
    with pytest.raises(WeftError, match=r"'mask' cannot have size 3"):
        compiled.run(None, {**feeds, "mask": np.ones((2, 3), np.int32)})


def test_a_mask_that_is_added() -> None:
    model = masked_scores()
    compiled = weft.compile(model)
    assert compiled.general is not None, compiled.reason
    for held, new in ((0, 3), (3, 1), (7, 2)):
        feeds = {"past": np.ones((2, held, 4), np.float32), "new": np.ones((2, new, 4), np.float32),
                 "mask": np.arange(2 * (held + new), dtype=np.float32).reshape(2, 1, -1)}
        assert_same(compiled.run(None, feeds), run_onnxruntime(model, feeds, optimized=False))


def test_sizes_of_the_user_stay() -> None:
    given = {"past": (1, "p", 4), "new": (1, "n", 4)}
    main = from_onnx(masked_scores(), inputs=given)["main"]
    assert str(main.params[2].checked_type.shape[2]) in ("n + p", "p + n")
    with pytest.raises(WeftError):
        from_onnx(masked_scores(), inputs={**given, "mask": (1, 1, 6)})


def test_two_names_are_not_one() -> None:
    """Which of two sizes is 1 is for the caller to know."""
    add = helper.make_node("Add", ["a", "b"], ["y"])
    model = make_model([add], {"a": (["n"], F32), "b": (["m"], F32)}, ["y"])
    with pytest.warns(weft.FallbackWarning, match="compiled for each new set of input shapes"):
        compiled = weft.compile(model)
    found = compiled.run(None, {"a": np.ones(3, np.float32), "b": np.ones(1, np.float32)})
    np.testing.assert_array_equal(found[0], np.full(3, 2, np.float32))
