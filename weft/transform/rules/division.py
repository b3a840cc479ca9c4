"""Replace division by a constant by multiplication, which costs about a tenth."""

from __future__ import annotations

import numpy as np

from weft import op
from weft.ir import Call, Constant, Expr, NoMatch, RuleSet, rule
from weft.ir.rewrite.pattern import any_, const


def _reciprocal(c: Constant) -> Constant | NoMatch:
    """1 / c, if that is a normal number."""
    dtype = c.tensor_type.dtype
    if not dtype.is_float:
        return NoMatch("the quotient of integers is rounded")
    with np.errstate(all="ignore"):
        exact = 1.0 / np.asarray(c.data, np.float64)
    import ml_dtypes  # whose ``finfo`` knows all floats

    limits = ml_dtypes.finfo(dtype.numpy)
    sizes = np.abs(exact)
    if not np.all((sizes >= float(limits.smallest_normal)) & (sizes <= float(limits.max))):
        return NoMatch("the reciprocal is not a normal number")
    return Constant(exact.astype(c.data.dtype), span=c.span)


@rule(op.divide(any_("x"), const("c")), group="simplify")
def division_by_a_power_of_two_is_exact(x: Expr, c: Constant) -> Expr | NoMatch:
    """
    fn (%x: Tensor[(4,), float32]) { divide(%x, 8f) }
    =>
    fn (%x: Tensor[(4,), float32]) { multiply(%x, 0.125f) }
    """
    reciprocal = _reciprocal(c)
    if isinstance(reciprocal, NoMatch):
        return reciprocal
    mantissa, _ = np.frexp(np.asarray(c.data, np.float64))
    if not np.all(np.abs(mantissa) == 0.5):
        return NoMatch("the reciprocal is rounded")
    return op.multiply(x, reciprocal)


# These functions do not amplify the relative error of their argument.
@rule(op.erf(op.divide(any_("x"), const("c"))), op.tanh(op.divide(any_("x"), const("c"))),
      group="simplify")
def quotient_may_round_below_a_flat_function(x: Expr, c: Constant, call: Call) -> Expr | NoMatch:
    """
    fn (%x: Tensor[(4,), float32]) { add(erf(divide(%x, 1.4142135f)), tanh(divide(%x, 3f))) }
    =>
    fn (%x: Tensor[(4,), float32]) {
      add(erf(multiply(%x, 0.70710677f)), tanh(multiply(%x, 0.33333334f)))
    }
    """
    reciprocal = _reciprocal(c)
    if isinstance(reciprocal, NoMatch):
        return reciprocal
    return call.replace(args=(op.multiply(x, reciprocal),))


RULES = RuleSet(division_by_a_power_of_two_is_exact, quotient_may_round_below_a_flat_function)
