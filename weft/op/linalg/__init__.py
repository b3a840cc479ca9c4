"""Factorizations of batches of matrices: ``op.linalg.lu``, ``op.linalg.cholesky``, …"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.op.index import NAMES
from weft.support.lazy_package import load_names_lazily

if TYPE_CHECKING:
    from weft.op.linalg.factors import (
        PivotOrderAttrs,
        ReflectAttrs,
        cholesky,
        lu,
        pivot_order,
        qr,
        reflect,
    )
    from weft.op.linalg.solving import TriangularSolveAttrs, matrix_exp, triangular_solve
else:
    load_names_lazily(__name__, NAMES[__name__])

__all__ = [
    "PivotOrderAttrs",
    "ReflectAttrs",
    "TriangularSolveAttrs",
    "cholesky",
    "lu",
    "matrix_exp",
    "pivot_order",
    "qr",
    "reflect",
    "triangular_solve",
]
