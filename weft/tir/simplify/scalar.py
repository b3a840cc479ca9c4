"""Folding of floats, where the result has the same bits, and of vector index arithmetic."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from weft.ir.dtype import int64
from weft.tir import expr as x
from weft.tir.expr import Broadcast, FloatImm, PrimExpr, Ramp

_FOLD: dict[type, np.ufunc] = {
    x.Add: np.add,
    x.Sub: np.subtract,
    x.Mul: np.multiply,
    x.Div: np.divide,
}


class Simplifier(Protocol):
    def simplify(self, e: PrimExpr) -> PrimExpr: ...


class Prover(Simplifier, Protocol):
    def is_exact(self, e: PrimExpr) -> bool: ...


def fold_float(e: PrimExpr) -> PrimExpr:
    """Fold constants in their own precision, and ``a * 1``, ``a / 1`` and ``a - 0`` to ``a``.

    ``a + 0`` is not folded: for -0 it is +0.
    """
    fold = _FOLD.get(type(e))
    if fold is None or type(e.b) is not FloatImm:  # type: ignore[attr-defined]
        return e
    a, b = e.a, e.b  # type: ignore[attr-defined]
    if type(a) is FloatImm:
        with np.errstate(all="ignore"):
            kind = e.dtype.numpy.type
            return FloatImm(float(fold(kind(a.value), kind(b.value))), e.dtype)
    neutral = FloatImm(1.0 if type(e) in (x.Mul, x.Div) else 0.0, e.dtype)
    return a if b is neutral and type(e) is not x.Add else e


def fold_vector(simplifier: Prover, e: PrimExpr) -> PrimExpr:
    """Fold arithmetic on ramps and broadcasts to one ramp, and comparisons that are constant."""
    kind = type(e)
    if isinstance(e, x.Compare):
        return _fold_compare(simplifier, e)
    if kind in (x.Add, x.Sub, x.Mul) and e.dtype.element is int64:
        return fold_index_vector(simplifier, e)  # type: ignore[arg-type]
    return e


def _base_and_stride(e: PrimExpr) -> tuple[PrimExpr, PrimExpr] | None:
    """``(base, stride)`` of a ramp or a broadcast."""
    if type(e) is Ramp:
        return e.base, e.stride
    return (e.value, x.const(0)) if type(e) is Broadcast else None


def _ramp(base: PrimExpr, stride: PrimExpr, lanes: int) -> PrimExpr:
    return Broadcast(base, lanes) if stride is x.const(0) else Ramp(base, stride, lanes)


def fold_index_vector(simplifier: Simplifier, e: x.Binary) -> PrimExpr:
    """A sum, difference or product of ramps and broadcasts as one ramp or broadcast."""
    a, b = _base_and_stride(e.a), _base_and_stride(e.b)
    if a is None or b is None or type(e) not in (x.Add, x.Sub, x.Mul):
        return e
    if type(e) is x.Mul:
        if type(e.a) is Broadcast:
            a, b = b, a
        if b[1] is not x.const(0):
            return e  # the product of two ramps is not a ramp
        base, stride = x.mul(a[0], b[0]), x.mul(a[1], b[0])
    else:
        combine = x.add if type(e) is x.Add else x.sub
        base, stride = combine(a[0], b[0]), combine(a[1], b[1])
    return _ramp(simplifier.simplify(base), simplifier.simplify(stride), e.dtype.lanes)


def _fold_compare(simplifier: Prover, e: x.Compare) -> PrimExpr:
    """Decide an inequality of ramps: they are monotone, so the first and last lane suffice."""
    a, b = _base_and_stride(e.a), _base_and_stride(e.b)
    if a is None or b is None or e.a.dtype.element is not int64 or type(e) in (x.EQ, x.NE):
        return e
    last = x.const(e.dtype.lanes - 1)
    ends = [
        tuple(simplifier.simplify(base + stride * k) for base, stride in (a, b))
        for k in (x.const(0), last)
    ]
    decided = [simplifier.simplify(x.compare(type(e), *end)) for end in ends]
    if decided[0] is not decided[1] or decided[0] not in (x.TRUE, x.FALSE):
        return e
    grown = [(base, stride) for base, stride in (a, b) if stride is not x.const(0)]
    if all(_is_straight(simplifier, *ramp, e.dtype.lanes) for ramp in grown):
        return Broadcast(decided[0], e.dtype.lanes)
    return e


def _is_straight(simplifier: Prover, base: PrimExpr, stride: PrimExpr, lanes: int) -> bool:
    """Whether no lane of a ramp can overflow."""
    step = simplifier.simplify(stride * (lanes - 1))
    return all(map(simplifier.is_exact, (step, base + stride * (lanes - 1))))
