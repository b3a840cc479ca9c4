"""Factorisations of small matrices, in float64: LU, Cholesky, QR, and what they solve.

Tensors are batches of matrices, (batch, rows, columns). The loops are the textbook ones (Golub and
Van Loan, Matrix Computations, 3.4, 4.2, 5.2), with the conventions of LAPACK for what is stored.
"""

from weft.topi.linalg.cholesky import cholesky
from weft.topi.linalg.exponential import matrix_exp
from weft.topi.linalg.lu import lu, pivot_order
from weft.topi.linalg.qr import qr, reflect
from weft.topi.linalg.triangular import triangular_solve

__all__ = ["cholesky", "lu", "matrix_exp", "pivot_order", "qr", "reflect", "triangular_solve"]
