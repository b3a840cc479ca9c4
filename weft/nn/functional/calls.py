"""Recording of operators, with Python numbers in the dtype of the tensors beside them."""

from __future__ import annotations

from typing import Any

from weft.eager.dtypes import dtype
from weft.eager.record import as_node, record, wrap
from weft.eager.tensor import Tensor


def call(op: str, *operands: Any, **attrs: Any) -> Any:
    """``eager.record.apply``, where a number gets the dtype of the first tensor but booleans."""
    d: dtype | None = None
    for operand in operands:
        if isinstance(operand, Tensor) and operand.dtype.rank > 0:
            d = operand.dtype
            break
    nodes = tuple([as_node(x, d) if isinstance(x, bool | int | float) else as_node(x)
                   for x in operands])
    return wrap(record(op, nodes, attrs))
