"""How calls use constant matrices: the hook ``weight_use``, which quantisation of weights asks.

``column_factors`` names the operands of a norm that scale and shift the columns of its result, so
that factors of columns can be folded into them.
"""

from __future__ import annotations

from typing import Any

from weft.ir import Call
from weft.support.dataclass import dataclass

SCALE, SCALE_AND_SHIFT = (1,), (1, 2)


@dataclass(frozen=True, slots=True)
class WeightUse:
    """The operand that is the matrix; ``by_rows``: a row of it per output, (N, K).

    ``is_table``: the call takes rows of it, by indices, instead of a product.
    """

    operand: int
    by_rows: bool
    is_table: bool = False


def of_dense(call: Call) -> WeightUse | None:
    """Matrices in plain layouts."""
    attrs: Any = call.attrs
    layout = attrs.weight_layout
    return WeightUse(1, layout == "NK") if layout in ("NK", "KN") else None


def of_matmul(call: Call) -> WeightUse | None:
    """Products whose data are not transposed."""
    attrs: Any = call.attrs
    return None if attrs.transpose_a else WeightUse(1, attrs.transpose_b)


def of_take(call: Call) -> WeightUse | None:
    """Rows of a table."""
    attrs: Any = call.attrs
    return WeightUse(0, True, is_table=True) if attrs.axis == 0 else None
