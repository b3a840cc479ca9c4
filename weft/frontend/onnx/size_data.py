"""Sizes as data: tensors that hold dimensions, computed at run time."""

from __future__ import annotations

from weft import op
from weft.frontend.common.typed import typed
from weft.frontend.onnx.shape_value import Ratio, ShapeValue
from weft.ir.dtype import DType, int64
from weft.ir.expr import Expr, Tuple, const
from weft.ir.shape import AnyDim, SymDim, dim_add
from weft.ir.span import Span
from weft.support.errors import UnsupportedModelError


def size_data(value: ShapeValue, span: Span) -> Expr:
    """The elements of ``value`` as a tensor of its dtype.

    Raises ``UnsupportedModelError`` for sizes that only the data of a tensor decides.
    """
    wide = DType.of("float64" if value.dtype.is_float else "int64")
    parts = [_cast(_element(item, span), wide, span) for item in value.dims.reshape(-1).tolist()]
    vector = parts[0] if len(parts) == 1 else typed(
        op.concatenate(Tuple(tuple(parts), span=span), axis=0, span=span))
    result = typed(op.reshape(vector, newshape=value.dims.shape, span=span))
    return _cast(result, value.dtype, span)


def _element(item: object, span: Span) -> Expr:
    """A vector of one element, int64 or float64."""
    if isinstance(item, AnyDim):
        raise UnsupportedModelError("a data-dependent size is computed "
                                    "with", where=span)
    if isinstance(item, Ratio):
        whole = _cast(_element(item.numerator, span), DType.of("float64"), span)
        if item.denominator == 1:
            return whole
        return typed(op.divide(whole, const(float(item.denominator), "float64"), span=span))
    if isinstance(item, float):
        return typed(op.full(const(item, "float64"), shape=(1,), span=span))
    size = item if isinstance(item, (int, SymDim)) else 0
    return typed(op.arange(start=size, stop=dim_add(size, 1), dtype=int64, span=span))


def _cast(value: Expr, dtype: DType, span: Span) -> Expr:
    if getattr(value.checked_type, "dtype", None) == dtype:
        return value
    return typed(op.cast(value, dtype=dtype, span=span))
