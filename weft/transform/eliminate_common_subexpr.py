"""Common subexpression elimination by value numbering."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar

from weft.ir.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem
from weft.ir.op import Op
from weft.ir.passes import FunctionPass, PassContext, register_pass
from weft.transform.graph import rewrite_function

# Larger constants are weights; two equal ones are rare, and reading them all costs more than it
# saves.
MAX_COMPARED_BYTES = 1 << 16


@register_pass
@dataclass(frozen=True)
class EliminateCommonSubexpr(FunctionPass):
    """Merge operator calls, tuples and small constants that are equal.

    ``skip`` names operators whose calls stay apart. Calls of functions are never merged: they may
    write to a reference.

    def @main(%x: Tensor[(4,), float32]) { add(exp(%x), exp(%x)) }
    =>
    def @main(%x: Tensor[(4,), float32]) { %0 = exp(%x); add(%0, %0) }
    """

    name: ClassVar[str] = "eliminate_common_subexpr"
    opt_level: ClassVar[int] = 2
    skip: tuple[str, ...] = ()

    def run(self, fn: Function, ctx: PassContext) -> Function:  # noqa: ARG002
        first: dict[Hashable, Expr] = {}

        def representative(_: Expr, node: Expr) -> Expr:
            key = self._value_number(node)
            return node if key is None else first.setdefault(key, node)

        return rewrite_function(fn, representative)

    def _value_number(self, node: Expr) -> Hashable | None:
        """A key equal for equal values; ``None`` for what is never merged.

        Operands are compared by identity, which is equality here: they were merged before.
        """
        if isinstance(node, Call):
            if not isinstance(node.op, Op) or node.op.name in self.skip:
                return None
            return node.op.name, node.attrs, *map(id, node.args)
        if isinstance(node, TupleGetItem):
            return "item", node.index, id(node.tuple_value)
        if isinstance(node, Tuple):
            return "tuple", *map(id, node.fields)
        if isinstance(node, Constant) and node.data.nbytes <= MAX_COMPARED_BYTES:
            return "constant", node.data.dtype.name, node.data.shape, node.data.tobytes()
        return None
