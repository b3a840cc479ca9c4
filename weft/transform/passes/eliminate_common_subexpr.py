"""Common subexpression elimination by value numbering."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

from weft import ir
from weft.support.dataclass import dataclass
from weft.transform.analysis.graph import known_type, rewrite_function

# Larger constants are weights. Equal ones are rare, and comparing them all costs more than merging
# saves.
MAX_COMPARED_BYTES = 1 << 16
_MERGED = (ir.Call, ir.Tuple, ir.TupleGetItem, ir.Constant)


@ir.register_pass
@dataclass(frozen=True)
class EliminateCommonSubexpr(ir.FunctionPass):
    """Merge equal operator calls, tuples and small constants.

    The order of operands of commutative operators does not matter. ``skip`` names operators whose
    calls are not merged. Calls of functions are never merged, because they may write to a
    reference, and calls of operators with an effect neither.

    def @main(%x: Tensor[(4,), float32]) { add(exp(%x), exp(%x)) }
    =>
    def @main(%x: Tensor[(4,), float32]) { %0 = exp(%x); add(%0, %0) }
    """

    name: ClassVar[str] = "eliminate_common_subexpr"
    opt_level: ClassVar[int] = 2
    skip: tuple[str, ...] = ()

    def run(self, fn: ir.Function, ctx: ir.PassContext) -> ir.Function:  # noqa: ARG002
        first: dict[Hashable, ir.Expr] = {}

        def representative(original: ir.Expr, node: ir.Expr) -> ir.Expr:
            key = self._value_number(original, node)
            return node if key is None else first.setdefault(key, node)

        return rewrite_function(fn, representative, _MERGED)

    def _value_number(self, original: ir.Expr, node: ir.Expr) -> Hashable | None:
        """A key that is equal for equal values; ``None`` for nodes that are never merged.

        Operands compare by identity, because equal ones were merged before. ``original`` is the
        node in the program before the pass, which has a type.
        """
        if isinstance(node, ir.Call):
            if (not isinstance(node.op, ir.Op) or node.op.name in self.skip
                    or node.op.traits.has_effect):
                return None
            operands = [id(arg) for arg in node.args]
            if _commutes(node.op, original):
                operands.sort()
            return node.op.name, node.attrs, *operands
        if isinstance(node, ir.TupleGetItem):
            return "item", node.index, id(node.tuple_value)
        if isinstance(node, ir.Tuple):
            return "tuple", *map(id, node.fields)
        if isinstance(node, ir.Constant) and node.content.nbytes <= MAX_COMPARED_BYTES:
            # Bytes tell 0.0 from -0.0, and find equal NaNs.
            return "constant", node.data.dtype, node.data.shape, node.data.tobytes()
        return None


def _commutes(operator: ir.Op, call: ir.Expr) -> bool:
    """Whether exchanging the operands leaves every bit of the result the same."""
    commutative = operator.traits.commutative
    if commutative is not ir.Commutativity.NUMERIC:
        return commutative is ir.Commutativity.BITWISE
    type_ = known_type(call)  # integers have one zero
    return isinstance(type_, ir.TensorType) and not type_.dtype.is_float
