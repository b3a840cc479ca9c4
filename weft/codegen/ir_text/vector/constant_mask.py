"""Constant-mask analysis: the lanes in which a predicate holds, where constants decide it."""

from __future__ import annotations

import operator
from collections.abc import Callable

from weft.tir import Broadcast, Call, PrimExpr, Ramp, int_value
from weft.tir import expr as x

_PREDICATES: dict[type, Callable[[int, int], bool]] = {
    x.LT: operator.lt, x.LE: operator.le, x.GT: operator.gt, x.GE: operator.ge,
    x.EQ: operator.eq, x.NE: operator.ne,
}


def active_lanes(predicate: PrimExpr) -> list[int] | None:
    """The lanes in which ``predicate`` holds; ``None`` if run-time values decide it."""
    flags = _mask_of(predicate)
    return None if flags is None else [lane for lane, flag in enumerate(flags) if flag]


def _mask_of(e: PrimExpr) -> list[bool] | None:
    if isinstance(e, Call) and e.name == "likely":
        return _mask_of(e.args[0])
    if isinstance(e, x.And):
        a, b = _mask_of(e.a), _mask_of(e.b)
        return None if a is None or b is None else [p and q for p, q in zip(a, b, strict=True)]
    compare = _PREDICATES.get(type(e))
    if compare is None or not isinstance(e, x.Compare):
        return None
    a, b = _lane_values(e.a), _lane_values(e.b)
    return None if a is None or b is None else [compare(p, q) for p, q in zip(a, b, strict=True)]


def _lane_values(e: PrimExpr) -> list[int] | None:
    """The values of the lanes of a constant broadcast or ramp; ``None`` for other vectors."""
    if isinstance(e, Broadcast):
        value = int_value(e.value)
        return None if value is None else [value] * e.lanes
    if isinstance(e, Ramp):
        base, stride = int_value(e.base), int_value(e.stride)
        if base is not None and stride is not None:
            return [base + stride * lane for lane in range(e.lanes)]
    return None


def lane_of(index: PrimExpr, lane: int) -> PrimExpr | None:
    """One lane of a ramp or broadcast as a scalar; ``None`` for other vectors."""
    if isinstance(index, Broadcast):
        return index.value
    return index.base + index.stride * lane if isinstance(index, Ramp) else None
