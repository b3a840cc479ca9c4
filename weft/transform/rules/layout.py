"""Layout transforms that cancel, combine, or move no element."""

from __future__ import annotations

from typing import Any

from weft import op
from weft.ir import Call, Expr, NoMatch, RuleSet, TensorType, is_static, rule
from weft.ir.rewrite.pattern import any_
from weft.topi.layout import Layout, transform_steps
from weft.transform.analysis.graph import known_type
from weft.transform.rules.reshape import reshaped_like


@rule(op.layout_transform(op.layout_transform(any_("x")).named("inner")), group="simplify")
def layout_transforms_join(x: Expr, inner: Call, call: Call) -> Expr | NoMatch:
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
    first: Any = inner.attrs
    second: Any = call.attrs
    if first.dst_layout != second.src_layout:
        return NoMatch("the two name the intermediate layout differently")
    if first.src_layout == second.dst_layout:
        return x
    return op.layout_transform(x, src_layout=first.src_layout, dst_layout=second.dst_layout)


@rule(op.layout_transform(any_("x")), group="simplify")
def layout_transform_without_moving_is_a_reshape(x: Expr, call: Call) -> Expr | NoMatch:
    """
    fn (%x: Tensor[(1, 2, 1, 1, 8), float32]) {
      layout_transform(%x, src_layout="NCHW8c", dst_layout="NCHW")
    }
    =>
    fn (%x: Tensor[(1, 2, 1, 1, 8), float32]) { reshape(%x, newshape=(1, 16, 1, 1)) }
    """
    source = known_type(x)
    if not isinstance(source, TensorType) or not is_static(source):
        return NoMatch("the shape is not static")
    attrs: Any = call.attrs
    shape = source.concrete_shape
    src, dst = Layout.parse(attrs.src_layout), Layout.parse(attrs.dst_layout)
    for kind, argument in transform_steps(src, dst, shape):
        if kind == "transpose":
            moved = [a for a in argument if shape[a] != 1]
            if moved != sorted(moved):
                return NoMatch("axes of size greater than 1 are permuted")
            shape = tuple(shape[a] for a in argument)
        else:
            shape = argument
    return reshaped_like(x, call)


RULES = RuleSet(layout_transforms_join, layout_transform_without_moving_is_a_reshape)
