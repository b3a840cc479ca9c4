"""Combine batched matmuls with the same left operand into one."""

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
class CombineParallelBatchMatmul(FunctionPass):
    """Concatenate the right operands of ``min_branches`` or more ``nn.batch_matmul`` by columns.

    def @main(%a: Tensor[(2, 4, 3), float32], %b: Tensor[(2, 5, 3), float32],
              %c: Tensor[(2, 1, 3), float32], %d: Tensor[(2, 2, 3), float32]) {
      (nn.batch_matmul(%a, %b), nn.batch_matmul(%a, %c), nn.batch_matmul(%a, %d))
    }
    =>
    def @main(%a: Tensor[(2, 4, 3), float32], %b: Tensor[(2, 5, 3), float32],
              %c: Tensor[(2, 1, 3), float32], %d: Tensor[(2, 2, 3), float32]) {
      %0 = nn.batch_matmul(%a, concatenate((%b, %c, %d), axis=1));
      (strided_slice(%0, begin=(0,), end=(5,), axes=(2,)),
       strided_slice(%0, begin=(5,), end=(6,), axes=(2,)),
       strided_slice(%0, begin=(6,), end=(8,), axes=(2,)))
    }
    """

    name: ClassVar[str] = "combine_parallel_batch_matmul"
    opt_level: ClassVar[int] = 4
    min_branches: int = 3

    def run(self, fn: Function, ctx: PassContext) -> Function:  # noqa: ARG002
        return rewrite_groups(fn, _likeness, _combine, max(self.min_branches, 2))


def _likeness(call: Call) -> Hashable | None:
    if op_name(call) != "nn.batch_matmul" or not isinstance(shape_of(call)[-1], int):
        return None
    left, right = call.args
    # A batch of 1 is broadcast, but does not concatenate with a larger one.
    batch = shape_of(right)[0]
    return id(left), batch, call.attrs, tensor_type_of(right).dtype


def _combine(calls: Sequence[Call], args: Sequence[Sequence[Expr]]) -> list[Expr]:
    attrs: Any = calls[0].attrs
    axis = 1 if attrs.transpose_b else 2
    sizes = [shape_of(call)[-1] for call in calls]
    joined = op.concatenate(Tuple(tuple(a[1] for a in args)), axis=axis, span=calls[0].span)
    return cut_apart(calls[0].replace(args=(args[0][0], joined)), 2, sizes, calls)
