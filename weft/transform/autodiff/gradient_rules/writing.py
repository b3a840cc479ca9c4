"""Operators that put values in the place of elements, and random numbers with parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft import op
from weft.ir.expr import Call, Constant, Expr, Tuple, TupleGetItem
from weft.ir.types import TensorType, TupleType
from weft.op.gradients import scalar, tensor_type
from weft.support.errors import PassError
from weft.transform.autodiff.adjoint import zeros_like
from weft.transform.autodiff.gradient_rules.shape import static_shape

Rule = Callable[[Call, Expr, Expr], list[Expr]]


def _written(values_at: int) -> Rule:
    """For an operator that writes argument ``values_at`` over elements of its first argument.

    Applied to the numbers of the values, over zeros, it says which value each element of the
    result is, if any. Other arguments are positions and have no gradient.
    """

    def rule(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
        x, values = call.args[0], call.args[values_at]
        shape, whole = static_shape(values, call), static_shape(x, call)
        count = int(np.prod(shape, dtype=np.int64))
        gradients = [zeros_like(a) for a in call.args]
        if count == 0 or 0 in whole:
            gradients[0] = dy
            return gradients
        args = list(call.args)
        args[0] = op.zeros(shape=whole, dtype="int64")
        args[values_at] = Constant(np.arange(1, count + 1).reshape(shape))
        owner = call.op(*args, **dict(call.attrs.items()))
        nobody = op.equal(owner, Constant(np.asarray(0)))
        gradients[0] = op.where(nobody, dy, scalar(0, dy))
        clear = op.zeros(shape=(count + 1,), dtype=tensor_type(values).dtype)
        shares = op.scatter_elements(clear, op.reshape(owner, newshape=(-1,)),
                                     op.reshape(dy, newshape=(-1,)), reduction="add")
        own = op.strided_slice(shares, begin=(1,), end=(count + 1,))
        gradients[values_at] = op.reshape(own, newshape=shape, allowzero=True)
        return gradients

    return rule


def _scatter_nd(call: Call, y: Expr, dy: Expr) -> list[Expr]:
    attrs: Any = call.attrs
    if attrs.mode != "update":
        raise PassError(f"scatter_nd by {attrs.mode!r} has no gradient", where=call.span,
                        expected="update")
    return _written(2)(call, y, dy)


def _adv_index(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    """What was read comes back to where it was read; positions have no gradient."""
    type_ = call.args[0].checked_type
    fields = [t for t in (type_.fields if isinstance(type_, TupleType) else ())
              if isinstance(t, TensorType)]
    shape = fields[0].concrete_shape
    total = int(np.prod(shape, dtype=np.int64))
    parts = [TupleGetItem(call.args[0], n) for n in range(len(fields))]
    rest = [op.zeros_like(p) for p in parts[1:]]
    if total == 0 or 0 in tensor_type(call).concrete_shape:
        return [Tuple((op.zeros_like(parts[0]), *rest))]
    places = Constant(np.arange(total).reshape(shape))
    origin = op.reshape(op.adv_index((places, *parts[1:])), newshape=(-1,))
    clear = op.zeros(shape=(total,), dtype=fields[0].dtype)
    added = op.scatter_elements(clear, origin, op.reshape(dy, newshape=(-1,)), reduction="add")
    return [Tuple((op.reshape(added, newshape=shape, allowzero=True), *rest))]


def _uniform(call: Call, y: Expr, dy: Expr) -> list[Expr]:
    """Both bounds move the numbers, as far as these lie from the other one."""
    key, low, high = call.args
    numbers, arriving = TupleGetItem(y, 1), TupleGetItem(dy, 1)
    share = op.divide(op.subtract(numbers, low), op.subtract(high, low))
    to_high = op.multiply(arriving, share)
    return [zeros_like(key), op.sum(op.subtract(arriving, to_high)), op.sum(to_high)]


def _normal(call: Call, y: Expr, dy: Expr) -> list[Expr]:
    """Mean and deviation move the numbers (the reparametrisation trick)."""
    key, mean, scale = call.args
    numbers, arriving = TupleGetItem(y, 1), TupleGetItem(dy, 1)
    standard = op.divide(op.subtract(numbers, mean), scale)
    return [zeros_like(key), op.sum(arriving), op.sum(op.multiply(arriving, standard))]


RULES: dict[str, Rule] = {
    "adv_index": _adv_index,
    "matrix_set_diag": _written(1),
    "random.normal": _normal,
    "random.uniform": _uniform,
    "scatter_nd": _scatter_nd,
    "strided_set": _written(1),
}
