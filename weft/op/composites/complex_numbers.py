"""What operators of the catalogue are for complex numbers: the one table.

A complex tensor is a pair of real ones. An operator that is linear in all of its operands acts on
each part, and one that is linear in each of them is the four real ones of a product: both follow
from the operator's trait. The others are composites over pairs, ``COMPOSITES``. Operators that
neither have are refused. Tensors (``weft.eager``) and the torch front end both read this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from weft.ir import Op, get_op
from weft.ir.traits import Linearity
from weft.op.composites import complex_arithmetic as a
from weft.op.composites import complex_functions as f

# Operator -> composite over pairs, which gives a pair, or one value that is real or boolean.
COMPOSITES: Mapping[str, Callable[..., Any]] = {
    "multiply": a.multiply, "divide": a.divide, "power": f.power,
    "abs": a.magnitude, "sign": a.sign,
    "exp": f.exp, "expm1": f.expm1, "log": f.log, "log1p": f.log1p,
    "log2": f.log_of_base(2.0), "log10": f.log_of_base(10.0),
    "sqrt": f.sqrt, "rsqrt": f.rsqrt, "sigmoid": f.sigmoid,
    "sin": f.rotated(f.sinh), "cos": f.cos, "tan": f.rotated(f.tanh),
    "asin": f.asin, "acos": f.acos, "atan": f.rotated(f.atanh),
    "sinh": f.sinh, "cosh": f.cosh, "tanh": f.tanh,
    "asinh": f.rotated(f.asin), "acosh": f.acosh, "atanh": f.atanh,
    "equal": a.equal, "not_equal": a.not_equal,
    "isnan": a.any_part("isnan"), "isinf": a.any_part("isinf"),
    "isfinite": a.all_parts("isfinite"),
    "logical_and": a.truth("logical_and"), "logical_or": a.truth("logical_or"),
    "logical_xor": a.truth("logical_xor"), "logical_not": a.truth("logical_not"),
}

# Operators beside those with the trait whose result has, in each part, elements of that part.
_BY_PARTS = frozenset((
    "annotation.stop_gradient", "broadcast_to_like", "collapse_sum_like", "reshape_like",
    "scatter_nd", "sequence_mask", "slice_like", "zeros_like"))

# Operators of pairs in one tensor, whose attributes count axes from the first and need no change
# for one more axis at the end.
_BEFORE_LAST = frozenset((
    "concatenate", "copy", "cumsum", "expand_dims", "gather_nd", "mean", "negative", "repeat",
    "reverse", "split", "squeeze", "stack", "strided_slice", "sum", "take"))


def acts_on_parts(op: str) -> bool:
    """Whether the parts of the result are those of the operands."""
    return op in _BY_PARTS or get_op(op).traits.linearity is Linearity.JOINT


def is_product(op: str) -> bool:
    """Whether an operator is linear in each of its operands."""
    record: Op = get_op(op)
    return record.traits.linearity is Linearity.EACH and op not in COMPOSITES


def attributes_of_pairs(op: str, attrs: Mapping[str, Any], rank: int) -> dict[str, Any] | None:
    """The attributes that let ``op`` act on tensors whose last axis holds the two parts, where
    operands have ``rank`` axes before it; ``None`` if it does not.
    """
    if op == "reshape":
        return {**attrs, "newshape": (*attrs["newshape"], 2)}
    if op == "transpose":
        axes = attrs.get("axes")
        return None if axes is None else {**attrs, "axes": (*[x % rank for x in axes], rank)}
    if op == "broadcast_to":
        return {**attrs, "shape": (*attrs["shape"], 2)}
    if op not in _BEFORE_LAST:
        return None
    found = dict(attrs)
    total = rank + (op in ("stack", "expand_dims"))
    for name in ("axis", "axes"):
        if name in attrs:
            axis = attrs[name]
            if axis is None or not total:
                return None
            found[name] = axis % total if isinstance(axis, int) else tuple(
                [x % total for x in axis])
    if op in ("sum", "mean", "squeeze", "cumsum", "repeat") and not ({"axis", "axes"} & set(found)):
        return None
    return found
