"""Strides: how far apart the elements are that a load reads as one axis advances."""

from __future__ import annotations

from weft import te
from weft.tir.expr import PrimExpr, ProducerLoad, Var, const, int_value
from weft.tir.simplify import Analyzer
from weft.tir.visitor import mentions, substitute


def flat_index(load: ProducerLoad) -> PrimExpr:
    """The row-major index of the element that ``load`` reads in its tensor."""
    offset: PrimExpr = const(0)
    for index, size in zip(load.indices, load.producer.shape, strict=True):
        offset = offset * size + index
    return offset


def stride_along(load: ProducerLoad, axis: te.IterVar, *, size: int | None = None) -> int | None:
    """The stride in elements between the reads of consecutive values of ``axis``.

    0 if the load does not depend on the axis, ``None`` if the stride varies. With ``size`` the axis
    is cut into runs of that length, and only strides inside a run count.
    """
    offset = flat_index(load)
    if not mentions(offset, axis.var):
        return 0
    analyzer, current, step = Analyzer(), axis.var, axis.var
    analyzer.bind(axis.var, axis.min, axis.extent)
    if size is not None:
        run, step = Var("run"), Var("step")
        analyzer.bind(step, 0, size - 1)  # the last element of a run starts no stride
        offset = substitute(offset, {current: run * size + step})
    after = analyzer.simplify(substitute(offset, {step: step + 1}))
    return int_value(analyzer.simplify(after - analyzer.simplify(offset)))

