"""The sizes for which a trace of torch holds: its ranges, extended to the size 1.

torch assumes that traced sizes are 2 or more. Size 0 is left out of the ranges: decompositions and
Python code ask whether there are elements at all, and torch answers without a trace of the
question.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence

import sympy
import torch
import torch.fx

from weft.frontend.torch.dims import expression_of, symbols_in
from weft.frontend.torch.trace import Trace


def ranges_of(trace: Trace, guards: Sequence[sympy.Basic]) -> dict[str, range]:
    """The values of each of torch's symbols for which the trace holds, at all values of others.

    ``guards`` are checked apart from them.
    """
    ranges = {str(symbol): _range(values)
              for symbol, values in trace.exported.range_constraints.items()}
    usual = trace.usual_sizes()
    found = {name: ranges.get(name, range(sys.maxsize)) for name in usual}
    asked = [name for name, values in found.items() if values.start <= 2 < values.stop]
    with_one = [name for name in asked if trace.holds_at({name: 1}, guards)]
    for pair in _related(trace, with_one):
        if set(pair) <= set(with_one) and not trace.holds_at(dict.fromkeys(pair, 1), guards):
            with_one.remove(pair[1])
    return {name: range(1 if name in with_one else max(values.start, 2), values.stop)
            for name, values in found.items()}


def _range(values: object) -> range:
    low, high = values.lower, values.upper  # type: ignore[attr-defined]
    return range(max(int(low), 0) if low.is_Integer else 0,
                 int(high) + 1 if high.is_Integer else sys.maxsize)


def _related(trace: Trace, names: Sequence[str]) -> list[tuple[str, str]]:
    """The pairs of symbols that are part of one size somewhere in the graph."""
    sizes = {str(expr): symbols_in(expr) for node in trace.decomposed.graph.nodes
             for expr in _sizes(node)}
    together = [symbols for symbols in sizes.values() if len(symbols) > 1]
    return [pair for pair in itertools.combinations(names, 2)
            if any(set(pair) <= symbols for symbols in together)]


def _sizes(node: torch.fx.Node) -> list[object]:
    value = node.meta.get("val")
    return [expression_of(size) for size in value.shape
            if isinstance(size, torch.SymInt)] if isinstance(value, torch.Tensor) else []
