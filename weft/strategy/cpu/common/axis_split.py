"""The innermost axis as two, where reads repeat along it: ``i % k`` and ``i // k`` are axes then.

Tiled rows are copies of whole rows, and what a pixel shuffle or a repetition puts side by side are
the columns of a narrow transpose.
"""

from __future__ import annotations

from weft import te
from weft.strategy.access import flat_index
from weft.strategy.analysis import size_of
from weft.te.walk import loads_of, rewrite_body
from weft.tir.expr import FloorDiv, FloorMod, PrimExpr, ProducerLoad, Var, const, int_value
from weft.tir.simplify import Analyzer
from weft.tir.visitor import post_order, substitute

# Inner parts of fewer elements are no rows to copy.
SHORT_ROW = 4


def split_innermost(
    stage: te.Stage, body: tuple[PrimExpr, ...]
) -> tuple[list[te.IterVar], tuple[PrimExpr, ...]]:
    """The axes of ``stage``, the innermost in two where that helps, and ``body`` over them."""
    axes = list(stage.axis)
    period = _period(axes[-1], body) if axes else None
    if period is None or not _is_worth_it(axes[-1], period, body):
        return axes, body
    *outer, last = axes
    parts = stage.split(last, factor=period)
    analyzer = Analyzer()
    for part in parts:
        analyzer.bind(part.var, part.min, part.extent)
    whole = parts[0].var * period + parts[1].var

    def simplified(load: ProducerLoad) -> PrimExpr:
        return load.producer[tuple(map(analyzer.simplify, load.indices))]

    rewritten = rewrite_body(rewrite_body(body, {last.var: whole}), {}, simplified)
    return [*outer, *parts], rewritten


def _period(axis: te.IterVar, body: tuple[PrimExpr, ...]) -> int | None:
    """The one number by which reads divide the axis, if it divides its extent."""
    found = {
        int_value(e.b) for load in loads_of(body) for index in load.indices
        for e in post_order(index) if isinstance(e, FloorMod | FloorDiv) and e.a is axis.var
    }
    period = found.pop() if len(found) == 1 else None
    extent = size_of(axis.extent)
    is_part = period is not None and 1 < period < extent and extent % period == 0
    return period if is_part else None


def _is_worth_it(axis: te.IterVar, period: int, body: tuple[PrimExpr, ...]) -> bool:
    """Whether reads are contiguous along one of the parts, or ignore it."""
    steps = [_steps(load, axis, period) for load in loads_of(body)]
    along, across = (set(part) for part in zip(*steps, strict=True))
    if across <= {0, 1} and period >= SHORT_ROW:
        return True
    return along <= {0, 1} and 1 in along


def _steps(load: ProducerLoad, axis: te.IterVar, period: int) -> tuple[int | None, int | None]:
    """Elements between reads as the outer part advances, and as the inner one does."""
    analyzer, outer, inner = Analyzer(), Var("outer"), Var("inner")
    analyzer.bind(inner, 0, period - 1)  # the last has no next
    here = substitute(flat_index(load), {axis.var: outer * const(period) + inner})
    found = []
    for part in (outer, inner):
        after = analyzer.simplify(substitute(here, {part: part + 1}))
        found.append(int_value(analyzer.simplify(after - analyzer.simplify(here))))
    return found[0], found[1]
