"""Which attention runs as plain products and a softmax: where lanes would be mostly empty."""

from __future__ import annotations

from collections.abc import Sequence

from weft.ir.dtype import float32
from weft.ir.expr import Call, Expr
from weft.ir.passes import PassContext
from weft.ir.types import TensorType, Type
from weft.op.nn.attention import expand_attention
from weft.strategy.cpu.attention import attention_size
from weft.strategy.cpu.attention_plan import plan_attention, unfused_cycles
from weft.strategy.registry import legalize
from weft.target import Target

WORTH = 0.85  # of the fused time: the estimates are not better than that


def as_products(call: Call, types: Sequence[Type], context: PassContext) -> Expr | None:
    """The expansion, where a tile of queries would have many lanes without a query.

    Queries that fill no more than one vector always stay: products of so few rows are slow.
    """
    query, target, size = types[0], context.target, attention_size(call)
    if size is None or not isinstance(target, Target) or not isinstance(query, TensorType):
        return None
    if query.dtype is not float32 or size.queries <= target.lanes("float32"):
        return None
    fused = plan_attention(size, target).cycles
    return expand_attention(call) if unfused_cycles(size, target) < WORTH * fused else None


legalize("nn.attention", target="cpu")(as_products)
legalize("nn.masked_attention", target="cpu")(as_products)
