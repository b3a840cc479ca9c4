"""The layout cost model: the choice among the layouts that hooks offer.

A value is either unblocked, in its original layout, or blocked. From the results of the function
back to its parameters, each value gets two costs, relative to the cheaper one: the seconds of the
operators that depend on it if it is unblocked, and if it is blocked. For a chain of operators this
is exact; if a value has several users, each is charged as if it were the only one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from weft.ir import ANY, Call, Expr, Function, Op, TensorType, Tuple, TupleGetItem
from weft.support.dataclass import dataclass
from weft.topi.layout import Layout
from weft.transform.analysis.graph import known_type
from weft.transform.layout.layout_choice import LayoutChoice
from weft.transform.layout.typical_images import typical_image_type

# The seconds to change the layout of a tensor of this type, whose sizes are fixed
# (``CostModel.conversion_seconds``).
ConversionCost: TypeAlias = Callable[[TensorType], float]


@dataclass(frozen=True, slots=True)
class _Costs:
    """Seconds of the users of a value if it is unblocked, and if it is blocked."""

    unblocked: float = 0.0
    blocked: float = 0.0

    def of(self, blocked: bool) -> float:
        return self.blocked if blocked else self.unblocked

    def __add__(self, other: _Costs) -> _Costs:
        return _Costs(self.unblocked + other.unblocked, self.blocked + other.blocked)


_NO_COSTS = _Costs()


class _Offer(NamedTuple):
    """A choice, and its seconds with those of the users of its result."""

    choice: LayoutChoice
    takes_blocks: bool
    seconds: float

    def cost(self, arrives_blocked: bool, conversion: float) -> float:
        return self.seconds + (conversion if self.takes_blocks != arrives_blocked else 0.0)


class LayoutCosts:
    """The costs of one function, whose ``nodes`` are in topological order, operands first.

    ``choices`` returns what the hook of an operator offers for a call, empty for most calls.
    """

    def __init__(self, nodes: Sequence[Expr], choices: Callable[[Call, Op], Sequence[LayoutChoice]],
                 conversion: ConversionCost) -> None:
        self._choices: dict[Expr, Sequence[LayoutChoice]] = {}
        self._users: dict[Expr, _Costs] = {}
        self._conversion = functools.cache(lambda type_: conversion(typical_image_type(type_)))
        for node in nodes:
            if isinstance(node, Call) and isinstance(node.op, Op):
                offered = choices(node, node.op)
                if offered:
                    self._choices[node] = offered
        if self._choices:
            for node in reversed(nodes):
                self._charge_operands(node)

    def has_choices(self, call: Call) -> bool:
        return call in self._choices

    def cheapest(self, call: Call, arriving: Layout | None) -> LayoutChoice:
        """The choice for data in this layout, ``None`` if unblocked; the first of equally fast
        ones. Data in other blocks than a choice takes changes its layout too.
        """
        conversion = self._conversion_of(call.args[0])

        def cost(offer: _Offer) -> float:
            seconds = offer.cost(arriving is not None, conversion)
            wanted = offer.choice.input_layouts[0] if offer.takes_blocks else None
            is_other = wanted is not None and arriving is not None and wanted[1] != arriving.name
            return seconds + (conversion if is_other else 0.0)

        return min(self._offers_of(call), key=cost).choice

    def _offers_of(self, call: Call) -> list[_Offer]:
        users = self._users.get(call, _NO_COSTS)
        return [_Offer(choice, choice.takes_blocks, choice.seconds + users.of(choice.gives_blocks))
                for choice in self._choices[call]]

    def _charge_operands(self, node: Expr) -> None:
        if node in self._choices and isinstance(node, Call):
            conversion, offers = self._conversion_of(node.args[0]), self._offers_of(node)
            costs = [min([offer.cost(arrives, conversion) for offer in offers])
                     for arrives in (False, True)]
            # Only the difference matters to the operand: the smaller cost is paid in either layout.
            self._charge(node.args[0], _Costs(costs[0] - min(costs), costs[1] - min(costs)))
        elif _keeps_layout(node):
            users = self._users.get(node, _NO_COSTS)
            for operand in _operands(node):
                self._charge(operand, users)
        else:
            for operand in _operands(node):
                # The node needs the original layout, so a blocked operand is converted back.
                self._charge(operand, _Costs(0.0, self._conversion_of(operand)))

    def _charge(self, node: Expr, costs: _Costs) -> None:
        known = self._users.get(node)
        self._users[node] = costs if known is None else known + costs

    def _conversion_of(self, value: Expr) -> float:
        """Seconds to change the layout of ``value``; 0 if only run time determines its size.

        Symbolic sizes count as the typical sizes of images.
        """
        type_ = known_type(value)
        if not isinstance(type_, TensorType) or ANY in type_.shape:
            return 0.0
        return self._conversion(type_)


def _operands(node: Expr) -> tuple[Expr, ...]:
    match node:
        case Call():
            return node.args
        case Tuple():
            return node.fields
        case TupleGetItem():
            return (node.tuple_value,)
        case Function():
            return (node.body,)
    return ()


def _keeps_layout(node: Expr) -> bool:
    """Whether the node may run in the layout of its data; its result then has that layout too."""
    if isinstance(node, Call):
        return isinstance(node.op, Op) and node.op.hook("layout") is not None
    return isinstance(node, Tuple | TupleGetItem)
