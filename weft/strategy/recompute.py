"""Recompute or materialize: which stages of an injective group are computed once into memory.

Inlining recomputes an element for each of its reads. It is faster to materialize elements that a
broadcast, a resampling or a gather reads many times: the scale of a row, an interpolation along the
other axis, a table of angles.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft import te
from weft.strategy.analysis import computes_below, consumers_of, elements, inlined_body
from weft.te.walk import loads_of
from weft.tir import Call, PrimExpr, ProducerLoad, Var, post_order
from weft.tir.node import FloatImm, IntImm

# A stage is materialized from this many reads per element, this many operations per element, and
# this many operations saved in all. Rules of thumb.
MIN_READS, MIN_OPERATIONS, MIN_SAVED = 4, 3, 20_000
CALL_OPERATIONS = 10  # operations of an intrinsic call; most lower to polynomials


def stages_to_materialize(outputs: Sequence[te.Tensor], *, min_saved: int = MIN_SAVED
                          ) -> list[te.ComputeOp]:
    """The computes of a group without reductions that should be materialized.

    ``min_saved`` is the number of operations from which on another loop nest pays.
    """
    ops = computes_below(outputs)
    results = {id(t.op) for t in outputs}
    readers = consumers_of(ops)
    computed: dict[int, int] = {}  # by id: element computations in total if inlined
    kept: list[te.ComputeOp] = []
    # Readers first: how often they are computed says how often this stage would be.
    for op in reversed(ops):
        size = elements(op)
        if id(op) in results:
            computed[id(op)] = size
            continue
        times = sum(_loads_of(op, reader) * computed[id(reader)] for reader in readers[id(op)])
        if times >= MIN_READS * size:
            cost = _operations(inlined_body(op, lambda _: True))
            if cost >= MIN_OPERATIONS and (times - size) * cost >= min_saved:
                kept.append(op)
                times = size
        computed[id(op)] = times
    return kept[::-1]


def _loads_of(op: te.ComputeOp, reader: te.ComputeOp) -> int:
    return sum(load.producer.op is op for load in loads_of(reader.body))


def _operations(body: tuple[PrimExpr, ...]) -> int:
    """Distinct operations on values and indices; common subexpressions are computed once."""
    nodes = {e for root in body for e in post_order(root)}
    return sum(CALL_OPERATIONS if isinstance(e, Call) else 1 for e in nodes
               if not isinstance(e, Var | IntImm | FloatImm | ProducerLoad))
