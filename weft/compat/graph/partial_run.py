"""Partial runs: one step of a graph whose feeds and fetches come in several calls.

``DirectSession::PRunSetup`` and ``PRun`` of TensorFlow. Each call computes the values that its
feeds determine, once, and keeps the values that later fetches need.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from weft.compat.graph.fetches import FetchTree
from weft.compat.graph.graph import Graph
from weft.compat.graph.node import Node
from weft.compat.graphdef.names import CONTROL, TensorRef, parse_tensor
from weft.runtime.run_control import RunControl
from weft.support.errors import InvalidInputError

# (names of tensors, feeds, limits of the run) -> their values.
Evaluate: TypeAlias = Callable[[Sequence[str], Mapping[str, Any], RunControl | None],
                               dict[str, Any]]


class PartialRun:
    """A step that was set up with all fetches and feeds that it may have.

    Variables have the values of the set-up. A call that fails changes nothing. ``pending_fetches``
    and ``pending_feeds`` are those that no call has used yet.
    """

    def __init__(self, graph: Graph, evaluate: Evaluate, fetches: Sequence[str],
                 feeds: Sequence[str], variables: Mapping[str, np.ndarray]) -> None:
        self._graph = graph
        self._evaluate = evaluate
        self._lock = threading.Lock()
        self._known: dict[str, Any] = dict(variables)
        self.fetches, self.feeds = tuple(fetches), tuple(feeds)
        both = [name for name in self.fetches if name in self.feeds]
        if both:
            raise InvalidInputError(f"{both[0]!r} is both fed and fetched")
        self.pending_fetches = list(self.fetches)
        self.pending_feeds = list(self.feeds)

    def run(self, fetches: Any, feeds: Mapping[str, Any], control: RunControl | None) -> Any:
        """The values of some fetches, in their structure, from these feeds and earlier ones."""
        tree = FetchTree(self._graph, fetches) if fetches else None
        with self._lock:
            if not self.pending_fetches:
                raise InvalidInputError("the partial run has fetched all that it was set up for")
            wanted = () if tree is None else tree.texts
            _check("fetch", wanted, self.fetches, self.pending_fetches)
            _check("feed", tuple(feeds), self.feeds, self.pending_feeds)
            known = {**self._known, **feeds}
            left = [one for one in self.pending_fetches if one not in wanted]
            values = self._compute(wanted, left, known, control)
            self._known = known | {text: value for text, value in values.items()
                                   if text not in wanted or self._is_read(text)}
            self.pending_fetches = left
            self.pending_feeds = [one for one in self.pending_feeds if one not in feeds]
        return [] if tree is None else tree.built(values)

    def _compute(self, wanted: Sequence[str], left: Sequence[str], known: Mapping[str, Any],
                 control: RunControl | None) -> dict[str, Any]:
        """The fetched values, and the computable values that the fetches ``left`` need."""
        reach = _Reach(self._graph, known)
        for text in wanted:
            missing = reach.missing(text)
            if missing is not None:
                raise InvalidInputError(f"{missing!r} must be fed before {text!r} is fetched",
                                        got=", ".join(map(repr, known)) or None)
        # An earlier call may have computed and kept a result.
        ready = {text: known[text] for text in wanted if text in known}
        frontier = [text for text in reach.frontier(left) if text not in known]
        texts = tuple(dict.fromkeys((*(t for t in wanted if t not in ready), *frontier)))
        if not texts:
            return ready
        given = {text: known[text] for text in reach.cut(texts)}
        return ready | self._evaluate(texts, given, control)

    def _is_read(self, text: str) -> bool:
        node = self._graph.find_node(parse_tensor(text).node)
        return node is not None and any(edge.dst.is_op for edge in node.out_edges.values())


def _check(what: str, names: Sequence[str], declared: Sequence[str], pending: Sequence[str]
           ) -> None:
    for name in names:
        if name not in declared:
            raise InvalidInputError(f"{name!r} was not set up as a {what} of this partial run",
                                    expected=", ".join(declared) or "none")
        if name not in pending:
            raise InvalidInputError(f"{name!r} was already {_PAST[what]}")


_PAST = {"fetch": "fetched", "feed": "fed"}


class _Reach:
    """The tensors that known tensors determine; does not recurse over the depth of the graph."""

    def __init__(self, graph: Graph, known: Mapping[str, Any]) -> None:
        self._graph = graph
        self._known = {parse_tensor(text) for text in known}
        self._missing: dict[Node, str | None] = {}

    def missing(self, text: str) -> str | None:
        """A placeholder that a tensor still waits for, or ``None`` if it can be computed."""
        ref = parse_tensor(text)
        return None if ref in self._known else self._of_node(self._node(ref))

    def frontier(self, fetches: Sequence[str]) -> list[str]:
        """The computable tensors that are read by nodes which are not computable yet."""
        found: dict[str, None] = {}
        seen: set[Node] = set()
        pending = [self._node(parse_tensor(text)) for text in fetches]
        while pending:
            node = pending.pop()
            if node in seen:
                continue
            seen.add(node)
            if self._of_node(node) is None:
                continue
            for ref, source in self._reads(node):
                if ref.index != CONTROL and ref not in self._known \
                        and self._of_node(source) is None and source.op != "Const":
                    found[str(ref)] = None
                pending.append(source)
        for text in fetches:
            ref = parse_tensor(text)
            if ref.index != CONTROL and self.missing(text) is None:
                found.setdefault(text)
        return list(found)

    def cut(self, texts: Sequence[str]) -> list[str]:
        """The known tensors that the computation of ``texts`` reads."""
        found: dict[str, None] = {}
        seen: set[Node] = set()
        pending = [self._node(parse_tensor(text)) for text in texts]
        while pending:
            node = pending.pop()
            if node in seen:
                continue
            seen.add(node)
            for ref, source in self._reads(node):
                if ref in self._known:
                    found[str(ref)] = None
                else:
                    pending.append(source)
        for node in seen:
            ref = TensorRef(node.name, 0)
            if ref in self._known and node.op == "Placeholder":
                found[str(ref)] = None
        return list(found)

    def _of_node(self, node: Node) -> str | None:
        pending = [node]
        while pending:
            one = pending[-1]
            if one in self._missing:
                pending.pop()
                continue
            if one.op == "Placeholder":
                ref = TensorRef(one.name, 0)
                self._missing[one] = None if ref in self._known else one.name
                continue
            sources = [source for ref, source in self._reads(one) if ref not in self._known]
            unknown = [source for source in sources if source not in self._missing]
            if unknown:
                pending.extend(unknown)
                continue
            self._missing[one] = next((self._missing[source] for source in sources
                                       if self._missing[source] is not None), None)
        return self._missing[node]

    def _reads(self, node: Node) -> list[tuple[TensorRef, Node]]:
        return [(TensorRef(edge.src.name, CONTROL if edge.is_control else edge.src_output),
                 edge.src) for edge in node.in_edges.values() if edge.src.is_op]

    def _node(self, ref: TensorRef) -> Node:
        node = self._graph.find_node(ref.node)
        if node is None:
            raise InvalidInputError(f"the graph has no node {ref.node!r}")
        return node
