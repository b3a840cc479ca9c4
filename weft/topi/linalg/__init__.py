"""Factorisations of small matrices in float64: LU, Cholesky, QR, and their solvers.

Tensors are batches of matrices, (batch, rows, columns). The algorithms are those of Golub and Van
Loan, Matrix Computations, 3.4, 4.2 and 5.2; the storage formats are LAPACK's.
"""

from weft.topi.linalg.cholesky import cholesky
from weft.topi.linalg.exponential import matrix_exp
from weft.topi.linalg.lu import lu, pivot_order
from weft.topi.linalg.qr import qr, reflect
from weft.topi.linalg.triangular import triangular_solve

__all__ = ["cholesky", "lu", "matrix_exp", "pivot_order", "qr", "reflect", "triangular_solve"]
