"""Gradients of symbols as symbols (``nnvm.compiler.graph_util.gradients``, pass ``Gradient``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

from weft.compat.symbol.backward import FGradient
from weft.compat.symbol.node import Node, NodeEntry, walk
from weft.compat.symbol.slots import get_attr
from weft.compat.symbol.symbol import Entries, Symbol, apply_operator, entries_of
from weft.support.dataclass import dataclass
from weft.support.errors import OptionError, PassError


def gradients(ys: Entries, xs: Entries, grad_ys: Entries | None = None, *,
              aggregate_fun: Callable[[list[Symbol]], Symbol] | None = None,
              mirror_fun: Callable[[Node], bool] | None = None,
              attr_hint_fun: Callable[[Symbol, Symbol], Symbol] | None = None,
              zero_ops: Sequence[str] = (), copy_op: str | None = None) -> list[Symbol]:
    """The gradient of the sum of all ``ys`` with respect to each of ``xs``, in the same graph.

    ``xs`` are variables (at the last version that ``ys`` read) or inner entries. The slot
    ``FGradient`` of an operator gives the gradients of its inputs. The options have NNVM's names:

    * ``grad_ys``: the gradient that arrives at each of ``ys``, by default ones.
    * ``aggregate_fun(gradients)``: the sum of those of several uses, by default ``elemwise_sum``.
    * ``mirror_fun(node)``: whether a node of the forward pass is computed again.
    * ``attr_hint_fun(x, zeros)``: the zeros of an ``x`` without influence, which is an error
      without this and without ``zero_ops``.
    * ``zero_ops``: operators that make zeros, the first for entries without influence. A node whose
      results get such zeros passes them on and needs no ``FGradient``.
    * ``copy_op``: an operator that copies the gradient of an entry where another has the same.

    Raises ``OptionError`` for options that do not fit, ``PassError`` for an ``x`` without
    influence and an operator without a gradient; what only types tell is an error of lowering.
    """
    targets, sources = entries_of(ys), entries_of(xs)
    sweep = _Sweep(targets, sources, aggregate_fun or _sum, mirror_fun, tuple(zero_ops))
    sweep.run(_seeds(targets, grad_ys))
    found: list[Symbol] = []
    for x in sources:
        gradient = sweep.total(sweep.latest(x))
        if gradient is None:
            gradient = _zeros(Symbol((x,)), attr_hint_fun, zero_ops)
        if copy_op is not None and any(gradient.entries == other.entries for other in found):
            gradient = apply_operator(copy_op, gradient)
        found.append(gradient)
    return found


def _seeds(targets: Sequence[NodeEntry], grad_ys: Entries | None) -> list[Symbol]:
    if grad_ys is None:
        return [apply_operator("ones_like", Symbol((y,))) for y in targets]
    given = [Symbol((entry,)) for entry in entries_of(grad_ys)]
    if len(given) != len(targets):
        raise OptionError("grad_ys does not fit ys", got=f"{len(given)} gradients",
                          expected=str(len(targets)))
    return given


def _sum(gradients: list[Symbol]) -> Symbol:
    return apply_operator("elemwise_sum", *gradients)


def _zeros(x: Symbol, hint: Callable[[Symbol, Symbol], Symbol] | None, zero_ops: Sequence[str]
           ) -> Symbol:
    if hint is None and not zero_ops:
        raise PassError("no path from an entry of xs to ys", where=x.node.span, got=x.name,
                        help="give zero_ops, or attr_hint_fun, to get zeros")
    zeros = apply_operator(zero_ops[0] if zero_ops else "zeros_like", x)
    return zeros if hint is None else hint(x, zeros)


@dataclass(eq=False, slots=True)
class _Sweep:
    """A reverse walk that collects the gradients of every entry before it sums them."""

    ys: Sequence[NodeEntry]
    xs: Sequence[NodeEntry]
    aggregate: Callable[[list[Symbol]], Symbol]
    mirror: Callable[[Node], bool] | None
    zero_ops: tuple[str, ...]
    found: dict[NodeEntry, list[Symbol]] = field(default_factory=dict)
    totals: dict[NodeEntry, Symbol] = field(default_factory=dict)
    copies: dict[Node, Node] = field(default_factory=dict)
    versions: dict[Node, int] = field(default_factory=dict)

    def latest(self, x: NodeEntry) -> NodeEntry:
        """``x``, or for a variable its last version that ``ys`` read."""
        return NodeEntry(x.node, 0, self.versions.get(x.node, x.version)) \
            if x.node.is_variable else x

    def total(self, entry: NodeEntry) -> Symbol | None:
        """The sum of what was collected; ``None`` for nothing."""
        if entry not in self.totals and entry in self.found:
            parts = self.found[entry]
            self.totals[entry] = parts[0] if len(parts) == 1 else self.aggregate(parts)
        return self.totals.get(entry)

    def run(self, seeds: Sequence[Symbol]) -> None:
        order = list(walk(self.ys))
        for entry in (*self.ys, *(e for node in order for e in node.inputs)):
            if entry.node.is_variable:
                self.versions[entry.node] = max(entry.version, self.versions.get(entry.node, 0))
        depends = {x.node for x in self.xs}
        for node in order:
            if any(e.node in depends for e in node.inputs):
                depends.add(node)
        for y, seed in zip(self.ys, seeds, strict=True):
            self.found.setdefault(y, []).append(seed)
        for node in reversed(order):
            if node.op is not None and any(e.node in depends for e in node.inputs):
                self._visit(node, depends)

    def _visit(self, node: Node, depends: set[Node]) -> None:
        entries = [NodeEntry(node, i) for i in range(node.num_outputs)]
        arrived = [self.total(entry) for entry in entries]
        if all(dy is None for dy in arrived):
            return
        dys = [apply_operator("zeros_like", Symbol((entry,))) if dy is None else dy
               for entry, dy in zip(entries, arrived, strict=True)]
        for entry, gradient in zip(node.inputs, self._rule(node, dys), strict=True):
            if entry.node in depends:
                self.found.setdefault(entry, []).append(gradient)

    def _rule(self, node: Node, dys: list[Symbol]) -> list[Symbol]:
        assert node.op is not None
        if all(dy.node.op is not None and dy.node.op.name in self.zero_ops for dy in dys):
            return [apply_operator(self.zero_ops[0], Symbol((e,))) for e in node.inputs]
        rule: FGradient | None = get_attr(node.op, "FGradient")
        if rule is None:
            raise PassError(f"missing gradient of {node.op.name}", where=node.span,
                            got=node.name, help=f"set_attr({node.op.name!r}, 'FGradient', rule)")
        chosen = self._mirrored(node, dys) if self.mirror is not None else node
        made: Any = rule(Symbol([NodeEntry(chosen, i) for i in range(node.num_outputs)]), dys)
        gradients = [Symbol((entry,)) for entry in entries_of(made)]
        if len(gradients) != len(node.inputs):
            raise PassError(f"FGradient of {node.op.name} gives a gradient for each input",
                            where=node.span, got=f"{len(gradients)} gradients",
                            expected=str(len(node.inputs)))
        return gradients

    def _mirrored(self, node: Node, dys: Sequence[Symbol]) -> Node:
        """``node``, or its copy, over copies of the nodes that ``mirror_fun`` chooses.

        The copies run after the gradients, so that no pass merges them with the forward pass.
        """
        assert self.mirror is not None
        after = [dy.node for dy in dys if not dy.node.is_variable]
        entries = [NodeEntry(node, i) for i in range(node.num_outputs)]
        for one in walk(entries):
            if one in self.copies or one.op is None or not self.mirror(one):
                continue
            self.copies[one] = Node(one.op, f"{one.name}_mirror", one.attrs,
                                    [self._copied(e) for e in one.inputs],
                                    [*one.control_deps, *after], one.span)
        if node in self.copies:
            return self.copies[node]
        return Node(node.op, node.name, node.attrs, [self._copied(e) for e in node.inputs],
                    node.control_deps, node.span)

    def _copied(self, entry: NodeEntry) -> NodeEntry:
        return NodeEntry(self.copies.get(entry.node, entry.node), entry.index, entry.version)
