"""Transposed operands of matrix multiplications become attributes of the operator."""

from __future__ import annotations

from weft import op
from weft.ir import Call, Constant, Expr, NoMatch, RuleSet, rule
from weft.ir.rewrite.pattern import any_
from weft.transform.analysis.graph import is_known_tensor, shape_of
from weft.transform.rules.transpose import UNTYPED, axes_of


def _refusal(transposed: Call, x: Expr) -> NoMatch | None:
    """The reason why a transpose cannot be absorbed, if any."""
    if isinstance(x, Constant):
        return NoMatch("the transpose of a constant is folded at compile time")
    if not is_known_tensor(transposed):
        return UNTYPED
    ndim = len(shape_of(transposed))
    if ndim < 2 or axes_of(transposed, ndim) != (*range(ndim - 2), ndim - 1, ndim - 2):
        return NoMatch("axes other than the last two are permuted")
    return None


@rule(op.nn.dense(any_("x"), op.transpose(any_("w")).named("transposed")),
      group="simplify")
def dense_of_transposed_weight(x: Expr, w: Expr, transposed: Call, call: Call) -> Expr | NoMatch:
    """
    fn (%x: Tensor[(2, 3), float32], %w: Tensor[(3, 4), float32]) { nn.dense(%x, transpose(%w)) }
    =>
    fn (%x: Tensor[(2, 3), float32], %w: Tensor[(3, 4), float32]) {
      nn.dense(%x, %w, weight_layout="KN")
    }
    """
    other = {"NK": "KN", "KN": "NK"}.get(call.attrs.weight_layout)  # type: ignore[attr-defined]
    if other is None:
        return NoMatch("the weight is packed")
    refusal = _refusal(transposed, w)
    return refusal or call.replace(args=(x, w), attrs=call.attrs.replace(weight_layout=other))


@rule(op.nn.matmul(any_("a"), op.transpose(any_("b")).named("transposed"))
      | op.nn.batch_matmul(any_("a"), op.transpose(any_("b")).named("transposed")),
      group="simplify")
def matmul_of_transposed_right(a: Expr, b: Expr, transposed: Call, call: Call) -> Expr | NoMatch:
    """
    fn (%a: Tensor[(5, 2, 3), float32], %b: Tensor[(5, 4, 3), float32]) {
      nn.batch_matmul(%a, transpose(%b, axes=(0, 2, 1)), transpose_b=False)
    }
    =>
    fn (%a: Tensor[(5, 2, 3), float32], %b: Tensor[(5, 4, 3), float32]) {
      nn.batch_matmul(%a, %b, transpose_b=True)
    }
    """
    flipped = not call.attrs.transpose_b  # type: ignore[attr-defined]
    refusal = _refusal(transposed, b)
    return refusal or call.replace(args=(a, b), attrs=call.attrs.replace(transpose_b=flipped))


@rule(op.nn.matmul(op.transpose(any_("a")).named("transposed"), any_("b"))
      | op.nn.batch_matmul(op.transpose(any_("a")).named("transposed"), any_("b")),
      group="simplify")
def matmul_of_transposed_left(a: Expr, b: Expr, transposed: Call, call: Call) -> Expr | NoMatch:
    """
    fn (%a: Tensor[(3, 2), float32], %b: Tensor[(3, 4), float32]) { nn.matmul(transpose(%a), %b) }
    =>
    fn (%a: Tensor[(3, 2), float32], %b: Tensor[(3, 4), float32]) {
      nn.matmul(%a, %b, transpose_a=True)
    }
    """
    if isinstance(b, Constant):
        return NoMatch("nn.dense reads its data untransposed")
    flipped = not call.attrs.transpose_a  # type: ignore[attr-defined]
    refusal = _refusal(transposed, a)
    return refusal or call.replace(args=(a, b), attrs=call.attrs.replace(transpose_a=flipped))


RULES = RuleSet(dense_of_transposed_weight, matmul_of_transposed_right, matmul_of_transposed_left)
