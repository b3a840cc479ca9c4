"""What it takes to change layouts, and the choice among layouts with that in view.

A value may be laid out as written ("plain") or in blocks. From the results of the function back to
its parameters, each value is given two prices: what the operators behind it take if it is plain,
and if it is in blocks, beyond the cheaper of both. For a chain of operators that is exact; where a
value has several users, each is charged as if it were alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from weft.ir.expr import Call, Expr, Function, Tuple, TupleGetItem
from weft.ir.op import Op
from weft.ir.types import TensorType, is_static
from weft.transform.analysis.graph import known_type
from weft.transform.layout.layout_choice import LayoutChoice

# To read an element and write it elsewhere: eight bytes, at 16 a cycle.
CONVERSION_CYCLES = 0.5


@dataclass(frozen=True, slots=True)
class _Prices:
    """Cycles behind a value that is laid out as written, and behind one in blocks."""

    plain: float = 0.0
    blocked: float = 0.0

    def of(self, blocked: bool) -> float:
        return self.blocked if blocked else self.plain

    def __add__(self, other: _Prices) -> _Prices:
        return _Prices(self.plain + other.plain, self.blocked + other.blocked)


class LayoutPrices:
    """The prices of one function, whose ``nodes`` come with operands before their users.

    ``choices`` gives what the hook of an operator offers for a call, nothing for most.
    """

    def __init__(
        self, nodes: Sequence[Expr], choices: Callable[[Call, Op], Sequence[LayoutChoice]]
    ) -> None:
        self._choices: dict[Expr, Sequence[LayoutChoice]] = {}
        self._behind: dict[Expr, _Prices] = {}
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

    def cheapest(self, call: Call, arrives_blocked: bool) -> LayoutChoice:
        """The choice for data that arrives in blocks or as written; the first of equals."""
        return min(self._choices[call], key=lambda c: self._cost(call, c, arrives_blocked))

    def _cost(self, call: Call, choice: LayoutChoice, arrives_blocked: bool) -> float:
        behind = self._behind.get(call, _Prices()).of(choice.gives_blocks)
        converted = choice.takes_blocks != arrives_blocked
        return choice.cycles + behind + (_conversion(call.args[0]) if converted else 0.0)

    def _charge_operands(self, node: Expr) -> None:
        behind = self._behind.get(node, _Prices())
        if node in self._choices and isinstance(node, Call):
            costs = [min(self._cost(node, c, arrives) for c in self._choices[node])
                     for arrives in (False, True)]
            self._charge(node.args[0], _Prices(costs[0] - min(costs), costs[1] - min(costs)))
        elif _passes_blocks(node):
            for operand in _operands(node):
                self._charge(operand, behind)
        else:
            for operand in _operands(node):
                self._charge(operand, _Prices(0.0, _conversion(operand)))

    def _charge(self, node: Expr, prices: _Prices) -> None:
        self._behind[node] = self._behind.get(node, _Prices()) + prices


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


def _passes_blocks(node: Expr) -> bool:
    """Whether the node may run in the layout of its data, which then is that of its result."""
    if isinstance(node, Call):
        return isinstance(node.op, Op) and node.op.hook("layout") is not None
    return isinstance(node, Tuple | TupleGetItem)


def _conversion(value: Expr) -> float:
    """Cycles to change the layout of ``value``; nothing where its size is not known."""
    type_ = known_type(value)
    if not isinstance(type_, TensorType) or not is_static(type_):
        return 0.0
    return CONVERSION_CYCLES * math.prod(type_.concrete_shape)
