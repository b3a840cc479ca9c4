"""Checks of values at run time: results of a program that must hold, each for one recorded call.

Operators clamp indices, leave elements out or give 0 rather than fail. A check is a boolean that
the same program computes; when it does not hold, an error names the line that recorded the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from weft.eager.device import CPU, device, on_host
from weft.eager.dtypes import dtype
from weft.eager.node import CALL, NUMBER, Node, call_signature, number_node, unpaired
from weft.support.dataclass import dataclass
from weft.support.errors import InvalidInputError


class ValueCheckError(InvalidInputError):
    """The values of a call, known only as the program runs, are not what the call allows."""


class IndexRangeError(ValueCheckError, IndexError):
    """An index or a class is out of range; also an ``IndexError``."""


class ZeroDivisorError(ValueCheckError, ZeroDivisionError):
    """Integers are divided by zero; also a ``ZeroDivisionError``."""


class AnomalyError(ValueCheckError):
    """An operator made a NaN or an infinity."""


@dataclass(frozen=True, slots=True)
class Check:
    """``holds`` is a node of one boolean; ``message`` says what is wrong otherwise."""

    holds: Node
    message: str
    kind: type[ValueCheckError] = IndexRangeError

    def error(self, node: Node) -> ValueCheckError:
        """The error for the call ``node``."""
        got = f"a result of shape {node.sig.out.shape}" if self.kind is AnomalyError else None
        return self.kind(self.message, where=node.span, got=got)


def in_range(index: Node, size: int, axis: int) -> Check:
    """That all indices are at least ``-size`` and less than ``size``."""
    d = index.sig.out.dtype
    low, high = [number_node(bound, d) for bound in (-size if d.is_signed else 0, size)]
    enough = _call("greater_equal", (index, low))
    both = _call("logical_and", (enough, _call("less", (index, high))))
    return Check(_all(both), f"an index is out of range for axis {axis} of size {size}")


def classes_in_range(
    labels: Node, classes: int, ignored: int | None = None, what: str = "a label"
) -> Check:
    """That all labels are at least 0 and less than ``classes``, or ``ignored``."""
    d = labels.sig.out.dtype
    holds = _call("greater_equal", (labels, number_node(0, d)))
    if _holds(d, classes):
        is_below = _call("less", (labels, number_node(classes, d)))
        holds = _call("logical_and", (holds, is_below))
    if ignored is not None and _holds(d, ignored):
        is_ignored = _call("equal", (labels, number_node(ignored, d)))
        holds = _call("logical_or", (holds, is_ignored))
    return Check(_all(holds), f"{what} is out of range: not one of 0 to {classes - 1}")


def require_classes(
    node: Node, labels: Node, classes: int, ignored: int | None = None, what: str = "a label"
) -> None:
    """Raise for labels of ``node`` out of range: now if they are known, else when it runs."""
    check, values = classes_in_range(labels, classes, ignored, what), known(labels)
    if values is None:
        node.check = check
    elif values.size and not ((values == ignored) | ((values >= 0) & (values < classes))).all():
        raise check.error(node)


def probabilities(node: Node, what: str) -> Check:
    """That all elements are from 0 to 1."""
    d = node.sig.out.dtype
    low, high = (number_node(bound, d, node.sig.out.device) for bound in (0.0, 1.0))
    holds = _call("logical_and", (_call("greater_equal", (node, low)),
                                  _call("less_equal", (node, high))))
    return Check(_all(holds), f"{what}: an element is not from 0 to 1", kind=ValueCheckError)


def weights(node: Node, what: str) -> Check:
    """That no weight is below 0, and that those of each last axis have a positive sum."""
    zero = number_node(0, node.sig.out.dtype, node.sig.out.device)
    attrs = {"axis": (len(node.sig.out.shape) - 1,)}
    total = Node(call_signature("sum", attrs, tuple(attrs.items()), (node,)), (node,), None, None)
    holds = _call("logical_and", (_all(_call("greater_equal", (node, zero))),
                                  _all(_call("greater", (total, zero)))))
    return Check(holds, f"{what}: a weight is below 0, or all of them are 0", kind=ValueCheckError)


def no_zero(divisor: Node, name: str) -> Check:
    """That no element of an integer divisor is zero."""
    zero = number_node(0, divisor.sig.out.dtype)
    return Check(_all(_call("not_equal", (divisor, zero))), f"{name}: a divisor is zero",
                 kind=ZeroDivisorError)


def known(node: Node) -> np.ndarray | None:
    """The value of a node that needs no program: a number, or an array of the host."""
    if node.value is None or isinstance(node.value, tuple) or (
            node.sig.out.device is not CPU and node.sig.kind != NUMBER):
        return None
    return unpaired(node.value) if node.sig.out.dtype.is_complex else np.asarray(node.value)


def _holds(d: dtype, number: int) -> bool:
    info = ml_dtypes.iinfo(d.dtype)
    return int(info.min) <= number <= int(info.max)


def finite(node: Node) -> Check:
    """That all elements of a result are finite."""
    return Check(_all(_call("isfinite", (node,))), f"{node.sig.name} made a NaN or an infinity",
                 kind=AnomalyError)


def finite_checks(order: Sequence[Node]) -> list[tuple[Node, Check]]:
    """A check for each call among the nodes that gives floats."""
    return [(node, finite(node)) for node in order
            if node.sig.kind == CALL and node.sig.out.fields is None
            and node.sig.out.dtype.is_floating_point]


def first_failure(checks: Sequence[tuple[Node, Check]], values: Sequence[Any], where: device = CPU
                  ) -> ValueCheckError | None:
    """The error of the first check, in the order of recording, that does not hold.

    ``values`` are arrays of the device ``where``.
    """
    failed = [(node.serial, at) for at, ((node, _), value) in enumerate(
        zip(checks, values, strict=True)) if not on_host(value, where)]
    if not failed:
        return None
    node, check = checks[min(failed)[1]]
    return check.error(node)


def _call(name: str, nodes: tuple[Node, ...]) -> Node:
    return Node(call_signature(name, {}, None, nodes), nodes, None, None)


def _all(node: Node) -> Node:
    return Node(call_signature("all", {}, None, (node,)), (node,), None, None)
