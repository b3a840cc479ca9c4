"""Changes of shape that undo or absorb each other."""

from __future__ import annotations

from weft import op
from weft.ir.expr import Call, Expr
from weft.ir.types import TensorType, is_static
from weft.transform.graph import known_type, op_name
from weft.transform.rules.rule import LocalRules, local_rule

RULES = LocalRules()
SHAPE_OPS = ("reshape", "expand_dims", "squeeze", "nn.batch_flatten")


def reshaped_like(x: Expr, call: Call) -> Expr | None:
    """``x`` in the shape of ``call``; ``None`` where that shape is not fixed."""
    type_ = known_type(call)
    if type_ is None:
        return None
    if known_type(x) == type_ and is_static(type_):
        return x
    if not isinstance(type_, TensorType) or not is_static(type_):
        return None
    shape = type_.concrete_shape
    # A size of zero would copy a size of the argument otherwise.
    return op.reshape(x, newshape=shape, allowzero=0 in shape, span=call.span)


@local_rule(RULES, *SHAPE_OPS)
def reshape_to_the_same_shape_is_nothing(call: Call) -> Expr | None:
    """
    fn (%x: Tensor[(2, 3), float32]) { reshape(%x, newshape=(2, -1)) }
    =>
    fn (%x: Tensor[(2, 3), float32]) { %x }
    """
    type_ = known_type(call)
    same = type_ is not None and type_ == known_type(call.args[0]) and is_static(type_)
    return call.args[0] if same and len(call.args) == 1 else None


@local_rule(RULES, *SHAPE_OPS)
def reshape_of_reshape(call: Call) -> Expr | None:
    """
    fn (%x: Tensor[(2, 3), float32]) { squeeze(reshape(expand_dims(%x, axis=0), newshape=(1, 6))) }
    =>
    fn (%x: Tensor[(2, 3), float32]) { reshape(%x, newshape=(6,)) }
    """
    inner = call.args[0]
    if not isinstance(inner, Call) or op_name(inner) not in SHAPE_OPS or len(inner.args) != 1:
        return None
    return reshaped_like(inner.args[0], call)
