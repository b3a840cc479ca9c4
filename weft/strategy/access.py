"""Strides: how far apart the elements are that a load reads as one axis advances."""

from __future__ import annotations

from weft import te
from weft.te.walk import loads_of
from weft.tir import Analyzer, mentions, substitute, vars_of
from weft.tir.expr import PrimExpr, ProducerLoad, Var, const, int_value
from weft.tir.row_major import ravel
from weft.tir.size_text import bind_size


def flat_index(load: ProducerLoad) -> PrimExpr:
    """The row-major index of the element that ``load`` reads in its tensor."""
    return ravel(load.indices, load.producer.shape)


def stride_along(load: ProducerLoad, axis: te.IterVar, *, size: int | None = None) -> int | None:
    """The stride in elements between the reads of consecutive values of ``axis``.

    0 if the load does not depend on the axis, ``None`` if the stride varies or is symbolic. With
    ``size`` the axis is cut into runs of that length, and only strides inside a run count.
    """
    return int_value(_difference(load, axis, size))


def is_strided(load: ProducerLoad, axis: te.IterVar, *, size: int | None = None) -> bool:
    """Whether the stride along ``axis`` is the same everywhere, and neither 0 nor 1.

    A symbolic stride such as the length of a row counts, as it is rarely 1. ``size`` is that of
    ``stride_along``.
    """
    stride = _difference(load, axis, size)
    value = int_value(stride)
    if value is not None:
        return value not in (0, 1)
    sizes = {var for extent in load.producer.shape for var in vars_of(extent)}
    return vars_of(stride) <= sizes and not loads_of((stride,))


def _difference(load: ProducerLoad, axis: te.IterVar, size: int | None) -> PrimExpr:
    """The index that ``load`` reads for ``axis + 1``, less the one for ``axis``, simplified."""
    offset = flat_index(load)
    if not mentions(offset, axis.var):
        return const(0)
    analyzer, current, step = Analyzer(), axis.var, axis.var
    for extent in (*load.producer.shape, axis.extent):
        for var in vars_of(extent):
            bind_size(analyzer, var)
    analyzer.bind(axis.var, axis.min, axis.extent)
    if size is not None:
        run, step = Var("run"), Var("step")
        analyzer.bind(step, 0, size - 1)  # the last element of a run starts no stride
        offset = substitute(offset, {current: run * size + step})
    after = analyzer.simplify(substitute(offset, {step: step + 1}))
    return analyzer.simplify(after - analyzer.simplify(offset))
