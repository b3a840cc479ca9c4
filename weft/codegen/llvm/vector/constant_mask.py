"""Which lanes of a vector a predicate lets through, where that is known when code is made."""

from __future__ import annotations

import operator
from collections.abc import Callable

from weft.tir import expr as x
from weft.tir.expr import Broadcast, Call, PrimExpr, Ramp, int_value

_ORDERS: dict[type, Callable[[int, int], bool]] = {
    x.LT: operator.lt, x.LE: operator.le, x.GT: operator.gt, x.GE: operator.ge,
    x.EQ: operator.eq, x.NE: operator.ne,
}


def active_lanes(predicate: PrimExpr) -> list[int] | None:
    """The lanes in which ``predicate`` holds; ``None`` if that depends on more than constants."""
    flags = _flags(predicate)
    return None if flags is None else [lane for lane, flag in enumerate(flags) if flag]


def _flags(e: PrimExpr) -> list[bool] | None:
    if isinstance(e, Call) and e.name == "likely":
        return _flags(e.args[0])
    if isinstance(e, x.And):
        a, b = _flags(e.a), _flags(e.b)
        return None if a is None or b is None else [p and q for p, q in zip(a, b, strict=True)]
    order = _ORDERS.get(type(e))
    if order is None or not isinstance(e, x.Compare):
        return None
    a, b = _numbers(e.a), _numbers(e.b)
    return None if a is None or b is None else [order(p, q) for p, q in zip(a, b, strict=True)]


def _numbers(e: PrimExpr) -> list[int] | None:
    """The value in each lane of a vector of constants."""
    if isinstance(e, Broadcast):
        value = int_value(e.value)
        return None if value is None else [value] * e.lanes
    if isinstance(e, Ramp):
        base, stride = int_value(e.base), int_value(e.stride)
        if base is not None and stride is not None:
            return [base + stride * lane for lane in range(e.lanes)]
    return None


def lane_of(index: PrimExpr, lane: int) -> PrimExpr | None:
    """One lane of an index that is a ramp or the same in every lane."""
    if isinstance(index, Broadcast):
        return index.value
    return index.base + index.stride * lane if isinstance(index, Ramp) else None
