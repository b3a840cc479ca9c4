"""For which sizes a trace of torch holds: the guards it needs, and the ranges of its sizes.

torch assumes that traced sizes are 2 or more, and guards many sizes against 0 and 1 for strides and
layouts that weft does not have. A guard is left out if the trace holds where the guard is false,
and ranges are extended to size 1 where the trace holds. Size 0 stays out: decompositions and Python
code ask whether a tensor has elements, and torch answers without recording the question.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence

import sympy
import torch
import torch.fx

from weft.frontend.torch.dims import convert_size, expression_of, symbols_in
from weft.frontend.torch.trace import Trace
from weft.ir import AnyDim, size_of_dim
from weft.runtime.sizes import evaluate

# Up to which number a size is 0 or 1, by how many symbols it depends on.
_TRIED = {1: 256, 2: 32}


def needed_guards(trace: Trace) -> tuple[sympy.Basic, ...]:
    """The guards of the trace that calls must check."""
    return tuple(guard for guard in trace.guards() if _is_needed(trace, guard))


def _is_needed(trace: Trace, guard: sympy.Basic) -> bool:
    asked = _asked(guard)
    if asked is None or len(asked.free_symbols) not in _TRIED:
        return True
    found = dict(_small(asked))
    wrong = [found[value] for value in found if guard.subs(asked, value) == sympy.false]
    return not wrong or not all(trace.holds_at(sizes) for sizes in wrong)


def _asked(guard: sympy.Basic) -> sympy.Expr | None:
    """The size that a guard compares with 0, 1 or 2; ``None`` for other guards."""
    if not isinstance(guard, (sympy.Ne, sympy.Ge, sympy.Gt)):
        return None
    least = {sympy.Ne: (0, 1), sympy.Ge: (1, 2), sympy.Gt: (0, 1)}[type(guard)]
    return guard.lhs if guard.rhs in least else None


def _small(size: sympy.Expr) -> Iterator[tuple[int, Mapping[str, int]]]:
    """0 and 1, as far as the size has these values, each with the largest sizes that give it."""
    dim = convert_size(size, {})
    if isinstance(dim, AnyDim):
        return
    text, names = size_of_dim(dim), sorted(symbols_in(size))
    tried = range(_TRIED[len(names)], 0, -1)
    for value in (0, 1):
        for numbers in itertools.product(tried, repeat=len(names)):
            sizes = dict(zip(names, numbers, strict=True))
            if evaluate(text, sizes) == value:
                yield value, sizes
                break


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
