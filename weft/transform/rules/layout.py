"""Changes of data layout that cancel, join, or move nothing."""

from __future__ import annotations

from typing import Any

from weft import op
from weft.ir.expr import Call, Expr
from weft.ir.types import TensorType, is_static
from weft.topi.layout import Layout, transform_steps
from weft.transform.graph import known_type, op_name
from weft.transform.rules.reshape import reshaped_like
from weft.transform.rules.rule import LocalRules, local_rule

RULES = LocalRules()


@local_rule(RULES, "layout_transform")
def layout_transforms_join(call: Call) -> Expr | None:
    """
    fn (%x: Tensor[(1, 8, 2, 2), float32]) {
      %0 = layout_transform(%x, src_layout="NCHW", dst_layout="NCHW8c");
      layout_transform(%0, src_layout="NCHW8c", dst_layout="NCHW4c")
    }
    =>
    fn (%x: Tensor[(1, 8, 2, 2), float32]) {
      layout_transform(%x, src_layout="NCHW", dst_layout="NCHW4c")
    }
    """
    inner = call.args[0]
    if not isinstance(inner, Call) or op_name(inner) != "layout_transform":
        return None
    first: Any = inner.attrs
    second: Any = call.attrs
    if first.dst_layout != second.src_layout:
        return None
    if first.src_layout == second.dst_layout:
        return inner.args[0]
    return op.layout_transform(
        inner.args[0], src_layout=first.src_layout, dst_layout=second.dst_layout, span=call.span
    )


@local_rule(RULES, "layout_transform")
def layout_transform_without_moving_is_a_reshape(call: Call) -> Expr | None:
    """
    fn (%x: Tensor[(1, 2, 1, 1, 8), float32]) {
      layout_transform(%x, src_layout="NCHW8c", dst_layout="NCHW")
    }
    =>
    fn (%x: Tensor[(1, 2, 1, 1, 8), float32]) { reshape(%x, newshape=(1, 16, 1, 1)) }
    """
    source = known_type(call.args[0])
    if not isinstance(source, TensorType) or not is_static(source):
        return None
    attrs: Any = call.attrs
    shape = source.concrete_shape
    src, dst = Layout.parse(attrs.src_layout), Layout.parse(attrs.dst_layout)
    for kind, argument in transform_steps(src, dst, shape):
        if kind == "transpose":
            moved = [a for a in argument if shape[a] != 1]
            if moved != sorted(moved):
                return None
            shape = tuple(shape[a] for a in argument)
        else:
            shape = argument
    return reshaped_like(call.args[0], call)
