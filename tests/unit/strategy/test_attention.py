"""Fused attention against its reference: tails, blocks, masks, groups of heads, special rows."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.unit.strategy.kernels import SMALL_CPU, WIDE_CPU, check, primitive
from tests.unit.transform.helpers import op_calls
from weft import op
from weft.compiler.options import CompileOptions
from weft.compiler.pipeline import run_pipeline
from weft.ir.expr import Function, var
from weft.ir.module import IRModule
from weft.strategy import lower_function
from weft.strategy.cpu.attention import cost as attention_plan
from weft.strategy.cpu.attention.cost import AttentionShape, plan_tiles
from weft.strategy.cpu.attention.decide import AttentionAlgorithm
from weft.strategy.decision import decision_of
from weft.transform.analysis.reference import evaluate

QUERY, KEY, VALUE = (2, 2, 11, 5), (2, 1, 19, 5), (2, 1, 19, 3)


def _operands(query=QUERY, key=KEY, value=VALUE, dtype="float32"):
    return [var(n, s, dtype) for n, s in zip("qkv", (query, key, value), strict=True)]


@pytest.fixture
def small_blocks(monkeypatch) -> None:
    """Several blocks of keys, and a last one with fewer, for sequences that tests can afford."""
    monkeypatch.setattr(attention_plan, "smallest_block", lambda _: 8)


@pytest.mark.parametrize(("attrs", "target"), [
    ({"scale": 0.5}, SMALL_CPU), ({"scale": 0.5}, WIDE_CPU), ({"causal": True}, SMALL_CPU),
    ({"causal": True, "offset": 8}, WIDE_CPU),
    ({"causal": True, "offset": -3, "undefined": "zero_if_hidden"}, SMALL_CPU),
    ({"causal": True, "fill": -1e4}, WIDE_CPU),
    ({"causal": True, "offset": -2, "fill": -1e4}, SMALL_CPU),
])  # fmt: skip
@pytest.mark.usefixtures("small_blocks")
def test_loops_agree_with_the_reference(attrs, target) -> None:
    operands = _operands()
    kernel = check(primitive(operands, op.nn.attention(*operands, **attrs)), target)
    assert kernel.implementation == "nn.attention.cpu.fused"


@pytest.mark.parametrize(("shape", "dtype"), [
    ((19,), "float32"), ((2, 1, 1, 19), "bool"), ((11, 19), "bool"), ((2, 11, 19), "float32"),
    ((1, 1, 11, 1), "float32")], ids=str)
@pytest.mark.usefixtures("small_blocks")
def test_masks_broadcast(shape, dtype) -> None:
    operands = [*_operands(), var("mask", shape, dtype)]
    call = op.nn.masked_attention(*operands, causal=len(shape) == 1, offset=3)
    kernel = check(primitive(operands, call), WIDE_CPU)
    assert kernel.implementation == "nn.masked_attention.cpu.fused"


@pytest.mark.parametrize("is_causal", [True, False])
def test_the_last_tile_may_be_narrower(is_causal) -> None:
    shape = AttentionShape(1, 37, 21, 6, 4, 2 if is_causal else None)
    tail = plan_tiles(shape, SMALL_CPU).tail
    assert tail is not None
    assert 37 % plan_tiles(shape, SMALL_CPU).tile <= tail.tile
    operands = [*_operands((1, 37, 6), (1, 21, 6), (1, 21, 4)), var("mask", (37, 21))]
    call = op.nn.masked_attention(*operands, causal=is_causal, offset=2)
    check(primitive(operands, call), SMALL_CPU)


@pytest.mark.parametrize(("dtype", "query"), [("float16", QUERY), ("bfloat16", QUERY),
                                              ("float16", (2, 2, 1, 5))], ids=str)
@pytest.mark.usefixtures("small_blocks")
def test_narrow_floats_are_summed_in_float32(dtype, query) -> None:
    operands = _operands(query, dtype=dtype)
    rtol = 2e-3 if dtype == "float16" else 2e-2
    check(primitive(operands, op.nn.attention(*operands)), WIDE_CPU, rtol=rtol)


@pytest.mark.parametrize(("query", "key", "value", "attrs", "target"), [
    ((2, 2, 1, 21), (2, 2, 37, 21), (2, 2, 37, 19), {"scale": 0.5}, WIDE_CPU),
    ((2, 4, 1, 16), (2, 2, 32, 16), (2, 2, 32, 32), {"scale": 0.5}, WIDE_CPU),
    ((1, 4, 2, 9), (1, 2, 13, 9), (1, 2, 13, 70), {"causal": True, "offset": 10}, SMALL_CPU),
    ((3, 2, 8), (3, 5, 8), (3, 5, 1), {"causal": True, "fill": -1e4}, SMALL_CPU),
    ((1, 3), (1, 3), (1, 2), {}, WIDE_CPU),
])  # fmt: skip
def test_few_queries_read_keys_and_values_once(query, key, value, attrs, target) -> None:
    operands = _operands(query, key, value)
    kernel = check(primitive(operands, op.nn.attention(*operands, **attrs)), target)
    assert kernel.implementation == "nn.attention.cpu.decode"


@pytest.mark.parametrize(("shape", "dtype"), [((19,), "float32"), ((2, 2, 1, 19), "bool"),
                                              ((2, 1, 2, 1), "float32")], ids=str)
def test_masks_of_few_queries(shape, dtype) -> None:
    operands = [*_operands((2, 2, 2, 5)), var("mask", shape, dtype)]
    kernel = check(primitive(operands, op.nn.masked_attention(*operands)), SMALL_CPU)
    assert kernel.implementation == "nn.masked_attention.cpu.decode"


def _run(call, operands, *arrays) -> np.ndarray:
    return weft.compile(Function(tuple(operands), call))(*arrays)


def _arrays(*shapes):
    rng = np.random.default_rng(3)
    return [rng.standard_normal(s).astype(np.float32) for s in shapes]


@pytest.mark.parametrize(("query", "key"), [((3, 93, 40), (3, 93, 40)), ((2, 70, 16), (2, 300, 16)),
                                            ((1, 8, 17, 8), (1, 2, 131, 8))], ids=str)
def test_machine_code_agrees_with_the_reference(query, key) -> None:
    operands = _operands(query, key, key)
    arrays = _arrays(query, key, key)
    got = _run(op.nn.attention(*operands, scale=0.3, causal=True, offset=5), operands, *arrays)
    wanted = op.nn.attention.reference(*arrays, scale=0.3, causal=True, offset=5)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rows", [3, 20])
@pytest.mark.parametrize("undefined", ["nan", "zero_if_hidden", "zero"])
def test_queries_without_a_softmax(undefined, rows) -> None:
    """One query sees nothing, one has a score that is no number, one an infinite score."""
    query, shape = (1, rows, 8), (1, 20, 8)
    operands = [*_operands(query, shape, shape), var("mask", (rows, 20), "bool")]
    q, k, v = _arrays(query, shape, shape)
    q[0, 2, 0], q[0, rows - 3, :] = np.nan, np.inf
    mask = np.ones((rows, 20), bool)
    mask[1], mask[:, 7] = False, False
    got = _run(op.nn.masked_attention(*operands, undefined=undefined), operands, q, k, v, mask)
    wanted = op.nn.masked_attention.reference(q, k, v, mask, undefined=undefined)
    assert np.isnan(wanted[0, 1]).all() == (undefined == "nan")
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_bits_do_not_depend_on_threads() -> None:
    shape = (4, 150, 16)
    operands = _operands(shape, shape, shape)
    arrays = _arrays(shape, shape, shape)
    function = Function(tuple(operands), op.nn.attention(*operands, causal=True))
    found = [weft.compile(function, threads=n)(*arrays) for n in (1, 2, 5)]
    assert all(np.array_equal(found[0], other) for other in found[1:])


@pytest.mark.parametrize(("shape", "is_fused"), [((4, 33, 80), False), ((12, 128, 64), True),
                                                 ((12, 1, 64), True), ((4, 15, 32), True)], ids=str)
def test_lanes_that_would_be_empty_keep_plain_products(shape, is_fused) -> None:
    operands = _operands(shape, shape, shape)
    module = IRModule.from_expr(Function(tuple(operands), op.nn.attention(*operands)))
    after = run_pipeline(module, CompileOptions.make(WIDE_CPU), stop_at="optimized")
    assert ("nn.attention" in op_calls(after)) == is_fused
    assert ("nn.softmax" in op_calls(after)) != is_fused


@pytest.mark.parametrize(("mask", "attrs", "is_merged"), [
    (None, {}, True), ((2, 1, 1, 21), {}, True), ((21,), {"causal": True, "offset": 20}, True),
    (None, {"causal": True, "offset": 3, "fill": -9.0}, True), ((1, 12, 1, 21), {}, False),
    ((2, 21), {}, False), ((21,), {"causal": True, "offset": 3}, False)], ids=str)
def test_queries_that_share_keys_fill_lanes_together(mask, attrs, is_merged) -> None:
    shapes = ((2, 12, 2, 8), (2, 1, 21, 8), (2, 1, 21, 5))
    operands = _operands(*shapes)
    arrays = _arrays(*shapes)
    call = op.nn.attention(*operands, **attrs)
    if mask is not None:
        operands.append(var("mask", mask))
        arrays += _arrays(mask)
        call = op.nn.masked_attention(*operands, **attrs)
    module = IRModule.from_expr(Function(tuple(operands), call))
    after = run_pipeline(module, CompileOptions.make(WIDE_CPU), stop_at="optimized")
    assert ("reshape" in op_calls(after)) == is_merged
    wanted = call.op.reference(*arrays, **attrs)
    np.testing.assert_allclose(evaluate(after, arrays), wanted, rtol=1e-5, atol=1e-5)


def test_profiles_count_the_keys_that_are_seen() -> None:
    operands = _operands((2, 3, 4), (2, 5, 4), (2, 5, 6))
    kernel = lower_function(primitive(operands, op.nn.attention(*operands)), WIDE_CPU)
    assert kernel.flops == 2 * 2 * 3 * 5 * (4 + 6)
    past = op.nn.attention(*operands, causal=True, offset=1)
    kernel = lower_function(primitive(operands, past), WIDE_CPU)
    assert kernel.flops == 2 * 2 * (2 + 3 + 4) * (4 + 6)


def test_few_queries_take_few_vectors() -> None:
    """Lanes without a query are wasted work: the tile is as wide as the queries fill."""
    def plan(queries: int) -> int:
        return plan_tiles(AttentionShape(12, queries, 512, 64, 64), WIDE_CPU).vectors

    assert plan(9) == 1
    assert plan(33) in (1, 3)
    assert plan(128) > 1


@pytest.mark.parametrize(("query", "key", "dtype", "algorithm", "reasons"), [
    ((1, 12, 1, 64), (1, 12, 128, 64), "float32", "decode",
     {"unfused": "so few rows", "fused": "times as long", "generic": "times as long"}),
    ((1, 12, 128, 64), (1, 12, 128, 64), "float32", "fused",
     {"decode": "128 queries share keys", "unfused": "below 85%", "generic": "times as long"}),
    ((1, 1, 1024, 8), (1, 1, 17, 8), "float16", "fused", {"unfused": "narrow float"}),
    ((1, 1, 17, 256), (1, 1, 512, 256), "float32", "unfused", {"fused": "times as long"}),
    ((1, 1, 4, 8), (1, 1, 4, 8), "float64", "generic", {"fused": "float64", "decode": "float64"}),
    ((1, 1, 4, 8), (1, 1, 0, 8), "float32", "generic", {"decode": "empty"}),
])  # fmt: skip
def test_one_decision_names_the_algorithm_and_why_the_others_lost(
    query, key, dtype, algorithm, reasons
) -> None:
    operands = _operands(query, key, key, dtype)
    call = primitive(operands, op.nn.attention(*operands)).body
    decision = decision_of(call, WIDE_CPU)
    assert decision.algorithm == algorithm, str(decision)
    found = {r.algorithm: r.reason for r in decision.rejected}
    assert set(found) == set(AttentionAlgorithm) - {algorithm}
    for name, reason in reasons.items():
        assert reason in found[name]
    estimates = [r.seconds for r in decision.rejected if r.seconds is not None]
    assert decision.seconds > 0
    assert all(seconds > 0 for seconds in estimates)
