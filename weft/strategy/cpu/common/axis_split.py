"""Division/modulo axis split: an innermost axis indexed by ``i // k`` and ``i % k`` becomes two.

Then a tiled row (``tile``) is a copy of whole rows, and the interleaved elements of a pixel shuffle
or of ``repeat`` are the columns of a narrow transpose.
"""

from __future__ import annotations

from weft import te
from weft.strategy.access import flat_index
from weft.strategy.extents import is_multiple, size_of
from weft.te import loads_of, rewrite_body
from weft.tir import Analyzer, FloorDiv, FloorMod, PrimExpr, ProducerLoad, Var, const, int_value
from weft.tir.visitor import post_order, substitute

# Inner axes of fewer elements are too short to copy as rows.
SHORT_ROW = 4


def split_innermost(
    stage: te.Stage, body: tuple[PrimExpr, ...]
) -> tuple[list[te.IterVar], tuple[PrimExpr, ...]]:
    """The axes of ``stage``, the innermost one split if that pays, and ``body`` over them."""
    axes = list(stage.axis)
    period = _period(axes[-1], body) if axes else None
    if period is None or not _is_worth_it(axes[-1], period, body):
        return axes, body
    *outer, last = axes
    outer_axis, inner_axis = stage.split(last, factor=period)
    analyzer = Analyzer()
    for axis in (outer_axis, inner_axis):
        analyzer.bind(axis.var, axis.min, axis.extent)
    whole = outer_axis.var * period + inner_axis.var

    def simplified(load: ProducerLoad) -> PrimExpr:
        return load.producer[tuple(map(analyzer.simplify, load.indices))]

    rewritten = rewrite_body(rewrite_body(body, {last.var: whole}), {}, simplified)
    return [*outer, outer_axis, inner_axis], rewritten


def _period(axis: te.IterVar, body: tuple[PrimExpr, ...]) -> int | None:
    """The single divisor that loads apply to the axis, if it divides the extent."""
    found = {
        int_value(e.b) for load in loads_of(body) for index in load.indices
        for e in post_order(index) if isinstance(e, FloorMod | FloorDiv) and e.a is axis.var
    }
    period = found.pop() if len(found) == 1 else None
    extent = size_of(axis.extent)
    splits = period is not None and 1 < period < extent and is_multiple(axis.extent, period)
    return period if splits else None


def _is_worth_it(axis: te.IterVar, period: int, body: tuple[PrimExpr, ...]) -> bool:
    """Whether loads are contiguous along one of the two axes, or do not depend on it."""
    steps = [_steps(load, axis, period) for load in loads_of(body)]
    along, across = map(set, zip(*steps, strict=True))
    if across <= {0, 1} and period >= SHORT_ROW:
        return True
    return along <= {0, 1} and 1 in along


def _steps(load: ProducerLoad, axis: te.IterVar, period: int) -> tuple[int | None, int | None]:
    """The strides of a load along the outer and the inner axis; ``None`` if not constant."""
    analyzer, outer, inner = Analyzer(), Var("outer"), Var("inner")
    analyzer.bind(inner, 0, period - 1)  # without the last index, which has no successor
    position = substitute(flat_index(load), {axis.var: outer * const(period) + inner})
    found = []
    for var in (outer, inner):
        after = analyzer.simplify(substitute(position, {var: var + 1}))
        found.append(int_value(analyzer.simplify(after - analyzer.simplify(position))))
    return found[0], found[1]
