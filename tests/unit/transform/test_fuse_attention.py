"""Attention written in basic operators is fused, and only where the value stays the same."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.unit.transform.helpers import check_example, check_values, op_calls
from weft import op
from weft.ir.expr import Call, Constant, Expr, Function, Tuple, const, var
from weft.ir.module import IRModule
from weft.ir.shape import Dim, SymDim, dim_mul
from weft.ir.typing.infer import infer_type
from weft.ir.visitor import post_order
from weft.op.nn.attention import AttentionAttrs
from weft.transform import FuseAttention
from weft.transform.analysis.graph import tensor_type_of

HEADS, ROWS, KEYS, DEPTH = 4, 5, 7, 6
Q, K = (2, HEADS, ROWS, DEPTH), (2, HEADS, KEYS, DEPTH)
LOWEST = float(np.finfo(np.float32).min)


def test_example() -> None:
    check_example(FuseAttention())


def _fused(result: Expr, *params: Expr) -> tuple[Call, IRModule]:
    """The one call of attention after the pass, whose values are those from before."""
    before = infer_type(IRModule.from_expr(Function(params, result)))
    after = FuseAttention()(before)
    check_values(before, after)
    calls = [e for e in post_order(after["main"]) if "attention" in str(getattr(e, "op", ""))]
    assert len(calls) == 1, op_calls(after)
    assert "nn.softmax" not in op_calls(after)
    return calls[0], after


def _left(result: Expr, *params: Expr) -> None:
    before = infer_type(IRModule.from_expr(Function(params, result)))
    assert op_calls(FuseAttention()(before)) == op_calls(before)


def _stack(x: Expr, *shape: int) -> Expr:
    return op.reshape(x, newshape=(2 * HEADS, *shape))


def _scores(q: Expr, k: Expr) -> Expr:
    """As frameworks export it: keys transposed, stacks of rank three."""
    keys = _stack(op.transpose(k, axes=(0, 1, 3, 2)), DEPTH, KEYS)
    product = op.nn.batch_matmul(_stack(q, ROWS, DEPTH), keys, transpose_b=False)
    return op.reshape(product, newshape=(2, HEADS, ROWS, KEYS))


def _weighted(weights: Expr, v: Expr) -> Expr:
    return op.nn.batch_matmul(_stack(weights, ROWS, KEYS), _stack(v, KEYS, DEPTH),
                              transpose_b=False)


def _attrs(call: Call) -> AttentionAttrs:
    assert isinstance(call.attrs, AttentionAttrs)
    return call.attrs


@pytest.fixture
def qkv() -> tuple[Expr, Expr, Expr]:
    return var("q", Q), var("k", K), var("v", K)


def test_scale_of_scores_and_operands(qkv) -> None:
    q, k, v = qkv
    keys = op.multiply(const(3.0), op.transpose(k, axes=(0, 1, 3, 2)))
    queries = op.multiply(_stack(q, ROWS, DEPTH), const(0.5))
    scores = op.nn.batch_matmul(queries, _stack(keys, DEPTH, KEYS), transpose_b=False)
    call, after = _fused(_weighted(op.nn.softmax(op.divide(scores, const(8.0))), v), *qkv)
    assert math.isclose(_attrs(call).scale, 0.5 * 3 / 8)
    assert set(op_calls(after)) == {"reshape", "nn.attention"}


@pytest.mark.parametrize("offset", [0, 2])
@pytest.mark.parametrize("hidden", [-math.inf, LOWEST, -1e4])
def test_a_constant_mask_of_the_future_is_causal(qkv, offset, hidden) -> None:
    seen = np.tri(ROWS, KEYS, offset, dtype=bool)[None, None]
    scores = op.where(Constant(seen), _scores(*qkv[:2]), const(hidden))
    call, _ = _fused(_weighted(op.nn.softmax(scores, axis=3), qkv[2]), *qkv)
    assert call.op is op.nn.attention
    assert (_attrs(call).causal, _attrs(call).offset) == (True, offset)
    assert _attrs(call).unseen == np.float32(hidden)


def test_constant_numbers_that_hide_the_future(qkv) -> None:
    added = np.where(np.tri(ROWS, KEYS, dtype=bool), 0, LOWEST).astype(np.float32)
    scores = op.add(Constant(np.broadcast_to(added, (2, 1, ROWS, KEYS)).copy()), _scores(*qkv[:2]))
    call, _ = _fused(_weighted(op.nn.softmax(scores), qkv[2]), *qkv)
    assert _attrs(call).causal
    assert call.op is op.nn.attention


@pytest.mark.parametrize("data", [np.zeros((KEYS,), np.float32), np.ones((1, 1, KEYS), bool)],
                         ids=str)
def test_masks_that_hide_nothing(qkv, data) -> None:
    mask, scores = Constant(data), _scores(*qkv[:2])
    masked = op.where(mask, scores, const(LOWEST)) if data.dtype == bool else op.add(scores, mask)
    call, _ = _fused(_weighted(op.nn.softmax(masked), qkv[2]), *qkv)
    assert call.op is op.nn.attention
    assert not _attrs(call).causal


def test_masks_known_at_run_time(qkv) -> None:
    padding, bias = var("padding", (2, 1, 1, KEYS), "bool"), var("bias", (HEADS, ROWS, KEYS))
    scores = _scores(*qkv[:2])
    hidden = op.where(padding, const(-1e9), scores)
    call, _ = _fused(_weighted(op.nn.softmax(hidden), qkv[2]), *qkv, padding)
    assert call.op is op.nn.masked_attention
    call, _ = _fused(_weighted(op.nn.softmax(op.add(bias, scores)), qkv[2]), *qkv, bias)
    assert call.args[3] is bias


def test_future_behind_a_mask(qkv) -> None:
    bias = var("bias", (2, 1, 1, KEYS))
    seen = Constant(np.tri(ROWS, KEYS, 2, dtype=bool))
    scores = op.where(seen, op.add(_scores(*qkv[:2]), bias), const(-math.inf))
    call, _ = _fused(_weighted(op.nn.softmax(scores), qkv[2]), *qkv, bias)
    assert _attrs(call).causal
    assert call.op is op.nn.masked_attention


def test_rows_without_a_softmax_are_zero(qkv) -> None:
    mask = Constant(np.tri(ROWS, KEYS, -1, dtype=bool))  # the first row sees nothing
    weights = op.nn.softmax(op.where(mask, _scores(*qkv[:2]), const(-math.inf)))
    guarded = op.where(op.isnan(weights), const(0.0), weights)
    call, _ = _fused(_weighted(guarded, qkv[2]), *qkv)
    assert _attrs(call).undefined == "zero"


@pytest.mark.parametrize("is_constant", [True, False])
def test_rows_that_a_mask_hides_are_zero(qkv, is_constant) -> None:
    """As the function body of ONNX's Attention says it."""
    added = np.where(np.arange(ROWS)[:, None] > 1, np.zeros(KEYS), -np.inf).astype(np.float32)
    added[3] = np.linspace(-1, 1, KEYS)
    mask = Constant(added) if is_constant else var("mask", (ROWS, KEYS))
    guard = (Constant(added.max(axis=1, keepdims=True) == -np.inf) if is_constant
             else op.equal(op.max(mask, axis=(1,), keepdims=True), const(-math.inf)))
    weights = op.nn.softmax(op.add(_scores(*qkv[:2]), mask))
    params = [*qkv, *([] if is_constant else [mask])]
    call, _ = _fused(_weighted(op.where(guard, const(0.0), weights), qkv[2]), *params)
    assert _attrs(call).undefined == "zero_if_hidden"
    other = op.where(Constant(np.arange(ROWS)[:, None] > 2), const(0.0), weights)
    _left(_weighted(other, qkv[2]), *params)


@pytest.mark.parametrize("by_repeat", [True, False])
def test_heads_that_are_repeated_are_read_once(by_repeat) -> None:
    q, k, v = var("q", Q), var("k", (2, 2, KEYS, DEPTH)), var("v", (2, 2, KEYS, DEPTH))

    def repeated(x: Expr) -> Expr:
        if by_repeat:
            return op.repeat(x, repeats=2, axis=1)
        wide = op.broadcast_to(op.expand_dims(x, axis=2), shape=(2, 2, 2, KEYS, DEPTH))
        return op.reshape(wide, newshape=K)

    scores = _scores(q, repeated(k))
    call, after = _fused(_weighted(op.nn.softmax(scores), repeated(v)), q, k, v)
    assert call.args[1].checked_type == k.annotation
    assert not {"broadcast_to", "repeat"} & set(op_calls(after))


def test_what_is_used_elsewhere_stays(qkv) -> None:
    scores = _scores(*qkv[:2])
    weights = op.nn.softmax(scores)
    _left(Tuple((_weighted(weights, qkv[2]), weights)), *qkv)
    _left(Tuple((_weighted(weights, qkv[2]), scores)), *qkv)


def test_other_subgraphs_are_not_fused(qkv) -> None:
    scores = _scores(*qkv[:2])
    _left(_weighted(op.nn.softmax(scores, axis=2), qkv[2]), *qkv)
    _left(_weighted(op.nn.softmax(op.exp(scores)), qkv[2]), *qkv)
    hidden = op.add(op.where(Constant(np.tri(ROWS, KEYS, dtype=bool)), scores, const(-1.0)),
                    var("m", (KEYS,)))
    _left(_weighted(op.nn.softmax(hidden), qkv[2]), *qkv, hidden.args[1])


def test_symbolic_sizes() -> None:
    """Batch and lengths are symbols; heads are stacked on the batch, as frameworks do."""
    batch, rows, keys = (SymDim.symbol(name) for name in "bls")
    q = var("q", ("b", HEADS, "l", DEPTH))
    k, v = (var(name, ("b", HEADS, "s", DEPTH)) for name in "kv")
    mask = var("mask", ("b", 1, 1, "s"))

    def stack(x: Expr, *shape: Dim) -> Expr:
        return op.reshape(x, newshape=(dim_mul(batch, HEADS), *shape))

    swapped = stack(op.transpose(k, axes=(0, 1, 3, 2)), DEPTH, keys)
    product = op.nn.batch_matmul(stack(q, rows, DEPTH), swapped, transpose_b=False)
    scores = op.reshape(product, newshape=(batch, HEADS, rows, keys))
    weights = op.nn.softmax(op.add(op.multiply(scores, const(0.5)), mask))
    result = op.nn.batch_matmul(stack(weights, rows, keys), stack(v, keys, DEPTH),
                                transpose_b=False)
    before = infer_type(IRModule.from_expr(Function((q, k, v, mask), result)))
    after = FuseAttention()(before)
    (call,) = (e for e in post_order(after["main"])
               if isinstance(e, Call) and e.op is op.nn.masked_attention)
    assert _attrs(call).scale == 0.5
    assert [tensor_type_of(x).shape for x in call.args[:2]] == [
        (batch, HEADS, rows, DEPTH), (batch, HEADS, keys, DEPTH)]
    assert call.args[3] is after["main"].params[3]
    assert "nn.softmax" not in op_calls(after)
