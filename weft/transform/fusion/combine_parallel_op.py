"""Combine independent calls of one operator into one call on stacked operands."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar

from weft import ir, op
from weft.support.dataclass import dataclass
from weft.support.errors import PassError
from weft.transform.analysis.graph import is_known_tensor, op_name, tensor_type_of, type_of
from weft.transform.fusion.levels import rewrite_groups


@ir.register_pass
@dataclass(frozen=True)
class CombineParallelOp(ir.FunctionPass):
    """Stack the operands of ``min_branches`` or more independent calls of ``op``.

    The calls agree in attributes and operand types, and broadcast no operand. ``batch_op`` is
    applied to the stacks; by default ``op`` itself, which must then be elementwise. ``nn.dense``
    with ``batch_op=nn.batch_matmul`` batches the layers of an ensemble.

    def @main(%x: Tensor[(4,), float32], %y: Tensor[(4,), float32]) { (tanh(%x), tanh(%y)) }
    =>
    def @main(%x: Tensor[(4,), float32], %y: Tensor[(4,), float32]) {
      %0 = (expand_dims(%x, axis=0), expand_dims(%y, axis=0));
      %1 = split(tanh(concatenate(%0, axis=0)), indices_or_sections=2, axis=0);
      (squeeze(%1.0, axis=(0,)), squeeze(%1.1, axis=(0,)))
    }
    """

    name: ClassVar[str] = "combine_parallel_op"
    opt_level: ClassVar[int] = 4
    op: str = "tanh"
    batch_op: str | None = None
    min_branches: int = 3

    def run(self, fn: ir.Function, ctx: ir.PassContext) -> ir.Function:  # noqa: ARG002
        operator, batched = ir.get_op(self.op), ir.get_op(self.batch_op or self.op)
        if self.batch_op is None and operator.pattern > ir.OpPattern.BROADCAST:
            raise PassError(
                f"{operator.name} cannot be batched",
                where=str(self),
                expected="an elementwise operator, or batch_op=.. for the operator on stacks",
            )

        def combine(calls: Sequence[ir.Call], args: Sequence[Sequence[ir.Expr]]) -> list[ir.Expr]:
            return _combine(batched, calls, args)

        return rewrite_groups(fn, self._likeness, combine, max(self.min_branches, 2))

    def _likeness(self, call: ir.Call) -> Hashable | None:
        if op_name(call) != self.op or not is_known_tensor(call):
            return None
        types = tuple(type_of(a) for a in call.args)
        if not types or not all(isinstance(t, ir.TensorType) for t in types):
            return None
        shapes = {t.shape for t in types if isinstance(t, ir.TensorType)}
        if self.batch_op is None and shapes != {tensor_type_of(call).shape}:
            return None
        return types, call.attrs


def _combine(batched: ir.Op, calls: Sequence[ir.Call],
             args: Sequence[Sequence[ir.Expr]]) -> list[ir.Expr]:
    stacks = []
    for operands in zip(*args, strict=True):
        single = tuple(op.expand_dims(x, axis=0, span=x.span) for x in operands)
        stacks.append(op.concatenate(ir.Tuple(single), axis=0, span=calls[0].span))
    same = batched is calls[0].op
    attrs = calls[0].attrs if same else _shared_attrs(batched, calls[0])
    whole = ir.Call(batched, tuple(stacks), attrs, span=calls[0].span)
    parts = op.split(whole, indices_or_sections=len(calls), axis=0, span=calls[0].span)
    return [
        op.squeeze(ir.TupleGetItem(parts, i), axis=(0,), span=call.span).with_type(type_of(call))
        for i, call in enumerate(calls)
    ]


def _shared_attrs(batched: ir.Op, call: ir.Call) -> ir.Attrs:
    """The attributes of ``call`` that the operator ``batched`` has too."""
    known = batched.attrs_type.__dataclass_fields__
    return batched.attrs_type.make({k: v for k, v in call.attrs.items() if k in known})
