"""How a load walks memory as one axis advances."""

from __future__ import annotations

from weft import te
from weft.tir.expr import PrimExpr, ProducerLoad, Var, const, int_value
from weft.tir.simplify import Analyzer
from weft.tir.visitor import post_order, substitute


def flat_index(load: ProducerLoad) -> PrimExpr:
    """The element that ``load`` reads, counted in row-major order."""
    position: PrimExpr = const(0)
    for index, size in zip(load.indices, load.producer.shape, strict=True):
        position = position * size + index
    return position


def step_along(load: ProducerLoad, axis: te.IterVar, analyzer: Analyzer | None = None) -> int | None:
    """Elements from one read to the next as ``axis`` advances by one.

    0 where the load ignores the axis, ``None`` where the step is not the same everywhere.
    """
    position = flat_index(load)
    if not _mentions(position, axis.var):
        return 0
    after = substitute(position, {axis.var: axis.var + 1})
    return int_value((analyzer or Analyzer()).simplify(after - position))


def _mentions(e: PrimExpr, var: Var) -> bool:
    return any(node is var for node in post_order(e))
