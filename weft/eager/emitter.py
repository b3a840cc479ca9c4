"""Recording of operators and composites, numbers in the dtype of the tensors beside them."""

from __future__ import annotations

from typing import Any

from weft.eager.cell import Cell, node_of
from weft.eager.dtypes import dtype
from weft.eager.record import as_node, record, wrap


def call(op: str, *operands: Any, **attrs: Any) -> Any:
    """``eager.record.apply``, where a number gets the dtype of the first tensor but booleans."""
    d: dtype | None = None
    for operand in operands:
        if isinstance(operand, Cell):
            own = node_of(operand).sig.out.dtype
            if own.rank > 0:
                d = own
                break
    nodes = tuple([as_node(x, d) if isinstance(x, bool | int | float | complex) else as_node(x)
                   for x in operands])
    return wrap(record(op, nodes, attrs))


class TensorEmitter:
    """Runs composites (``weft.op.composites``) over tensors."""

    call = staticmethod(call)

    @staticmethod
    def detached(value: Any) -> Any:
        """``value`` as a constant of the gradient."""
        return value.detach()


TENSORS = TensorEmitter()
