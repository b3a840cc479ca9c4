"""Factorizations of batches of matrices: ``op.linalg.lu``, ``op.linalg.cholesky``, …"""

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
