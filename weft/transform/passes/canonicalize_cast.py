"""Duplicate widening casts, so that each consumer fuses its own."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from weft.ir.dtype import DType
from weft.ir.expr import Call, Expr, Function
from weft.ir.op import Op, OpPattern
from weft.ir.passes import FunctionPass, PassContext, register_pass
from weft.ir.types import TensorType
from weft.support.dataclass import dataclass
from weft.transform.analysis.graph import known_type, op_name, rewrite_function


@register_pass
@dataclass(frozen=True)
class CanonicalizeCast(FunctionPass):
    """Give every consumer of a widening cast its own copy of the cast.

    A shared cast would become a kernel that writes the wide values to memory. A copy fuses into
    its consumer, so memory holds only the narrow values. Only consumers that can fuse with their
    operands get a copy.

    def @main(%x: Tensor[(4,), float16]) {
      %0 = cast(%x, dtype="float32");
      (exp(%0), tanh(%0))
    }
    =>
    def @main(%x: Tensor[(4,), float16]) {
      (exp(cast(%x, dtype="float32")), tanh(cast(%x, dtype="float32")))
    }
    """

    name: ClassVar[str] = "canonicalize_cast"
    opt_level: ClassVar[int] = 3

    def run(self, fn: Function, ctx: PassContext) -> Function:  # noqa: ARG002
        given: set[Expr] = set()

        def step(_: Expr, node: Expr) -> Expr:
            if not isinstance(node, Call) or not _fuses_with_operands(node):
                return node
            args = tuple(_own(arg, given) for arg in node.args)
            return node.replace(args=args, checked_type=node.checked_type)

        return rewrite_function(fn, step)


def _fuses_with_operands(call: Call) -> bool:
    return isinstance(call.op, Op) and call.op.pattern <= OpPattern.COMM_REDUCE


def _own(arg: Expr, given: set[Expr]) -> Expr:
    """``arg``, or a copy of it if it is a widening cast that another consumer already uses."""
    if not _is_widening(arg):
        return arg
    if arg in given:
        return dataclasses.replace(arg)
    given.add(arg)
    return arg


def _is_widening(expr: Expr) -> bool:
    if op_name(expr) != "cast" or not isinstance(expr, Call):
        return False
    before, after = _dtype(expr.args[0]), _dtype(expr)
    return before is not None and after is not None and before.bits < after.bits


def _dtype(expr: Expr) -> DType | None:
    type_ = known_type(expr)
    return type_.dtype if isinstance(type_, TensorType) else None
