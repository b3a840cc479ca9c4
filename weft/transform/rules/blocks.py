"""Weights quantised in blocks stay in their blocks: their readers take the place of the floats."""

from __future__ import annotations

from typing import Any

from weft import op
from weft.ir import Call, Expr, NoMatch, RuleSet, rule
from weft.ir.rewrite.pattern import any_
from weft.transform.analysis.graph import is_known_tensor, shape_of, tensor_type_of

_MATRIX = 2


def _product(x: Expr, blocks: Expr, floats: Call, call: Call) -> Expr | NoMatch:
    if not all(map(is_known_tensor, (x, floats, call))):
        return NoMatch("a type is unknown")
    if len(shape_of(floats)) != _MATRIX:
        return NoMatch("the weight is not a matrix")
    types = {tensor_type_of(e).dtype for e in (x, floats, call)}
    if len(types) > 1:
        return NoMatch("the product has another dtype than its operands")
    kind = floats.attrs.format  # type: ignore[attr-defined]
    return op.nn.block_quantized_dense(x, blocks, format=kind, span=call.span)


@rule(op.nn.dense(any_("x"), op.nn.block_dequantize(any_("blocks")).named("floats")),
      group="simplify")
def dense_of_blocks(x: Expr, blocks: Expr, floats: Call, call: Call) -> Expr | NoMatch:
    """
    fn (%x: Tensor[(2, 32), float32], %w: Tensor[(3, 18), uint8]) {
      nn.dense(%x, nn.block_dequantize(%w, format="q4_0"))
    }
    =>
    fn (%x: Tensor[(2, 32), float32], %w: Tensor[(3, 18), uint8]) {
      nn.block_quantized_dense(%x, %w, format="q4_0")
    }
    """
    attrs: Any = call.attrs
    if attrs.weight_layout != "NK":
        return NoMatch("the blocks are along N")
    return _product(x, blocks, floats, call)


@rule(op.nn.matmul(any_("x"), op.nn.block_dequantize(any_("blocks")).named("floats")),
      group="simplify")
def matmul_of_blocks(x: Expr, blocks: Expr, floats: Call, call: Call) -> Expr | NoMatch:
    """
    fn (%x: Tensor[(2, 32), float32], %w: Tensor[(3, 34), uint8]) {
      nn.matmul(%x, nn.block_dequantize(%w, format="q8_0"), transpose_b=True)
    }
    =>
    fn (%x: Tensor[(2, 32), float32], %w: Tensor[(3, 34), uint8]) {
      nn.block_quantized_dense(%x, %w, format="q8_0")
    }
    """
    attrs: Any = call.attrs
    if attrs.transpose_a or not attrs.transpose_b:
        return NoMatch("the blocks are not along K")
    return _product(x, blocks, floats, call)


@rule(op.take(op.nn.block_dequantize(any_("blocks")).named("floats"), any_("ids")),
      group="simplify")
def rows_of_blocks(blocks: Expr, ids: Expr, floats: Call, call: Call) -> Expr | NoMatch:
    """
    fn (%w: Tensor[(9, 18), uint8], %ids: Tensor[(2,), int64]) {
      take(nn.block_dequantize(%w, format="q4_0"), %ids, axis=0)
    }
    =>
    fn (%w: Tensor[(9, 18), uint8], %ids: Tensor[(2,), int64]) {
      nn.block_dequantize(take(%w, %ids, axis=0), format="q4_0")
    }
    """
    attrs: Any = call.attrs
    if not is_known_tensor(blocks) or attrs.axis != 0 or len(shape_of(blocks)) != _MATRIX:
        return NoMatch("not whole rows of a matrix are read")
    return floats.replace(args=(call.replace(args=(blocks, ids), checked_type=None),),
                          checked_type=None)


RULES = RuleSet(dense_of_blocks, matmul_of_blocks, rows_of_blocks)
