"""Triangular systems of equations, and the matrix exponential."""

from __future__ import annotations

import numpy as np

from weft import te
from weft.ir import Attrs, OpPattern, RelationContext, attr, define_op, op_case
from weft.ir.traits import FACTORIZATION
from weft.op.batching import merging
from weft.op.cut_axes import leading_axes
from weft.op.linalg.factors import matrices
from weft.op.linalg.gradients import matrix_exp_gradient, triangular_solve_gradient
from weft.support.dataclass import dataclass
from weft.topi import linalg as topi


@dataclass(frozen=True, kw_only=True)
class TriangularSolveAttrs(Attrs):
    lower: bool = attr(True, "read the lower triangle, not the upper one")
    unit: bool = attr(False, "assume ones on the diagonal")


def _solve_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(2)
    if types is None:
        return False
    a, b = types
    for arg in (0, 1):
        matrices(ctx, arg)
    ctx.expect_same_dtype(1, b, a.dtype)
    ctx.expect_dim(0, 2, a.shape[2], a.shape[1], "the matrices are not square")
    ctx.expect_dim(1, 0, b.shape[0], a.shape[0], "the batches differ")
    ctx.expect_dim(1, 1, b.shape[1], a.shape[1], "the right-hand side has another number of rows")
    ctx.output(b)
    return True


@define_op("linalg.triangular_solve", attrs=TriangularSolveAttrs, relation=_solve_relation,
           pattern=OpPattern.OPAQUE, level=3, traits=FACTORIZATION)
def triangular_solve(a: te.Tensor, b: te.Tensor, attrs: TriangularSolveAttrs) -> te.Tensor:
    """``x`` with ``a x = b`` for triangular ``a``; the other triangle is not read."""
    return topi.triangular_solve(a, b, lower=attrs.lower, unit=attrs.unit)


def _solve_reference(a: np.ndarray, b: np.ndarray, lower: bool = True, unit: bool = False
                     ) -> np.ndarray:
    wide = np.tril(a) if lower else np.triu(a)
    wide = wide.astype(np.float64)
    if unit:
        size = a.shape[1]
        wide = wide * (1 - np.eye(size)) + np.eye(size)
    return np.linalg.solve(wide, b.astype(np.float64)).astype(b.dtype)


triangular_solve.gradient(triangular_solve_gradient)
_TRIANGLE = np.random.default_rng(0).uniform(1.0, 2.0, (2, 4, 4)).astype(np.float32)
triangular_solve.spec(
    _solve_reference, op_case(_TRIANGLE, (2, 4, 3)), op_case(_TRIANGLE, (2, 4, 1), lower=False),
    op_case(_TRIANGLE, (2, 4, 2), unit=True), op_case(_TRIANGLE, (2, 4, 2), lower=False, unit=True),
)


def _square_relation(ctx: RelationContext) -> bool:
    source = matrices(ctx, 0)
    if source is None:
        return False
    ctx.expect_dim(0, 2, source.shape[2], source.shape[1], "the matrices are not square")
    ctx.output(source)
    return True


@define_op("linalg.matrix_exp", relation=_square_relation, pattern=OpPattern.OPAQUE, level=3,
           inputs=("x",), traits=FACTORIZATION)
def matrix_exp(x: te.Tensor, _attrs: Attrs) -> te.Tensor:
    """The matrix exponential: the sum of all ``x**n / n!``."""
    return topi.matrix_exp(x)


def _exp_reference(x: np.ndarray) -> np.ndarray:
    """Scaling and squaring: the series of x / 2**8, squared eight times."""
    wide = x.astype(np.float64) / 256.0
    term = total = np.broadcast_to(np.eye(x.shape[1]), x.shape)
    for n in range(1, 25):
        term = term @ wide / n
        total = total + term
    for _ in range(8):
        total = total @ total
    return total.astype(x.dtype)


matrix_exp.gradient(matrix_exp_gradient)
matrix_exp.spec(_exp_reference, op_case((2, 4, 4), low=-3.0, high=3.0), op_case((1, 1, 1)),
                op_case((0, 2, 2)))

matrix_exp.batching(merging())
matrix_exp.cut_axes(leading_axes)
triangular_solve.batching(merging(0, 1))
triangular_solve.cut_axes(leading_axes)
