"""Distributive law: sums of constant multiples of one value become one multiple."""

from __future__ import annotations

import numpy as np

from weft import op
from weft.ir import Call, Constant, Expr, NoMatch, RuleSet, rule
from weft.ir.rewrite.pattern import any_, const
from weft.transform.analysis.graph import known_type
from weft.transform.rules.algebraic import SPREADS


def _summed(x: Expr, a: np.ndarray, b: np.ndarray, like: Constant, call: Call) -> Expr | NoMatch:
    """``x * (a + b)``, if it has the type of ``call``."""
    if np.broadcast_shapes(a.shape, b.shape) not in (a.shape, b.shape):
        return NoMatch("the outer product would be a larger constant")
    dtype = like.data.dtype
    if like.tensor_type.dtype.is_float:
        refusal = _rounds_worse(a, b)
        if refusal is not None:
            return refusal
    elif dtype.kind not in "iu":
        return NoMatch("NumPy does not wrap integers of this dtype")
    with np.errstate(over="ignore"):  # products of integers wrap as their sum does
        total = np.asarray(np.add(a, b), dtype)
    if like.tensor_type.dtype.is_float and not np.all(np.isfinite(total.astype(np.float64))):
        return NoMatch("the sum of the factors is not finite")
    return call.replace(op=op.multiply, args=(x, Constant(total, span=like.span)))


def _rounds_worse(a: np.ndarray, b: np.ndarray) -> NoMatch | None:
    """The reason why floats are not combined, if any.

    With factors of one sign, the sum is infinite where a product is, and rounds once less. With
    opposite signs or zeros it could be a number where infinite products give NaN.
    """
    left, right = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(all="ignore"):
        same = np.sign(left) * np.sign(right)
    if not np.all(same == 1):
        return NoMatch("the factors have different signs")
    return None


def _same_types(call: Call, *products: Expr) -> bool:
    """Whether all products have the type of ``call``, so that no factor broadcasts the value."""
    return known_type(call) is not None and all(
        known_type(p) == known_type(call) for p in products)


@rule(
    op.add(op.multiply(any_("x"), const("a")).named("left"),
           op.multiply(any_("x"), const("b")).named("right")),
    group="simplify",
)
def multiples_add_up(x: Expr, a: Constant, b: Constant, left: Call, right: Call, call: Call
                     ) -> Expr | NoMatch:
    """
    fn (%x: Tensor[(4,), float32]) { add(multiply(%x, 12f), multiply(%x, 2f)) }
    =>
    fn (%x: Tensor[(4,), float32]) { multiply(%x, 14f) }
    """
    if not _same_types(call, left, right):
        return SPREADS
    return _summed(x, a.data, b.data, b, call)


@rule(op.add(op.multiply(any_("x"), const("a")).named("left"), any_("x")), group="simplify")
def multiple_and_value_add_up(x: Expr, a: Constant, left: Call, call: Call) -> Expr | NoMatch:
    """
    fn (%x: Tensor[(4,), float32]) { add(multiply(%x, 3f), %x) }
    =>
    fn (%x: Tensor[(4,), float32]) { multiply(%x, 4f) }
    """
    if not _same_types(call, left, x):
        return SPREADS
    return _summed(x, a.data, np.ones((), a.data.dtype), a, call)


@rule(
    op.subtract(op.multiply(any_("x"), const("a")).named("left"),
                op.multiply(any_("x"), const("b")).named("right")),
    group="simplify",
)
def multiples_are_subtracted(x: Expr, a: Constant, b: Constant, left: Call, right: Call, call: Call
                             ) -> Expr | NoMatch:
    """
    fn (%x: Tensor[(4,), int32]) { subtract(multiply(%x, 12), multiply(%x, 2)) }
    =>
    fn (%x: Tensor[(4,), int32]) { multiply(%x, 10) }
    """
    if not _same_types(call, left, right):
        return SPREADS
    if a.tensor_type.dtype.is_float:
        return NoMatch("infinite products may cancel to NaN")
    with np.errstate(over="ignore"):
        return _summed(x, a.data, np.asarray(-b.data, b.data.dtype), b, call)


@rule(op.subtract(op.multiply(any_("x"), const("a")).named("product"), any_("x")),
      op.subtract(any_("x"), op.multiply(any_("x"), const("a")).named("product")), group="simplify")
def multiple_and_value_are_subtracted(x: Expr, a: Constant, product: Call, call: Call
                                      ) -> Expr | NoMatch:
    """
    fn (%x: Tensor[(4,), int32]) { subtract(%x, subtract(multiply(%x, 12), %x)) }
    =>
    fn (%x: Tensor[(4,), int32]) { multiply(%x, -10) }
    """
    if not _same_types(call, product, x):
        return SPREADS
    if a.tensor_type.dtype.is_float:
        return NoMatch("an infinite product may cancel to NaN")
    one = np.ones((), a.data.dtype)
    with np.errstate(over="ignore"):
        left, right = (a.data, -one) if call.args[0] is product else (one, -a.data)
        return _summed(x, np.asarray(left), np.asarray(right, a.data.dtype), a, call)


RULES = RuleSet(multiples_add_up, multiple_and_value_add_up, multiples_are_subtracted,
                multiple_and_value_are_subtracted)
