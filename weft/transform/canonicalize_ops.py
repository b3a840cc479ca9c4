"""One way to say a thing: operators that others can express are rewritten in terms of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from weft import op
from weft.ir.expr import Call, Expr, Function
from weft.ir.passes import FunctionPass, PassContext, register_pass
from weft.ir.shape import dim_product
from weft.ir.types import is_static
from weft.transform.graph import op_name, rewrite_typed, shape_of, tensor_type_of, type_of
from weft.transform.simplify_inference import align_to_axis


@register_pass
@dataclass(frozen=True)
class CanonicalizeOps(FunctionPass):
    """``nn.bias_add`` becomes ``add``, ``nn.batch_flatten`` becomes ``reshape``.

    def @main(%x: Tensor[(1, 2, 4), float32], %b: Tensor[(2,), float32]) {
      nn.batch_flatten(nn.bias_add(%x, %b, axis=1))
    }
    =>
    def @main(%x: Tensor[(1, 2, 4), float32], %b: Tensor[(2,), float32]) {
      reshape(add(%x, expand_dims(%b, axis=1, num_newaxis=1)), newshape=(1, 8))
    }
    """

    name: ClassVar[str] = "canonicalize_ops"
    opt_level: ClassVar[int] = 0

    def run(self, fn: Function, ctx: PassContext) -> Function:
        return rewrite_typed(fn, _canonicalize)


def _canonicalize(original: Expr, node: Expr) -> Expr:
    rule = _RULES.get(op_name(node))
    if rule is None or not isinstance(node, Call) or not isinstance(original, Call):
        return node
    return rule(original, node)


def _bias_add(original: Call, call: Call) -> Expr:
    ndim = tensor_type_of(original.args[0]).ndim
    axis = call.attrs.axis % ndim  # type: ignore[attr-defined]
    data, bias = call.args
    return op.add(data, align_to_axis(bias, axis, ndim), span=call.span)


def _batch_flatten(original: Call, call: Call) -> Expr:
    if not is_static(type_of(original)):
        return call
    batch, *rest = shape_of(original.args[0])
    newshape: tuple[Any, ...] = (batch, dim_product(tuple(rest)))
    return op.reshape(call.args[0], newshape=newshape, span=call.span)


_RULES: dict[str, Callable[[Call, Call], Expr]] = {
    "nn.bias_add": _bias_add,
    "nn.batch_flatten": _batch_flatten,
}
