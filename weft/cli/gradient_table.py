"""The table of ``weft ops --gradients``: how each operator is differentiated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from weft.ir.op import Op, OpPattern
from weft.ir.traits import Linearity

HEADER = ("operator", "cases", "reverse mode", "forward mode")


def rows_of(operators: Iterable[Op]) -> list[tuple[str, str, str, str]]:
    """One row for each operator, in the order of ``HEADER``."""
    return [(op.name, str(len(op.cases)), reverse_mode(op), forward_mode(op)) for op in operators]


def totals(operators: Iterable[Op]) -> str:
    """The number of operators for each way of reverse mode."""
    counts = Counter(reverse_mode(op).partition(":")[0] for op in operators)
    return ", ".join(f"{count} {way}" for way, count in counts.most_common())


def reverse_mode(op: Op) -> str:
    """How ``Gradient`` differentiates the operator."""
    if op.hook("expansion") is not None:
        return "expansion"
    if op.gradient_rule is not None:
        return "rule"
    if op.hook("decomposition") is not None and op.no_gradient_reason is None:
        return "decomposition"
    return _without_rule(op)


def forward_mode(op: Op) -> str:
    """How ``ForwardMode`` differentiates the operator."""
    if op.jvp_rule is not None:
        return "rule"
    if op.traits.linearity is not Linearity.NONE:
        return "linear"
    way = reverse_mode(op)
    if way != "rule":
        return way
    return "gradient of an elementwise operator" if op.pattern <= OpPattern.BROADCAST else (
        "transposed gradient")


def _without_rule(op: Op) -> str:
    if op.no_gradient_reason is not None:
        return f"none: {op.no_gradient_reason}"
    return "zero" if op.traits.has_zero_gradient else "none"
