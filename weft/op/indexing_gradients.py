"""Gradients shared by operators that gather or scatter elements."""

from __future__ import annotations

import numpy as np

from weft import op
from weft.ir import Call, Constant, Expr, GradientRule, dim_product
from weft.op.gradients import known_shape, numbered, scalar, tensor_type, typed_zeros


def gather_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    """The gradient of an operator whose result copies elements of its first argument.

    Applied to the flat positions of the elements, the operator tells where each element of the
    result comes from; the gradients are added up there. The other arguments are positions, which
    have a zero gradient.
    """
    x, *others = call.args
    shape = known_shape(x, call)
    total = dim_product(shape)
    positions = numbered(shape)
    origin = op.reshape(call.op(positions, *others, **dict(call.attrs.items())), newshape=(-1,))
    flat = op.reshape(dy, newshape=(-1,))
    if total == 0 or 0 in tensor_type(call).shape:
        return [typed_zeros(x), *map(typed_zeros, others)]
    clear = op.zeros(shape=(total,), dtype=tensor_type(x).dtype)
    added = op.scatter_elements(clear, origin, flat, reduction="add")
    return [op.reshape(added, newshape=shape, allowzero=True), *map(typed_zeros, others)]


def write_gradient(values_at: int) -> GradientRule:
    """The gradient of an operator that writes argument ``values_at`` over its first argument.

    Applied to zeros and to the numbers of the values (from 1), the operator tells which value, if
    any, each element of the result is. The other arguments are positions, with a zero gradient.
    """

    def rule(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
        x, values = call.args[0], call.args[values_at]
        shape, whole = known_shape(values, call), known_shape(x, call)
        count = dim_product(shape)
        gradients = [typed_zeros(a) for a in call.args]
        if count == 0 or 0 in whole:
            gradients[0] = dy
            return gradients
        args = list(call.args)
        args[0] = op.zeros(shape=whole, dtype="int64")
        args[values_at] = numbered(shape, start=1)
        owner = call.op(*args, **dict(call.attrs.items()))
        is_kept = op.equal(owner, Constant(np.asarray(0)))
        gradients[0] = op.where(is_kept, dy, scalar(0, dy))
        clear = op.zeros(shape=(count + 1,), dtype=tensor_type(values).dtype)
        shares = op.scatter_elements(clear, op.reshape(owner, newshape=(-1,)),
                                     op.reshape(dy, newshape=(-1,)), reduction="add")
        own = op.strided_slice(shares, begin=(1,), end=(count + 1,))
        gradients[values_at] = op.reshape(own, newshape=shape, allowzero=True)
        return gradients

    return rule
