"""Which of torch's guards a trace of weft needs.

torch asks of many sizes whether they are 0 or 1, for strides and layouts that weft does not have.
Such a guard is left out if the trace holds where it is false.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

import sympy

from weft.frontend.torch.dims import convert_size, symbols_in
from weft.frontend.torch.trace import Trace
from weft.ir.shape import AnyDim
from weft.ir.symbol import size_of_dim
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
