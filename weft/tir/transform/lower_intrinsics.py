"""Replaces transcendental intrinsics with polynomials, for scalars and vectors of any width."""

from __future__ import annotations

from weft.tir.decomp import DECOMPOSITIONS
from weft.tir.expr import Call, PrimExpr, cast
from weft.tir.func import PrimFunc
from weft.tir.visitor import map_body, transform_expr, transform_stmt


def decompose(e: PrimExpr) -> PrimExpr:
    """The arithmetic that computes a transcendental call; other expressions unchanged."""
    if type(e) is not Call:
        return e
    write = DECOMPOSITIONS.get(e.name)
    if write is None:
        return e
    if e.dtype.bits >= 32:
        return write(*e.args)
    return cast(write(*(cast(a, "float32") for a in e.args)), e.dtype.element)


def lower_intrinsics(func: PrimFunc) -> PrimFunc:
    """Replace transcendental calls by arithmetic.

    A[0] = rsqrt(B[0])
    =>
    A[0] = 1.0 / sqrt(B[0])
    """
    memo: dict[PrimExpr, PrimExpr] = {}
    return map_body(
        func, lambda body: transform_stmt(body, None, lambda e: transform_expr(e, decompose, memo))
    )
