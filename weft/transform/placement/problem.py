"""``PlacementProblem``: devices for the nodes of a program, with as little copying as possible.

A node is a computation or a tensor. It has a cost on each device that can hold it, and may have to
be with other nodes. An edge between nodes on different devices costs a copy. As in Relay's
``PlanDevices``, nodes that must be together are joined first (union-find); then the remaining
choices are improved node by node until no change pays. The result depends on the problem alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from weft.runtime.device import Device
from weft.support.dataclass import dataclass
from weft.support.errors import TargetError

# The fixed cost of an edge, in bytes: the latency of a copy (about 10 us at 10 GB/s).
COPY_LATENCY = 100_000
_MAX_ROUNDS = 50


@dataclass(slots=True)
class _Node:
    """``costs`` are those of each allowed device; ``edges`` the bytes to each neighbour."""

    name: str
    costs: dict[Device, float]
    edges: dict[int, float] = field(default_factory=dict)


class PlacementProblem:
    """Nodes are numbered in the order of ``add``."""

    def __init__(self) -> None:
        self._nodes: list[_Node] = []
        self._parents: list[int] = []

    def add(self, name: str, costs: Mapping[Device, float]) -> int:
        """Add a node that can be on the devices in ``costs``, at these costs in bytes of copying.

        Of equally cheap devices the first is chosen.
        """
        self._nodes.append(_Node(name, dict(costs)))
        self._parents.append(len(self._parents))
        return len(self._nodes) - 1

    def together(self, first: int, second: int) -> None:
        """Put two nodes on the same device."""
        self._parents[self._root(second)] = self._root(first)

    def connect(self, first: int, second: int, nbytes: float) -> None:
        """Add an edge: if the nodes are on different devices, ``nbytes`` are copied."""
        cost = nbytes + COPY_LATENCY
        for one, other in ((first, second), (second, first)):
            edges = self._nodes[one].edges
            edges[other] = edges.get(other, 0.0) + cost

    def solve(self) -> list[Device]:
        """The device of each node; ``TargetError`` if nodes that must be together cannot be."""
        classes = self._classes()
        chosen = {root: min(one.costs, key=one.costs.__getitem__)
                  for root, one in classes.items()}
        for _ in range(_MAX_ROUNDS):
            if not _improved(classes, chosen):
                break
        return [chosen[self._root(number)] for number in range(len(self._nodes))]

    def _classes(self) -> dict[int, _Node]:
        """One node for each set that must be together, by its root."""
        members: dict[int, list[int]] = {}
        for number in range(len(self._nodes)):
            members.setdefault(self._root(number), []).append(number)
        classes = {}
        for root, numbers in members.items():
            joined = _Node(self._nodes[root].name, self._shared_costs(numbers))
            for number in numbers:
                for other, cost in self._nodes[number].edges.items():
                    target = self._root(other)
                    if target != root:
                        joined.edges[target] = joined.edges.get(target, 0.0) + cost
            classes[root] = joined
        return classes

    def _shared_costs(self, numbers: Iterable[int]) -> dict[Device, float]:
        nodes = [self._nodes[number] for number in numbers]
        allowed = [device for device in nodes[0].costs
                   if all(device in node.costs for node in nodes)]
        if not allowed:
            raise TargetError(
                "parts of the program that must be on one device cannot be",
                notes=[f"{node.name}: {', '.join(map(str, node.costs))}" for node in nodes[:8]])
        return {device: sum(node.costs[device] for node in nodes) for device in allowed}

    def _root(self, number: int) -> int:
        while self._parents[number] != number:
            self._parents[number] = self._parents[self._parents[number]]
            number = self._parents[number]
        return number


def _improved(classes: Mapping[int, _Node], chosen: dict[int, Device]) -> bool:
    """Move nodes to the device with the least cost and copies; returns whether any moved."""
    moved = False
    for root, node in classes.items():
        if len(node.costs) > 1:
            here = chosen[root]
            best = min(node.costs, key=lambda device: (
                _cost(node, device, chosen), device != here))
            if best != here:
                chosen[root] = best
                moved = True
    return moved


def _cost(node: _Node, device: Device, chosen: Mapping[int, Device]) -> float:
    copies = sum(cost for other, cost in node.edges.items() if chosen[other] != device)
    return node.costs[device] + copies
