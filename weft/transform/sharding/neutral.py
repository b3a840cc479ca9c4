"""Values that leave a reduction as it is."""

from __future__ import annotations

from typing import Any

from weft import te
from weft.ir import Call, DType
from weft.te.tensor import ComputeOp, PlaceholderOp
from weft.tir import expr as x
from weft.tir.expr import PrimExpr
from weft.transform.sharding.index_maps import Factor, stages, tensors_of
from weft.transform.sharding.windows import padding_of


def neutral_of(reduction: str, dtype: DType) -> float:
    """The value of the padding of an operand that is reduced."""
    if reduction in ("sum", "prod"):
        return 0 if reduction == "sum" else 1
    found: Any = te.reduce.min_value(dtype) if reduction == "max" else te.reduce.max_value(dtype)
    return found.value  # type: ignore[no-any-return]


def reduces_neutral(call: Call, factor: Factor) -> bool:
    """Whether the reduction along a factor reduces its operands, or sums products of them.

    Operands that hold the neutral element are then neutral together.
    """
    built = tensors_of(call)
    if built is None:
        return False
    along = {built[0][n] for n, _ in factor.operands}

    def is_neutral(e: PrimExpr) -> bool:
        while isinstance(e, x.Cast):
            e = e.value
        if isinstance(e, x.Mul):
            return factor.reduction == "sum" and is_neutral(e.a) and is_neutral(e.b)
        if not isinstance(e, x.ProducerLoad):
            return False
        padding = padding_of(e.producer.op)
        if padding is not None:
            return factor.reduction == "sum" and padding.fill == 0 and padding.source in along
        return isinstance(e.producer.op, PlaceholderOp) and e.producer in along

    sources = [source for stage in stages(built[1]) if isinstance(stage, ComputeOp)
               for body in stage.body if isinstance(body, x.Reduce) for source in body.source]
    return bool(sources) and all(map(is_neutral, sources))
