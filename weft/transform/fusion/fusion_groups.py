"""Grouping of operator calls into kernels by operator pattern and post-dominator, as in Relay.

Chen et al., "TVM: An Automated End-to-End Optimizing Compiler for Deep Learning" (OSDI 2018),
section 3, as in Relay's FuseOps: a call joins its post-dominator if every call on the paths
between them may join as well, so that a group has one result and computes no value twice.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.codegen.cost_model import NEUTRAL
from weft.ir.op import OpPattern
from weft.support.dataclass import dataclass
from weft.transform.analysis.dataflow_graph import DataflowGraph, Dominator
from weft.transform.fusion.row_groups import rows_of_group

ELEMWISE = OpPattern.ELEMWISE
BROADCAST = OpPattern.BROADCAST
INJECTIVE = OpPattern.INJECTIVE
COMM_REDUCE = OpPattern.COMM_REDUCE
OUT_FUSABLE = OpPattern.OUT_FUSABLE
OPAQUE = OpPattern.OPAQUE

# (pattern of a group on the path, whether it is the last one) -> whether it may join.
Condition = Callable[[OpPattern, bool], bool]


def _through_broadcasts(pattern: OpPattern, is_sink: bool) -> bool:  # noqa: ARG001
    return pattern <= BROADCAST


def _through_injectives(pattern: OpPattern, is_sink: bool) -> bool:
    return pattern <= INJECTIVE or (is_sink and pattern is COMM_REDUCE)


def _into_anything_open(pattern: OpPattern, is_sink: bool) -> bool:
    # The sink may be the elementwise tail of an anchor (a residual addition after a convolution).
    return pattern <= INJECTIVE or (is_sink and pattern in (COMM_REDUCE, OUT_FUSABLE))


@dataclass(eq=False, slots=True)
class _Group:
    """A union-find cell; the fields of the root describe the group."""

    parent: int
    pattern: OpPattern
    size: int = 1


class FusionGroups:
    """Partitions a graph; ``members()`` lists the nodes of each group, its result last.

    ``reduce_epilogue`` lets elementwise calls of equal shape join the reduction before them.
    Reductions along rows of up to ``longest_row`` elements join each other.
    """

    def __init__(self, graph: DataflowGraph, *, max_depth: int, reduce_epilogue: bool,
                 longest_row: int = NEUTRAL.longest_row) -> None:
        self.graph = graph
        self.max_depth = max_depth
        self.longest_row = longest_row
        self.anchors = (OUT_FUSABLE, COMM_REDUCE) if reduce_epilogue else (OUT_FUSABLE,)
        self.tree = graph.post_dominators()
        self.cells = [_Group(n.index, n.pattern) for n in graph.nodes]
        # Anchors take their elementwise tails first; injective operators are grouped afterwards.
        self._sweep(self._anchor_condition)
        self._sweep(self._injective_condition)
        self._join_rows()

    def members(self) -> list[list[int]]:
        """Groups in order of their results, members in order of evaluation."""
        by_root: dict[int, list[int]] = {}
        for node in self.graph.nodes:
            by_root.setdefault(self._find(node.index), []).append(node.index)
        return sorted(by_root.values(), key=lambda group: group[-1])

    def _find(self, index: int) -> int:
        while self.cells[index].parent != index:
            self.cells[index].parent = self.cells[self.cells[index].parent].parent
            index = self.cells[index].parent
        return index

    def _sweep(self, condition_of: Callable[[OpPattern, Dominator], Condition | None]) -> None:
        for node in self.graph.nodes:
            dominator = self.tree[node.index]
            if dominator.parent is None or self._joined(node.index, dominator.parent):
                continue
            condition = condition_of(self.cells[self._find(node.index)].pattern, dominator)
            if condition is not None:
                self._try(node.index, dominator.parent, condition)

    def _join_rows(self) -> None:
        """Join reductions along rows with the calls that read their results row by row."""
        reductions = {self._find(n.index) for n in self.graph.nodes if n.pattern is COMM_REDUCE}
        if not reductions:
            return
        members = {group[-1]: group for group in self.members()}
        by_root = {self._find(last): group for last, group in members.items()}
        for node in self.graph.nodes:
            sink = self.tree[node.index].parent
            if sink is None or self._joined(node.index, sink):
                continue
            path = self._between(node.index, sink)
            if path is None:
                continue
            roots = dict.fromkeys(map(self._find, (*path, sink)))
            if reductions.isdisjoint(roots):
                continue
            joined = [i for root in roots for i in by_root[root]]
            if len(joined) > self.max_depth or not self._has_one_result(joined):
                continue
            nodes = (self.graph.nodes[i] for i in sorted(joined))
            if rows_of_group(nodes, self.longest_row) is None:
                continue
            target = self._find(sink)
            for root in roots:
                self._merge(root, target)
            by_root[self._find(sink)] = sorted(joined)
            reductions.add(self._find(sink))

    def _between(self, source: int, sink: int) -> list[int] | None:
        """All nodes from ``source`` to ``sink``, without the latter; ``None`` if too many."""
        found, pending = {source: None}, [source]
        while pending:
            if len(found) > self.max_depth:
                return None
            for user, _ in self.graph.nodes[pending.pop()].users:
                if user != sink and user not in found:
                    found[user] = None
                    pending.append(user)
        return list(found)

    def _has_one_result(self, members: list[int]) -> bool:
        """Whether no other call reads any of ``members`` but the last one."""
        inside, last = set(members), max(members)
        return all(i == last or self._is_internal(i, inside) for i in members)

    def _is_internal(self, index: int, inside: set[int]) -> bool:
        node = self.graph.nodes[index]
        return not node.is_extern and all(user in inside for user, _ in node.users)

    def _joined(self, a: int, b: int) -> bool:
        return self._find(a) == self._find(b)

    def _anchor_condition(self, pattern: OpPattern, dominator: Dominator) -> Condition | None:
        if pattern in self.anchors:
            # The epilogue runs on the output tile of the anchor, so it must keep the shape.
            return _through_broadcasts if dominator.pattern is ELEMWISE else None
        if pattern <= BROADCAST and dominator.pattern <= COMM_REDUCE:
            return _into_anything_open
        return None

    def _injective_condition(self, pattern: OpPattern, dominator: Dominator) -> Condition | None:
        if pattern is INJECTIVE and dominator.pattern <= COMM_REDUCE:
            return _through_injectives
        return None

    def _try(self, source: int, sink: int, condition: Condition) -> None:
        path = self._path(source, sink, condition)
        if path is None:
            return
        # Nodes on the path join together with their groups.
        roots = dict.fromkeys(map(self._find, (*path, sink)))
        if sum(self.cells[r].size for r in roots) > self.max_depth:
            return
        target = self._find(sink)
        for root in roots:
            self._merge(root, target)

    def _path(self, source: int, sink: int, condition: Condition) -> list[int] | None:
        """All nodes from ``source`` to ``sink``; ``None`` if one of them may not join."""
        found = {source: None}
        pending = [source]
        while pending:
            if len(found) > self.max_depth:
                return None  # the group would exceed the limit
            for user, _ in self.graph.nodes[pending.pop()].users:
                pattern = self.cells[self._find(user)].pattern
                if not condition(pattern, user == sink):
                    return None
                if user != sink and user not in found:
                    found[user] = None
                    pending.append(user)
        return list(found)

    def _merge(self, child: int, target: int) -> None:
        if child == target:
            return
        cell, into = self.cells[child], self.cells[target]
        cell.parent = target
        into.size += cell.size
        into.pattern = max(into.pattern, cell.pattern)
