"""Checks of values at run time: results of a program that must hold, each for one recorded call.

Operators clamp indices or leave elements out rather than fail. A check is a boolean that the same
program computes; when it does not hold, an error names the line that recorded the call.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.eager.node import CALL, Node, call_signature, number_node
from weft.support.dataclass import dataclass
from weft.support.errors import InvalidInputError


class IndexRangeError(InvalidInputError, IndexError):
    """An index is out of range; also an ``IndexError``."""


class AnomalyError(InvalidInputError):
    """An operator made a NaN or an infinity."""


@dataclass(frozen=True, slots=True)
class Check:
    """``holds`` is a node of one boolean; ``message`` says what is wrong otherwise."""

    holds: Node
    message: str
    is_anomaly: bool = False

    def error(self, node: Node) -> InvalidInputError:
        """The error for the call ``node``."""
        if self.is_anomaly:
            return AnomalyError(self.message, where=node.span,
                                got=f"a result of shape {node.sig.out.shape}")
        return IndexRangeError(self.message, where=node.span)


def in_range(index: Node, size: int, axis: int) -> Check:
    """That all indices are at least ``-size`` and less than ``size``."""
    d = index.sig.out.dtype
    low, high = [number_node(bound, d) for bound in (-size if d.is_signed else 0, size)]
    enough = _call("greater_equal", (index, low))
    both = _call("logical_and", (enough, _call("less", (index, high))))
    return Check(_all(both), f"an index is out of range for axis {axis} of size {size}")


def finite(node: Node) -> Check:
    """That all elements of a result are finite."""
    return Check(_all(_call("isfinite", (node,))), f"{node.sig.name} made a NaN or an infinity",
                 is_anomaly=True)


def finite_checks(order: Sequence[Node]) -> list[tuple[Node, Check]]:
    """A check for each call among the nodes that gives floats."""
    return [(node, finite(node)) for node in order
            if node.sig.kind == CALL and node.sig.out.fields is None
            and node.sig.out.dtype.is_floating_point]


def first_failure(checks: Sequence[tuple[Node, Check]], values: Sequence[np.ndarray]
                  ) -> InvalidInputError | None:
    """The error of the first check, in the order of recording, that does not hold."""
    failed = [(node.serial, at) for at, ((node, _), value) in enumerate(
        zip(checks, values, strict=True)) if not value]
    if not failed:
        return None
    node, check = checks[min(failed)[1]]
    return check.error(node)


def _call(name: str, nodes: tuple[Node, ...]) -> Node:
    return Node(call_signature(name, {}, None, nodes), nodes, None, None)


def _all(node: Node) -> Node:
    return Node(call_signature("all", {}, None, (node,)), (node,), None, None)
