"""Factorizations of matrices and what they solve, in float64."""

from weft.topi.linalg.cholesky import cholesky
from weft.topi.linalg.eigen import eigh
from weft.topi.linalg.exponential import matrix_exp
from weft.topi.linalg.lu import lu, pivot_order
from weft.topi.linalg.qr import qr, reflect
from weft.topi.linalg.singular import svd
from weft.topi.linalg.triangular import triangular_solve

__all__ = ["cholesky", "eigh", "lu", "matrix_exp", "pivot_order", "qr", "reflect", "svd",
           "triangular_solve"]
