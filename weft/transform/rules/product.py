"""Operands of matrix products that are transposed: the product reads them the other way round."""

from __future__ import annotations

from weft import op
from weft.ir.expr import Call, Constant, Expr
from weft.ir.rewrite.driver import NoMatch, RuleSet, rule
from weft.ir.rewrite.pattern import any_
from weft.transform.analysis.graph import is_known_tensor, shape_of
from weft.transform.rules.transpose import UNTYPED, axes_of


def _refusal(turned: Call, x: Expr) -> NoMatch | None:
    """Why a transpose cannot go into a product."""
    if isinstance(x, Constant):
        return NoMatch("a constant is transposed when the program is compiled")
    if not is_known_tensor(turned):
        return UNTYPED
    ndim = len(shape_of(turned))
    if ndim < 2 or axes_of(turned, ndim) != (*range(ndim - 2), ndim - 1, ndim - 2):
        return NoMatch("other axes than the last two change places")
    return None


@rule(op.nn.dense(any_("x"), op.transpose(any_("w")).named("turned")), group="simplify")
def dense_of_transposed_weight(x: Expr, w: Expr, turned: Call, call: Call) -> Expr | NoMatch:
    """
    fn (%x: Tensor[(2, 3), float32], %w: Tensor[(3, 4), float32]) { nn.dense(%x, transpose(%w)) }
    =>
    fn (%x: Tensor[(2, 3), float32], %w: Tensor[(3, 4), float32]) {
      nn.dense(%x, %w, weight_layout="KN")
    }
    """
    other = {"NK": "KN", "KN": "NK"}.get(call.attrs.weight_layout)  # type: ignore[attr-defined]
    if other is None:
        return NoMatch("the weight is in panels")
    refusal = _refusal(turned, w)
    return refusal or call.replace(args=(x, w), attrs=call.attrs.replace(weight_layout=other))


@rule(op.nn.matmul(any_("a"), op.transpose(any_("b")).named("turned"))
      | op.nn.batch_matmul(any_("a"), op.transpose(any_("b")).named("turned")), group="simplify")
def product_of_transposed_right(a: Expr, b: Expr, turned: Call, call: Call) -> Expr | NoMatch:
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
    refusal = _refusal(turned, b)
    return refusal or call.replace(args=(a, b), attrs=call.attrs.replace(transpose_b=flipped))


@rule(op.nn.matmul(op.transpose(any_("a")).named("turned"), any_("b"))
      | op.nn.batch_matmul(op.transpose(any_("a")).named("turned"), any_("b")), group="simplify")
def product_of_transposed_left(a: Expr, b: Expr, turned: Call, call: Call) -> Expr | NoMatch:
    """
    fn (%a: Tensor[(3, 2), float32], %b: Tensor[(3, 4), float32]) { nn.matmul(transpose(%a), %b) }
    =>
    fn (%a: Tensor[(3, 2), float32], %b: Tensor[(3, 4), float32]) {
      nn.matmul(%a, %b, transpose_a=True)
    }
    """
    if isinstance(b, Constant):
        return NoMatch("products with constants keep their data in rows")
    flipped = not call.attrs.transpose_a  # type: ignore[attr-defined]
    refusal = _refusal(turned, a)
    return refusal or call.replace(args=(a, b), attrs=call.attrs.replace(transpose_a=flipped))


RULES = RuleSet(
    dense_of_transposed_weight, product_of_transposed_right, product_of_transposed_left
)
