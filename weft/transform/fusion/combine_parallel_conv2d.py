"""Combine convolutions of the same data into one."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, ClassVar

from weft import op
from weft.ir import Call, Expr, Function, FunctionPass, PassContext, Tuple, register_pass
from weft.support.dataclass import dataclass
from weft.topi.layout import Layout
from weft.transform.analysis.graph import op_name, shape_of, tensor_type_of
from weft.transform.fusion.levels import rewrite_groups


@register_pass
@dataclass(frozen=True)
class CombineParallelConv2D(FunctionPass):
    """Concatenate the kernels of ``min_branches`` or more convolutions of the same data.

    The convolutions agree in all attributes but the number of channels, and have one group. The
    result is split by channels. Constant kernels are concatenated at compile time.

    def @main(%x: Tensor[(1, 2, 4, 4), float32], %v: Tensor[(3, 2, 1, 1), float32],
              %w: Tensor[(5, 2, 1, 1), float32]) {
      (nn.conv2d(%x, %v, channels=3), nn.conv2d(%x, %w, channels=5))
    }
    =>
    def @main(%x: Tensor[(1, 2, 4, 4), float32], %v: Tensor[(3, 2, 1, 1), float32],
              %w: Tensor[(5, 2, 1, 1), float32]) {
      %0 = nn.conv2d(%x, concatenate((%v, %w), axis=0), channels=8);
      (strided_slice(%0, begin=(0,), end=(3,), axes=(1,)),
       strided_slice(%0, begin=(3,), end=(8,), axes=(1,)))
    }
    """

    name: ClassVar[str] = "combine_parallel_conv2d"
    opt_level: ClassVar[int] = 4
    min_branches: int = 3

    def run(self, fn: Function, ctx: PassContext) -> Function:  # noqa: ARG002
        return rewrite_groups(fn, _likeness, _combine, max(self.min_branches, 2))


def _likeness(call: Call) -> Hashable | None:
    if op_name(call) != "nn.conv2d":
        return None
    attrs: Any = call.attrs
    kernel, out = Layout.parse(attrs.kernel_layout), Layout.parse(_out_layout(attrs))
    # With groups, the concatenated kernels would read other input channels.
    if attrs.groups != 1 or not kernel.is_primal or not out.is_primal:
        return None
    shape = shape_of(call.args[1])
    channels = kernel.index_of("O")
    if not isinstance(shape[channels], int):
        return None
    taps = shape[:channels] + shape[channels + 1 :]
    return id(call.args[0]), taps, attrs.replace(channels=None), tensor_type_of(call).dtype


def _out_layout(attrs: Any) -> str:
    return attrs.out_layout or attrs.data_layout


def _combine(calls: Sequence[Call], args: Sequence[Sequence[Expr]]) -> list[Expr]:
    attrs: Any = calls[0].attrs
    axis = Layout.parse(attrs.kernel_layout).index_of("O")
    sizes = [shape_of(call.args[1])[axis] for call in calls]
    total = sum(s for s in sizes if isinstance(s, int))
    kernel = op.concatenate(Tuple(tuple(a[1] for a in args)), axis=axis, span=calls[0].span)
    channels = None if attrs.channels is None else total
    stacked = calls[0].replace(args=(args[0][0], kernel), attrs=attrs.replace(channels=channels))
    return cut_apart(stacked, Layout.parse(_out_layout(attrs)).index_of("C"), sizes, calls)


def cut_apart(whole: Expr, axis: int, sizes: Sequence[Any], calls: Sequence[Call]) -> list[Expr]:
    """Slices of ``whole`` along ``axis``, one for each of ``calls``, of the given sizes."""
    parts: list[Expr] = []
    begin = 0
    for size, call in zip(sizes, calls, strict=True):
        end = begin + size
        part = op.strided_slice(whole, begin=(begin,), end=(end,), axes=(axis,), span=call.span)
        parts.append(part.with_type(tensor_type_of(call)))
        begin = end
    return parts
