"""Dense layers over stacks of rows whose weight is not constant: one product of two matrices."""

from __future__ import annotations

from collections.abc import Sequence

from weft.ir import Call, Constant, Expr, PassContext, TensorType, Type, dim_product, has_any
from weft.ir.op import get_op
from weft.op.nn.dense import DenseAttrs
from weft.strategy.implementation import attrs_of
from weft.strategy.registry import legalize

MATRIX = 2


@legalize("nn.dense", target="cpu")
def flatten_rows(
    call: Call, types: Sequence[Type], context: PassContext  # noqa: ARG001
) -> Expr | None:
    """The leading axes of the data as rows; ``None`` to keep the call.

    A constant weight is packed, and its GEMM takes data of any rank. That over a weight as it is
    stored, which training changes, takes matrices.
    """
    data, weight = types[:2]
    if not isinstance(data, TensorType) or not isinstance(weight, TensorType):
        return None
    is_matrix = data.ndim <= MATRIX or has_any(data.shape)
    packed = attrs_of(call, DenseAttrs).weight_layout not in ("NK", "KN")
    if is_matrix or packed or isinstance(call.args[1], Constant):
        return None
    *leading, depth = data.shape
    reshape = get_op("reshape")
    rows = reshape(call.args[0], newshape=(dim_product(tuple(leading)), depth), allowzero=True)
    result = call.replace(args=(rows, call.args[1]), checked_type=None)
    columns = weight.shape[0 if attrs_of(call, DenseAttrs).weight_layout == "NK" else 1]
    return reshape(result, newshape=(*leading, columns), allowzero=True)
