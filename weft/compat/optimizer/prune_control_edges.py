"""Remove redundant control edges (Grappler's dependency optimiser)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from weft import ir
from weft.support.dataclass import dataclass
from weft.transform.analysis import graph
from weft.transform.analysis.effects import has_effect

BARRIER = "annotation.barrier"
# The number of edges whose ancestors one walk computes: one bit per edge and node.
_EDGES_PER_WALK = 1024


@ir.register_pass
@dataclass(frozen=True)
class PruneControlEdges(ir.FunctionPass):
    """Remove redundant operands ``after`` of ``annotation.barrier``, and barriers without any left.

    An edge points to the computation whose memory it aliases (through ``reshape``), never to
    constants and parameters. An edge to a computation without effects and without other readers is
    replaced by edges to the operands of that computation. An edge is redundant if the guarded value
    or the source of another edge depends on the same computation. A barrier written without edges
    stays.

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

    def run(self, fn: ir.Function, ctx: ir.PassContext) -> ir.Function:  # noqa: ARG002
        order = list(ir.post_order(fn, enter=graph.enters))
        barriers = [node for node in order if isinstance(node, ir.Call)
                    and graph.op_name(node) == BARRIER]
        if not barriers:
            return fn
        live = _live_nodes(fn, order)
        params = frozenset(fn.params)
        sources = {node: _sources(node.args[1], live, params) for node in barriers}
        kept = _without_ancestors(order, sources)
        memo: dict[ir.Expr, ir.Expr] = {}
        for node in order:
            rebuilt = graph.over_new_children(node, lambda c: memo[c])
            if node in kept and isinstance(rebuilt, ir.Call):
                edges = [memo[source] for source in kept[node]]
                memo[node] = _with_edges(rebuilt, edges)
            else:
                memo[node] = rebuilt
        return graph.as_function(memo[fn])


def _with_edges(call: ir.Call, edges: Sequence[ir.Expr]) -> ir.Expr:
    before = list(_fields(call.args[1]))
    if len(before) == len(edges) and all(a is b for a, b in zip(before, edges, strict=True)):
        return call
    if not edges:
        return call.args[0] if before else call
    after = edges[0] if len(edges) == 1 else ir.Tuple(tuple(edges), span=call.span)
    return call.replace(args=(call.args[0], after), checked_type=call.checked_type)


def _fields(after: ir.Expr) -> Iterator[ir.Expr]:
    """The edges of an operand ``after``: the fields of nested tuples."""
    pending = [after]
    while pending:
        node = pending.pop()
        if isinstance(node, ir.Tuple):
            pending.extend(reversed(node.fields))
        else:
            yield node


def _live_nodes(fn: ir.Function, order: Sequence[ir.Expr]) -> set[ir.Expr]:
    """The nodes that the result or an effect reads, through operands other than ``after``."""
    live: set[ir.Expr] = set()
    pending: list[ir.Expr] = [fn.body, *(node for node in order if has_effect(node))]
    while pending:
        node = pending.pop()
        if node in live:
            continue
        live.add(node)
        if isinstance(node, ir.Call) and graph.op_name(node) == BARRIER:
            pending.append(node.args[0])
        elif graph.enters(node):
            pending.extend(ir.children(node))
    return live


def _sources(after: ir.Expr, live: set[ir.Expr], params: frozenset[ir.Var]) -> list[ir.Expr]:
    """The computations that the edges of ``after`` wait for, each once."""
    found: dict[ir.Expr, None] = {}
    seen: set[ir.Expr] = set()
    pending = [after]
    while pending:
        node = pending.pop()
        if node in seen or isinstance(node, ir.Constant) or node in params:
            continue
        seen.add(node)
        if _passes_on(node, live):
            pending.extend(reversed(ir.children(node)))
        else:
            found[node] = None
    return list(found)


def _passes_on(node: ir.Expr, live: set[ir.Expr]) -> bool:
    """Whether waiting for ``node`` means waiting for its operands."""
    if isinstance(node, (ir.Tuple, ir.TupleGetItem)):
        return True
    if not isinstance(node, ir.Call) or not isinstance(node.op, ir.Op) or has_effect(node):
        return False
    return node not in live or graph.is_reshape(node)


def _without_ancestors(order: Sequence[ir.Expr], sources: dict[ir.Call, list[ir.Expr]]
                       ) -> dict[ir.Expr, list[ir.Expr]]:
    """``sources`` without those that the guarded value or another source depends on."""
    kept: dict[ir.Expr, list[ir.Expr]] = {}
    batch: list[ir.Call] = []
    edges = 0
    for node, found in sources.items():
        batch.append(node)
        edges += len(found)
        if edges >= _EDGES_PER_WALK:
            kept.update(_reduced(order, batch, sources))
            batch, edges = [], 0
    kept.update(_reduced(order, batch, sources))
    return kept


def _reduced(order: Sequence[ir.Expr], barriers: Sequence[ir.Call],
             sources: dict[ir.Call, list[ir.Expr]]
             ) -> dict[ir.Expr, list[ir.Expr]]:
    numbers: dict[ir.Expr, int] = {}
    for barrier in barriers:
        for source in sources[barrier]:
            numbers.setdefault(source, len(numbers))
    if not numbers:
        return {barrier: [] for barrier in barriers}
    ancestors = _ancestors(order, numbers)
    kept: dict[ir.Expr, list[ir.Expr]] = {}
    for barrier in barriers:
        implied = ancestors.get(barrier.args[0], 0)
        for source in sources[barrier]:
            implied |= ancestors[source] & ~(1 << numbers[source])
        kept[barrier] = [s for s in sources[barrier] if not implied >> numbers[s] & 1]
    return kept


def _ancestors(order: Sequence[ir.Expr], numbers: dict[ir.Expr, int]) -> dict[ir.Expr, int]:
    """The set of numbered nodes that each node depends on, itself included, as bits."""
    bound: dict[ir.Expr, list[ir.Var]] = {}
    for node in order:
        if isinstance(node, ir.Let):
            bound.setdefault(node.value, []).append(node.var)
    found: dict[ir.Expr, int] = {}
    for node in order:
        bits = found.get(node, 0)
        if node in numbers:
            bits |= 1 << numbers[node]
        for child in ir.children(node) if graph.enters(node) else ():
            bits |= found.get(child, 0)
        found[node] = bits
        for var in bound.get(node, ()):  # uses come after the value
            found[var] = found.get(var, 0) | bits
    return found
