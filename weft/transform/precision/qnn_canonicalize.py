"""Lower quantized operators to arithmetic on integers and floats."""

from __future__ import annotations

from typing import ClassVar

from weft.ir import Call, Expr, Function, FunctionPass, PassContext, Seeks, register_pass
from weft.op.qnn.composed import check_parameters
from weft.support.dataclass import dataclass
from weft.transform.analysis.graph import op_name, rewrite_function
from weft.transform.passes.canonicalize_ops import decomposed


@register_pass
@dataclass(frozen=True)
class QnnCanonicalize(FunctionPass):
    """Replace every ``qnn`` operator by its decomposition.

    Later passes see scales and zero points as ordinary operands, and fold them where they are
    constant. 8-bit contractions stay 8-bit contractions, corrected by row and column sums for the
    zero points, so that they use the CPU's 8-bit instructions.

    def @main(%x: Tensor[(3,), int8]) { qnn.dequantize(%x, 0.5f, 0) }
    =>
    def @main(%x: Tensor[(3,), int8]) { multiply(cast(%x, dtype=float32), 0.5f) }
    """

    name: ClassVar[str] = "qnn_canonicalize"
    opt_level: ClassVar[int] = 0
    seeks: ClassVar[Seeks] = Seeks(operator=lambda op: op.name.startswith("qnn."))

    def run(self, fn: Function, ctx: PassContext) -> Function:  # noqa: ARG002
        return rewrite_function(fn, _canonicalize)


def _canonicalize(original: Expr, node: Expr) -> Expr:
    if not (isinstance(node, Call) and isinstance(original, Call)
            and op_name(node).startswith("qnn.")):
        return node
    check_parameters(node)
    return decomposed(node)
