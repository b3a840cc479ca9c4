"""Remove redundant control edges (Grappler's dependency optimiser)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from weft.ir.expr import Call, Constant, Expr, Function, Let, Tuple, TupleGetItem, Var
from weft.ir.op import Op
from weft.ir.passes import FunctionPass, PassContext, register_pass
from weft.ir.visitor import children, post_order
from weft.support.dataclass import dataclass
from weft.transform.analysis.effects import has_effect
from weft.transform.analysis.graph import (
    as_function,
    enters,
    is_reshape,
    op_name,
    over_new_children,
)

BARRIER = "annotation.barrier"
# Edges whose ancestors are found in one walk: one bit per edge and node.
_EDGES_PER_WALK = 1024


@register_pass
@dataclass(frozen=True)
class PruneControlEdges(FunctionPass):
    """Remove redundant operands ``after`` of ``annotation.barrier``, and barriers left without one.

    An edge goes to the computation whose memory it aliases (``reshape``), not to constants and
    parameters, and not to a computation without effects and without other readers: it passes on to
    what that computation reads. An edge is redundant where the guarded value or the source of
    another edge depends on the same computation. A barrier written without edges stays.

    def @main(%x: Tensor[(4,), float32]) {
      %0 = exp(%x);
      %1 = annotation.barrier(tanh(%x), (%0, negative(%0), %x));
      add(annotation.barrier(%0, (%0,)), %1)
    }
    =>
    def @main(%x: Tensor[(4,), float32]) {
      %0 = exp(%x);
      add(%0, annotation.barrier(tanh(%x), %0))
    }
    """

    name: ClassVar[str] = "prune_control_edges"
    opt_level: ClassVar[int] = 1

    def run(self, fn: Function, ctx: PassContext) -> Function:  # noqa: ARG002
        order = list(post_order(fn, enter=enters))
        barriers = [node for node in order if isinstance(node, Call) and op_name(node) == BARRIER]
        if not barriers:
            return fn
        live = _live_nodes(fn, order)
        params = frozenset(fn.params)
        sources = {node: _sources(node.args[1], live, params) for node in barriers}
        kept = _without_ancestors(order, sources)
        memo: dict[Expr, Expr] = {}
        for node in order:
            rebuilt = over_new_children(node, lambda c: memo[c])
            if node in kept and isinstance(rebuilt, Call):
                edges = [memo[source] for source in kept[node]]
                memo[node] = _with_edges(rebuilt, edges)
            else:
                memo[node] = rebuilt
        return as_function(memo[fn])


def _with_edges(call: Call, edges: Sequence[Expr]) -> Expr:
    before = list(_fields(call.args[1]))
    if len(before) == len(edges) and all(a is b for a, b in zip(before, edges, strict=True)):
        return call
    if not edges:
        return call.args[0] if before else call
    after = edges[0] if len(edges) == 1 else Tuple(tuple(edges), span=call.span)
    return call.replace(args=(call.args[0], after), checked_type=call.checked_type)


def _fields(after: Expr) -> Iterator[Expr]:
    """The edges of an operand ``after``: the fields of nested tuples."""
    pending = [after]
    while pending:
        node = pending.pop()
        if isinstance(node, Tuple):
            pending.extend(reversed(node.fields))
        else:
            yield node


def _live_nodes(fn: Function, order: Sequence[Expr]) -> set[Expr]:
    """The nodes that the result or an effect reads, through operands other than ``after``."""
    live: set[Expr] = set()
    pending: list[Expr] = [fn.body, *(node for node in order if has_effect(node))]
    while pending:
        node = pending.pop()
        if node in live:
            continue
        live.add(node)
        if isinstance(node, Call) and op_name(node) == BARRIER:
            pending.append(node.args[0])
        elif enters(node):
            pending.extend(children(node))
    return live


def _sources(after: Expr, live: set[Expr], params: frozenset[Var]) -> list[Expr]:
    """The computations that the edges of ``after`` wait for, each once."""
    found: dict[Expr, None] = {}
    seen: set[Expr] = set()
    pending = [after]
    while pending:
        node = pending.pop()
        if node in seen or isinstance(node, Constant) or node in params:
            continue
        seen.add(node)
        if _passes_on(node, live):
            pending.extend(reversed(children(node)))
        else:
            found[node] = None
    return list(found)


def _passes_on(node: Expr, live: set[Expr]) -> bool:
    """Whether to wait for ``node`` is to wait for its operands."""
    if isinstance(node, (Tuple, TupleGetItem)):
        return True
    if not isinstance(node, Call) or not isinstance(node.op, Op) or has_effect(node):
        return False
    return node not in live or is_reshape(node)


def _without_ancestors(order: Sequence[Expr], sources: dict[Call, list[Expr]]
                       ) -> dict[Expr, list[Expr]]:
    """``sources`` without those that the guarded value or another source depends on."""
    kept: dict[Expr, list[Expr]] = {}
    batch: list[Call] = []
    edges = 0
    for node, found in sources.items():
        batch.append(node)
        edges += len(found)
        if edges >= _EDGES_PER_WALK:
            kept.update(_reduced(order, batch, sources))
            batch, edges = [], 0
    kept.update(_reduced(order, batch, sources))
    return kept


def _reduced(order: Sequence[Expr], barriers: Sequence[Call], sources: dict[Call, list[Expr]]
             ) -> dict[Expr, list[Expr]]:
    numbers: dict[Expr, int] = {}
    for barrier in barriers:
        for source in sources[barrier]:
            numbers.setdefault(source, len(numbers))
    if not numbers:
        return {barrier: [] for barrier in barriers}
    ancestors = _ancestors(order, numbers)
    kept: dict[Expr, list[Expr]] = {}
    for barrier in barriers:
        implied = ancestors.get(barrier.args[0], 0)
        for source in sources[barrier]:
            implied |= ancestors[source] & ~(1 << numbers[source])
        kept[barrier] = [s for s in sources[barrier] if not implied >> numbers[s] & 1]
    return kept


def _ancestors(order: Sequence[Expr], numbers: dict[Expr, int]) -> dict[Expr, int]:
    """The set of numbered nodes that each node depends on, itself included, as bits."""
    bound: dict[Expr, list[Var]] = {}
    for node in order:
        if isinstance(node, Let):
            bound.setdefault(node.value, []).append(node.var)
    found: dict[Expr, int] = {}
    for node in order:
        bits = found.get(node, 0)
        if node in numbers:
            bits |= 1 << numbers[node]
        for child in children(node) if enters(node) else ():
            bits |= found.get(child, 0)
        found[node] = bits
        for var in bound.get(node, ()):  # uses come after the value
            found[var] = found.get(var, 0) | bits
    return found
