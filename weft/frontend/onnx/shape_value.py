"""Tensors whose elements are dimensions.

Exporters compute ``Reshape`` targets with nodes: ``Shape -> Gather -> Unsqueeze -> Concat``. If all
sizes are fixed, these fold to constants. If some are symbolic, a ``ShapeValue`` holds an array of
dimensions, and ``shape_rules`` evaluates nodes on it at import; no kernels are generated. Where a
node needs the sizes as data, ``size_data`` computes a tensor of them at run time.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from weft import op
from weft.frontend.common.typed import typed
from weft.ir import DType, Expr, Span, Tuple, const, int64
from weft.ir.shape import AnyDim, Dim, Shape, SymDim, dim_add, dim_floordiv, dim_mul, dim_sub
from weft.support.dataclass import dataclass
from weft.support.errors import UnsupportedModelError

# Scales up to here times a size are exact in float32, for sizes below 2**14.
_EXACT = 1 << 10


@dataclass(frozen=True)
class Ratio:
    """A quotient of a dimension and a number, as float arithmetic on sizes gives it.

    ``is_exact`` is false if the float quotient is rounded. Its floor is still that of the exact
    quotient, because it is rounded once.
    """

    numerator: SymDim
    denominator: int = 1

    @property
    def is_exact(self) -> bool:
        return self.denominator & (self.denominator - 1) == 0

    def floor(self) -> Dim:
        return dim_floordiv(self.numerator, self.denominator)

    def ceil(self) -> Dim:
        return -dim_floordiv(dim_mul(self.numerator, -1), self.denominator)  # type: ignore[operator]

    def times(self, factor: float) -> Ratio:
        """The product with a number; raises ``TypeError`` if floats would round it."""
        from fractions import Fraction

        exact = Fraction(float(factor))
        if exact <= 0 or max(exact.numerator, exact.denominator) > _EXACT or not self.is_exact:
            raise TypeError("the product may be rounded")
        return _reduced(dim_mul(self.numerator, exact.numerator),
                        self.denominator * exact.denominator)

    def over(self, divisor: float) -> Ratio:
        """The quotient by a number; raises ``TypeError`` if floats would round it twice."""
        from fractions import Fraction

        exact = Fraction(float(divisor))
        if exact <= 0 or max(exact.numerator, exact.denominator) > _EXACT or not self.is_exact:
            raise TypeError("the quotient may be rounded")
        return _reduced(dim_mul(self.numerator, exact.denominator),
                        self.denominator * exact.numerator)


def _reduced(numerator: Dim, denominator: int) -> Ratio:
    if not isinstance(numerator, SymDim):
        raise TypeError("not a symbolic size")
    whole = dim_floordiv(numerator, denominator)
    if isinstance(whole, SymDim) and dim_sub(dim_mul(whole, denominator), numerator) == 0:
        return Ratio(whole)
    return Ratio(numerator, denominator)


# An element of a shape value: a dimension, a truth value, or a number in float arithmetic.
Element: TypeAlias = "int | bool | float | SymDim | Ratio"


@dataclass(frozen=True, eq=False)
class ShapeValue:
    """A tensor whose elements are known at import, at least one of them a symbolic size."""

    dims: np.ndarray  # of dtype object, with an ``Element`` each
    dtype: DType = int64

    @staticmethod
    def of_shape(shape: Shape) -> ShapeValue:
        """The shape of a tensor, as a vector."""
        return ShapeValue(object_array(list(shape)))

    def flat(self) -> tuple[Dim, ...]:
        """The elements in order; raises ``TypeError`` if some are not dimensions."""
        items = self.dims.reshape(-1).tolist()
        if not all(isinstance(d, (int, SymDim, AnyDim)) for d in items):
            raise TypeError("not a shape")
        return tuple(items)


def object_array(items: list[Dim]) -> np.ndarray:
    array = np.empty(len(items), object)
    array[:] = items
    return array


def settle(dims: np.ndarray, dtype: DType = int64) -> ShapeValue | np.ndarray:
    """Return an array if every element is a number, else a ``ShapeValue``."""
    if all(isinstance(d, (int, float)) for d in dims.reshape(-1).tolist()):
        return dims.astype(dtype.numpy)
    return ShapeValue(dims, dtype)


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
