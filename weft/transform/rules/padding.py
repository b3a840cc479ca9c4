"""Padding that the following operator can do itself."""

from __future__ import annotations

from typing import Any

from weft import op
from weft.ir import Call, Expr, NoMatch, RuleSet, rule
from weft.ir.rewrite.pattern import any_, const
from weft.topi.layout import Layout
from weft.topi.nn.conv import full_padding


@rule(
    op.nn.conv2d(
        op.nn.pad(any_("x"), const(value=0), pad_mode="constant").named("padded"), any_("w")
    ),
    group="simplify",
)
def conv2d_absorbs_zero_padding(x: Expr, padded: Call, w: Expr, call: Call) -> Expr | NoMatch:
    """
    fn (%x: Tensor[(1, 2, 4, 4), float32], %w: Tensor[(2, 2, 3, 3), float32]) {
      %0 = nn.pad(%x, 0f, pad_width=((0, 0), (0, 0), (0, 1), (0, 2)));
      nn.conv2d(%0, %w, padding=(1, 1))
    }
    =>
    fn (%x: Tensor[(1, 2, 4, 4), float32], %w: Tensor[(2, 2, 3, 3), float32]) {
      nn.conv2d(%x, %w, padding=(1, 1, 2, 3))
    }
    """
    attrs: Any = call.attrs
    layout = Layout.parse(attrs.data_layout)
    if not layout.is_primal:
        return NoMatch("the data has a blocked layout")
    if attrs.algorithm is not None:
        return NoMatch(f"{attrs.algorithm} was chosen for padded data")
    widths = dict(zip(layout.primal_axes, padded.attrs.pad_width, strict=True))  # type: ignore[attr-defined]
    if any(any(pair) for letter, pair in widths.items() if letter not in "HW"):
        return NoMatch("batch or channels are padded")
    top, left, bottom, right = full_padding(attrs.padding, 2)
    (above, below), (before, after) = widths["H"], widths["W"]
    padding = (top + above, left + before, bottom + below, right + after)
    return call.replace(args=(x, w), attrs=attrs.replace(padding=padding))


RULES = RuleSet(conv2d_absorbs_zero_padding)
