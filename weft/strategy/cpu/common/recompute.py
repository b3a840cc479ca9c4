"""What an injective group would compute again and again, where all of it were inlined.

An element that a broadcast, a resampling or a gather reads many times is better computed once:
the scale of a row, an interpolation along the other axis, a table of angles.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft import te
from weft.strategy.analysis import computes_below, consumers_of, elements, inlined_body
from weft.te.walk import loads_of
from weft.tir.expr import Call, PrimExpr, ProducerLoad, Var
from weft.tir.node import FloatImm, IntImm
from weft.tir.visitor import post_order

# An element is kept that is read so often, and costs so many operations, if so much is saved.
READS, OPERATIONS, SAVED = 4, 3, 20_000
CALL = 10  # operations of an intrinsic, most of which are polynomials


def repeated_stages(outputs: Sequence[te.Tensor]) -> list[te.ComputeOp]:
    """The computes of a group without reductions that are worth memory of their own."""
    ops = computes_below(outputs)
    results = {id(t.op) for t in outputs}
    readers = consumers_of(ops)
    computed: dict[int, int] = {}  # how often an element of each would be, in all
    kept: list[te.ComputeOp] = []
    for op in reversed(ops):
        size = elements(op)
        if id(op) in results:
            computed[id(op)] = size
            continue
        times = sum(_loads_of(op, reader) * computed[id(reader)] for reader in readers[id(op)])
        if times >= READS * size:
            cost = _operations(inlined_body(op, lambda _: True))
            if cost >= OPERATIONS and (times - size) * cost >= SAVED:
                kept.append(op)
                times = size
        computed[id(op)] = times
    return kept[::-1]


def _loads_of(op: te.ComputeOp, reader: te.ComputeOp) -> int:
    return sum(load.producer.op is op for load in loads_of(reader.body))


def _operations(body: tuple[PrimExpr, ...]) -> int:
    """Operations on values and on indices; distinct ones, as common ones are computed once."""
    nodes = {e for root in body for e in post_order(root)}
    return sum(CALL if isinstance(e, Call) else 1 for e in nodes
               if not isinstance(e, Var | IntImm | FloatImm | ProducerLoad))
