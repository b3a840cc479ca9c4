"""Combine matrix multiplications of the same data into one."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, ClassVar

from weft import op
from weft.ir import Call, Expr, Function, FunctionPass, PassContext, Tuple, register_pass
from weft.support.dataclass import dataclass
from weft.transform.analysis.graph import op_name, shape_of, tensor_type_of
from weft.transform.fusion.combine_parallel_conv2d import cut_apart
from weft.transform.fusion.levels import rewrite_groups


@register_pass
@dataclass(frozen=True)
class CombineParallelDense(FunctionPass):
    """Concatenate the weights of ``min_branches`` or more ``nn.dense`` of the same data.

    A typical case: the projections to queries, keys and values in an attention layer.

    def @main(%x: Tensor[(4, 2), float32], %v: Tensor[(3, 2), float32],
              %w: Tensor[(5, 2), float32], %u: Tensor[(1, 2), float32]) {
      (nn.dense(%x, %v), nn.dense(%x, %w), nn.dense(%x, %u))
    }
    =>
    def @main(%x: Tensor[(4, 2), float32], %v: Tensor[(3, 2), float32],
              %w: Tensor[(5, 2), float32], %u: Tensor[(1, 2), float32]) {
      %0 = nn.dense(%x, concatenate((%v, %w, %u), axis=0));
      (strided_slice(%0, begin=(0,), end=(3,), axes=(1,)),
       strided_slice(%0, begin=(3,), end=(8,), axes=(1,)),
       strided_slice(%0, begin=(8,), end=(9,), axes=(1,)))
    }
    """

    name: ClassVar[str] = "combine_parallel_dense"
    opt_level: ClassVar[int] = 4
    min_branches: int = 3

    def run(self, fn: Function, ctx: PassContext) -> Function:  # noqa: ARG002
        return rewrite_groups(fn, _likeness, _combine, max(self.min_branches, 2))


def _likeness(call: Call) -> Hashable | None:
    attrs: Any = call.attrs
    if op_name(call) != "nn.dense" or attrs.weight_layout not in ("NK", "KN"):
        return None
    units = shape_of(call)[-1]
    if not isinstance(units, int):
        return None
    data, dtype = call.args[0], tensor_type_of(call).dtype
    return id(data), attrs.replace(units=None), dtype, tensor_type_of(call.args[1]).dtype


def _combine(calls: Sequence[Call], args: Sequence[Sequence[Expr]]) -> list[Expr]:
    attrs: Any = calls[0].attrs
    axis = attrs.weight_layout.index("N")
    sizes = [shape_of(call)[-1] for call in calls]
    weight = op.concatenate(Tuple(tuple(a[1] for a in args)), axis=axis, span=calls[0].span)
    units = None if attrs.units is None else sum(s for s in sizes if isinstance(s, int))
    stacked = calls[0].replace(args=(args[0][0], weight), attrs=attrs.replace(units=units))
    return cut_apart(stacked, tensor_type_of(calls[0]).ndim - 1, sizes, calls)
