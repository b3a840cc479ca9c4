"""Attention on CUDA in the emulator, and the code of large heads."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

import numpy as np
import pytest

from tests.unit.cuda.strategy.emulation import check_emulated
from tests.unit.cuda.strategy.products import A100, H100, assembled, built, instructions, spills
from tests.unit.cuda.strategy.spec_cases import check_case
from tests.unit.strategy.kernels import primitive
from weft import op
from weft.ir.expr import Call, Function, var
from weft.ir.op import OPS
from weft.strategy.build_tensors import anchor_of
from weft.strategy.common.attention import causal_offset, dense_attention
from weft.strategy.cuda.attention.decide import FlashPlan, decide_attention
from weft.strategy.cuda.attention.flash import FlashLoops
from weft.strategy.implementation import Implementation


def attention(queries: tuple[int, int, int], keys: tuple[int, int], depth: int, *,
              width: int | None = None, dtype: str = "float16", mask: tuple[int, ...] = (),
              mask_dtype: str = "bool", **attrs: object) -> Function:
    """Attention of (batch, heads, rows) with (shared heads, keys)."""
    batch, heads, rows = queries
    shared, count = keys
    q, k = var("q", (*queries, depth), dtype), var("k", (batch, shared, count, depth), dtype)
    v = var("v", (batch, shared, count, width or depth), dtype)
    assert heads % shared == 0
    assert rows
    if mask:
        m = var("m", mask, mask_dtype)
        call = op.nn.masked_attention(q, k, v, m, scale=depth**-0.5, **attrs)
        return primitive([q, k, v, m], call)
    return primitive([q, k, v], op.nn.attention(q, k, v, scale=depth**-0.5, **attrs))


def call_of(function: Function) -> Call:
    call = anchor_of(function)
    assert call is not None
    return call


@pytest.mark.sample(0.4)
@pytest.mark.parametrize(("function", "plan"), [
    (attention((1, 2, 70), (2, 77), 32), FlashPlan(4, 64)),
    (attention((1, 1, 100), (1, 100), 64, causal=True), FlashPlan(4, 64)),
    (attention((1, 1, 20), (1, 100), 64, causal=True, offset=80), FlashPlan(4, 32)),
    (attention((2, 8, 9), (2, 50), 32), FlashPlan(4, 32)),
    (attention((1, 2, 20), (2, 40), 24, width=40), FlashPlan(2, 32)),
    (attention((1, 2, 20), (2, 40), 64, dtype="bfloat16"), FlashPlan(2, 32)),
    (attention((1, 8, 2), (2, 300), 64, causal=True, offset=298), FlashPlan(1, 64, 4)),
    (attention((1, 1, 17), (1, 40), 256), FlashPlan(2, 32)),
    (attention((1, 2, 20), (2, 40), 32, mask=(20, 40)), FlashPlan(2, 32)),
    (attention((1, 2, 20), (2, 40), 32, mask=(1, 2, 20, 40), mask_dtype="float32"),
     FlashPlan(2, 32)),
    (attention((1, 1, 10), (1, 10), 32, causal=True, offset=-3, undefined="zero"),
     FlashPlan(1, 32, 2)),
], ids=["tails", "causal", "cached keys", "groups", "sizes", "bfloat16", "decode", "depth 256",
        "mask", "added mask", "hidden"])
def test_values_without_bank_conflicts(function, plan):
    compute = functools.partial(dense_attention, offset=causal_offset(call_of(function)),
                                loops=functools.partial(FlashLoops, plan))
    implementation = Implementation("flash", lambda _: None, compute)
    for counts in check_emulated(function, implementation, rtol=1e-2, atol=4e-3):
        assert counts is not None
        assert sum(memory.conflicts for memory in counts.memory) == 0


@pytest.mark.parametrize("depth", [64, 256])
def test_every_head_size_is_assembled_without_spills(depth, tmp_path: Path):
    function = attention((4, 16, 2048), (16, 2048), depth, causal=True)
    for target in (A100, H100):
        kernel = built(function, target)
        found = instructions(kernel)
        assert found["mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"] > 0
        assert found["bar.sync"] == 1
        assert spills(assembled(kernel, tmp_path)) == 0


def test_decoding_divides_the_keys_among_blocks():
    plan = decide_attention(call_of(attention((1, 8, 1), (2, 8192), 128)), H100).plan.flash
    assert plan is not None
    assert plan.splits >= 8
    prompt = attention((8, 32, 2048), (8, 2048), 128)
    plan = decide_attention(call_of(prompt), H100).plan.flash
    assert plan is not None
    assert plan.splits == 1


def test_float32_is_products_around_a_softmax():
    decision = decide_attention(call_of(attention((1, 2, 20), (2, 40), 32, dtype="float32")), A100)
    assert decision.algorithm == "unfused"
    assert "float16 or bfloat16" in str(decision)


@pytest.mark.sample(0.3, 1)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["nn.attention", "nn.masked_attention", "nn.cached_attention"])
def test_every_case_of_the_operators_in_float16(name):
    for one in OPS.get(name).cases:
        half = dataclasses.replace(one, dtypes=("float16",) * 3)
        done = list(check_case(OPS.get(name), half, A100, "flash"))
        assert done or 0 in np.concatenate([np.atleast_1d(i) for i in one.inputs[:1]])
