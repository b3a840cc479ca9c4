"""How a load walks memory as one axis advances."""

from __future__ import annotations

from weft import te
from weft.tir.expr import PrimExpr, ProducerLoad, Var, const, int_value
from weft.tir.simplify import Analyzer
from weft.tir.visitor import mentions, substitute


def flat_index(load: ProducerLoad) -> PrimExpr:
    """The element that ``load`` reads, counted in row-major order."""
    position: PrimExpr = const(0)
    for index, size in zip(load.indices, load.producer.shape, strict=True):
        position = position * size + index
    return position


def step_along(load: ProducerLoad, axis: te.IterVar, *, size: int | None = None) -> int | None:
    """Elements from one read to the next as ``axis`` advances by one.

    0 where the load ignores the axis, ``None`` where the step is not the same everywhere. With
    ``size``, only steps within runs that start at a multiple of it count.
    """
    position = flat_index(load)
    if not mentions(position, axis.var):
        return 0
    analyzer, here, step = Analyzer(), axis.var, axis.var
    analyzer.bind(axis.var, axis.min, axis.extent)
    if size is not None:
        run, step = Var("run"), Var("step")
        analyzer.bind(step, 0, size - 1)  # the last has no next
        position = substitute(position, {here: run * size + step})
    after = analyzer.simplify(substitute(position, {step: step + 1}))
    return int_value(analyzer.simplify(after - analyzer.simplify(position)))

