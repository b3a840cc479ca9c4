"""Two-dimensional convolutions, their gradients written as convolutions again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import op
from weft.ir.expr import Call, Expr, Tuple, TupleGetItem
from weft.ir.typing.infer import infer_expr
from weft.op.gradients import scalar
from weft.support.errors import PassError
from weft.topi.layout import Layout
from weft.topi.nn.conv2d import full_padding
from weft.transform.gradient_rules.shape import place, static_shape


def _conv2d(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    attrs: Any = call.attrs
    data, kernel = call.args
    out = attrs.out_layout or attrs.data_layout
    for layout in (attrs.data_layout, attrs.kernel_layout, out):
        if not Layout.parse(layout).is_primal:
            raise PassError("a convolution in blocks has no gradient", where=call.span,
                            got=layout, help="differentiate before layouts are chosen")
    x, w = to_order(data, attrs.data_layout, "NCHW"), to_order(kernel, attrs.kernel_layout, "OIHW")
    dx, dw = _grouped(x, w, to_order(dy, out, "NCHW"), attrs, call)
    return [to_order(dx, "NCHW", attrs.data_layout), to_order(dw, "OIHW", attrs.kernel_layout)]


def to_order(x: Expr, source: str, wanted: str) -> Expr:
    """``x`` with its axes in another order, typed."""
    if source == wanted:
        return x
    return infer_expr(op.transpose(x, axes=tuple(source.index(a) for a in wanted)), trust=True)


def _grouped(x: Expr, w: Expr, dy: Expr, attrs: Any, call: Call) -> tuple[Expr, Expr]:
    """Both gradients, of each group of channels on its own."""
    groups = attrs.groups
    if groups == 1:
        return data_gradient(x, w, dy, attrs, call), weight_gradient(x, w, dy, attrs, call)
    parts = zip(_split(x, groups, 1), _split(w, groups, 0), _split(dy, groups, 1), strict=True)
    pairs = [
        (data_gradient(a, b, c, attrs, call), weight_gradient(a, b, c, attrs, call))
        for a, b, c in parts
    ]
    dx = op.concatenate(Tuple(tuple(a for a, _ in pairs)), axis=1)
    dw = op.concatenate(Tuple(tuple(b for _, b in pairs)), axis=0)
    return infer_expr(dx, trust=True), infer_expr(dw, trust=True)


def _split(x: Expr, count: int, axis: int) -> list[Expr]:
    parts = op.split(x, indices_or_sections=count, axis=axis)
    return [infer_expr(TupleGetItem(parts, i), trust=True) for i in range(count)]


def data_gradient(x: Expr, w: Expr, dy: Expr, attrs: Any, call: Call) -> Expr:
    """``dy``, its elements ``strides`` apart, convolved with the kernel turned round."""
    sizes, taps, steps = (static_shape(t, call)[2:] for t in (x, w, dy))
    top, left, _, _ = full_padding(attrs.padding)
    wide = dy
    for axis, (size, tap, step, first) in enumerate(zip(sizes, taps, steps, (top, left),
                                                        strict=True)):
        span = (tap - 1) * attrs.dilation[axis]
        # Position p of the padded data gets a share of output o at p = o * stride + tap offset.
        wide = place(wide, axis + 2, span, attrs.strides[axis], span + size + first, step)
        wide = _from(wide, axis + 2, first, span + size, call)
    flipped = op.strided_slice(w, begin=(taps[0] - 1, taps[1] - 1),
                               end=(-taps[0] - 1, -taps[1] - 1), strides=(-1, -1), axes=(2, 3))
    turned = op.transpose(flipped, axes=(1, 0, 2, 3))
    dx = op.nn.conv2d(wide, turned, dilation=attrs.dilation, padding=(0, 0))
    return infer_expr(dx, trust=True)


def _from(x: Expr, axis: int, first: int, size: int, call: Call) -> Expr:
    """``size`` elements along ``axis`` from ``first`` on, zeros where there are no more."""
    have = static_shape(x, call)[axis]
    if have < first + size:
        pads = tuple((0, first + size - have if i == axis else 0) for i in range(4))
        x = op.nn.pad(x, scalar(0.0, x), pad_width=pads)
    cut = op.strided_slice(x, begin=(first,), end=(first + size,), axes=(axis,))
    return infer_expr(cut, trust=True)


def weight_gradient(x: Expr, w: Expr, dy: Expr, attrs: Any, call: Call) -> Expr:
    """The data convolved with ``dy``, images taking the place of channels."""
    taps = static_shape(w, call)[2:]
    images, grads = (op.transpose(t, axes=(1, 0, 2, 3)) for t in (x, dy))
    dw = op.nn.conv2d(images, grads, strides=attrs.dilation, dilation=attrs.strides,
                      padding=full_padding(attrs.padding))
    # Rows at the edge that no window reached would give further taps.
    cut = op.strided_slice(dw, begin=(0, 0), end=tuple(taps), axes=(2, 3))
    return infer_expr(op.transpose(cut, axes=(1, 0, 2, 3)), trust=True)


RULES: dict[str, Callable[[Call, Expr, Expr], list[Expr]]] = {"nn.conv2d": _conv2d}
