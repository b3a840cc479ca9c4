"""Duplicate widening casts, so that each consumer fuses its own."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from weft import ir
from weft.support.dataclass import dataclass
from weft.transform.analysis.graph import known_type, op_name, rewrite_function


@ir.register_pass
@dataclass(frozen=True)
class CanonicalizeCast(ir.FunctionPass):
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

    def run(self, fn: ir.Function, ctx: ir.PassContext) -> ir.Function:  # noqa: ARG002
        given: set[ir.Expr] = set()

        def step(_: ir.Expr, node: ir.Expr) -> ir.Expr:
            if not isinstance(node, ir.Call) or not _fuses_with_operands(node):
                return node
            args = tuple(_own(arg, given) for arg in node.args)
            return node.replace(args=args, checked_type=node.checked_type)

        return rewrite_function(fn, step)


def _fuses_with_operands(call: ir.Call) -> bool:
    return isinstance(call.op, ir.Op) and call.op.pattern <= ir.OpPattern.COMM_REDUCE


def _own(arg: ir.Expr, given: set[ir.Expr]) -> ir.Expr:
    """``arg``, or a copy of it if it is a widening cast that another consumer already uses."""
    if not _is_widening(arg):
        return arg
    if arg in given:
        return dataclasses.replace(arg)
    given.add(arg)
    return arg


def _is_widening(expr: ir.Expr) -> bool:
    if op_name(expr) != "cast" or not isinstance(expr, ir.Call):
        return False
    before, after = _dtype(expr.args[0]), _dtype(expr)
    return before is not None and after is not None and before.bits < after.bits


def _dtype(expr: ir.Expr) -> ir.DType | None:
    type_ = known_type(expr)
    return type_.dtype if isinstance(type_, ir.TensorType) else None
