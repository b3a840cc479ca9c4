"""Operations of CHLO that are several operators of weft, and its forms with broadcasting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft import op
from weft.frontend.common.typed import dtype_in, shape_in
from weft.frontend.stablehlo.node import Node, constant_in, rank_of
from weft.frontend.stablehlo.ops import elementwise as _elementwise  # noqa: F401 - its converters are used
from weft.frontend.stablehlo.registry import CONVERTERS, converts
from weft.ir.dtype import DType
from weft.ir.expr import Expr

_BROADCAST = {
    "broadcast_add": "add", "broadcast_and": "and", "broadcast_atan2": "atan2",
    "broadcast_compare": "compare", "broadcast_divide": "divide", "broadcast_maximum": "maximum",
    "broadcast_minimum": "minimum", "broadcast_multiply": "multiply", "broadcast_or": "or",
    "broadcast_power": "power", "broadcast_remainder": "remainder",
    "broadcast_select": "select", "broadcast_shift_left": "shift_left",
    "broadcast_shift_right_arithmetic": "shift_right_arithmetic",
    "broadcast_shift_right_logical": "shift_right_logical", "broadcast_subtract": "subtract",
    "broadcast_xor": "xor",
}


def _broadcasting(name: str) -> Callable[..., Any]:
    converter = CONVERTERS.find(f"stablehlo.{name}")

    def convert(node: Node, *operands: Expr) -> Any:
        rank = max(map(rank_of, operands))
        axes = node.ints("broadcast_dimensions", ())
        lined = [x if rank_of(x) == rank or not axes else node.reshape(
            x, [shape_in(x)[axes.index(a)] if a in axes else 1 for a in range(rank)])
            for x in operands]
        shape = np.broadcast_shapes(*(shape_in(x) for x in lined))
        return converter(node, *(node.broadcast(x, shape) for x in lined))  # type: ignore[misc]

    return convert


for _name, _target in _BROADCAST.items():
    CONVERTERS.register(f"chlo.{_name}", _broadcasting(_target))


@converts("chlo.square")
def square(node: Node, x: Expr) -> Expr:
    return node.call(op.multiply, x, x)


@converts("chlo.is_pos_inf")
def is_pos_inf(node: Node, x: Expr) -> Expr:
    return node.call(op.equal, x, node.number(np.inf, x))


@converts("chlo.is_neg_inf")
def is_neg_inf(node: Node, x: Expr) -> Expr:
    return node.call(op.equal, x, node.number(-np.inf, x))


@converts("chlo.zeta", "chlo.broadcast_zeta")
def zeta(node: Node, x: Expr, q: Expr) -> Expr:
    return node.call(op.special.zeta, x, q)


@converts("chlo.polygamma", "chlo.broadcast_polygamma")
def polygamma(node: Node, order: Expr, x: Expr) -> Expr:
    """The order is a number, or differs by element: then a product of gamma and zeta."""
    known = constant_in(order)
    if known is not None and known.size and (known == known.reshape(-1)[0]).all():
        first = float(known.reshape(-1)[0])
        if first.is_integer() and 0 <= first < 100:
            return node.call(op.special.polygamma, x, order=int(first))
    next_ = node.call(op.add, order, node.number(1, x))
    size = node.call(op.multiply, node.call(op.exp, node.call(op.special.lgamma, next_)),
                     node.call(op.special.zeta, next_, x))
    half = node.call(op.multiply, next_, node.number(0.5, x))
    is_even = node.call(op.equal, node.call(op.floor, half), half)
    signed = node.call(op.where, is_even, size, node.call(op.negative, size))
    is_zero = node.call(op.equal, order, node.number(0, x))
    return node.call(op.where, is_zero, node.call(op.special.digamma, x), signed)


@converts("chlo.conj")
def conj(_node: Node, x: Expr) -> Expr:
    return x


@converts("chlo.next_after", "chlo.broadcast_next_after")
def next_after(node: Node, x: Expr, y: Expr) -> Expr:
    """The neighbour of ``x`` towards ``y``: one step of its bits."""
    dtype = dtype_in(x)
    kind = DType.of(f"int{dtype.bits}")
    zero, one = node.number(0, x), node.constant(1, kind)
    bits = node.call(op.reinterpret, x, dtype=kind)
    grows = node.call(op.equal, node.call(op.less, x, y), node.call(op.greater, x, zero))
    stepped = node.call(op.where, grows, node.call(op.add, bits, one),
                        node.call(op.subtract, bits, one))
    moved = node.call(op.reinterpret, stepped, dtype=dtype)
    smallest = node.call(op.reinterpret, node.constant(1, kind), dtype=dtype)
    from_zero = node.call(op.where, node.call(op.greater, y, zero), smallest,
                          node.call(op.negative, smallest))
    moved = node.call(op.where, node.call(op.equal, x, zero), from_zero, moved)
    moved = node.call(op.where, node.call(op.equal, x, y), y, moved)
    return node.call(op.where, node.call(op.isnan, node.call(op.add, x, y)),
                     node.number(np.nan, x), moved)
