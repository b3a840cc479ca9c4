"""Affine types: how the integers of quantised programs stand for real values.

They are no types of the language, whose tensors stay tensors of integers; an analysis maps
expressions to them (``weft.transform.precision.affine_types``).
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from weft.ir.dtype import DType
from weft.ir.expr import Constant, Expr
from weft.ir.types import TensorType
from weft.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class TensorAffineType:
    """Real values are ``scale * (stored - zero)``; ``stored`` are integers of ``dtype``.

    Scales and zero points of more than one element vary along ``axis``.
    """

    scale: Expr
    zero: Expr
    dtype: DType
    axis: int = -1

    @property
    def is_uniform(self) -> bool:
        """Whether one scale and one zero point apply to the whole tensor."""
        return all(isinstance(p.checked_type, TensorType) and p.checked_type.shape in ((), (1,))
                   for p in (self.scale, self.zero))

    def is_same(self, other: TensorAffineType) -> bool:
        """Whether the same integers are known to stand for the same values."""
        same = is_equal(self.scale, other.scale) and is_equal(self.zero, other.zero)
        return same and self.dtype == other.dtype and (self.is_uniform or self.axis == other.axis)

    def __str__(self) -> str:
        axis = "" if self.is_uniform else f", axis {self.axis}"
        return f"{_text(self.scale)} * ({self.dtype} - {_text(self.zero)}){axis}"


@dataclass(frozen=True, slots=True)
class TupleAffineType:
    """The affine types of the fields of a tuple; ``None`` for a field of real values."""

    types: tuple[AffineType | None, ...]

    def __str__(self) -> str:
        return f"({', '.join('real' if one is None else str(one) for one in self.types)})"


AffineType: TypeAlias = "TensorAffineType | TupleAffineType"


def is_equal(a: Expr, b: Expr) -> bool:
    """Whether two scales or zero points are known to be equal."""
    return a is b or (isinstance(a, Constant) and isinstance(b, Constant)
                      and np.array_equal(a.data, b.data))


def _text(parameter: Expr) -> str:
    if isinstance(parameter, Constant) and parameter.data.size == 1:
        return f"{parameter.data.item():.6g}"
    kind = parameter.checked_type
    return str(kind) if isinstance(kind, TensorType) and kind.shape else "?"
