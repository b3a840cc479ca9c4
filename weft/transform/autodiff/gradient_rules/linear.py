"""Matrix products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import op
from weft.ir.expr import Call, Expr
from weft.op.gradients import sum_to, tensor_type
from weft.support.errors import PassError
from weft.transform.autodiff.gradient_rules.shape import static_shape


def _dense(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    attrs: Any = call.attrs
    data, weight = call.args
    if attrs.weight_layout not in ("NK", "KN"):
        raise PassError("a packed weight has no gradient", where=call.span,
                        expected="weight layout NK or KN", got=attrs.weight_layout,
                        help="differentiate before layouts are chosen")
    is_nk = attrs.weight_layout == "NK"
    dx = op.nn.dense(dy, weight, weight_layout="KN" if is_nk else "NK")
    rows, grads = _as_matrix(data, call), _as_matrix(dy, call)
    left, right = (grads, rows) if is_nk else (rows, grads)
    return [dx, op.nn.matmul(left, right, transpose_a=True)]


def _as_matrix(x: Expr, call: Call) -> Expr:
    type_ = tensor_type(x)
    if type_.ndim == 2:
        return x
    *lead, last = static_shape(x, call)
    count = 1
    for size in lead:
        count *= size
    return op.reshape(x, newshape=(count, last), allowzero=True)


def _batch_matmul(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    attrs: Any = call.attrs
    a, b = call.args
    swap_a, swap_b = attrs.transpose_a, attrs.transpose_b
    product = op.nn.batch_matmul
    da = (product(b, dy, transpose_a=swap_b, transpose_b=True) if swap_a
          else product(dy, b, transpose_b=not swap_b))
    db = (product(dy, a, transpose_a=True, transpose_b=swap_a) if swap_b
          else product(a, dy, transpose_a=not swap_a, transpose_b=False))
    batch = tensor_type(call).shape[0]
    return [_one_batch(g, x, batch) for g, x in ((da, a), (db, b))]


def _one_batch(grad: Expr, x: Expr, batch: object) -> Expr:
    """The gradient of a stack of one that was used for all of ``batch``."""
    type_ = tensor_type(x)
    if type_.shape[0] == batch:
        return grad
    source = type(type_)((batch, *type_.shape[1:]), type_.dtype)  # type: ignore[arg-type]
    return sum_to(grad, source, type_)


RULES: dict[str, Callable[[Call, Expr, Expr], list[Expr]]] = {
    "nn.batch_matmul": _batch_matmul,
    "nn.dense": _dense,
}
