"""Sorts. A comparator of known form is a sort by keys, another one decides a network of swaps."""

from __future__ import annotations

from collections.abc import Sequence

from weft import op
from weft.frontend.common.typed import dtype_in, shape_in
from weft.frontend.stablehlo.node import Body, Node, rank_of
from weft.frontend.stablehlo.ops.elementwise import total_order_key
from weft.frontend.stablehlo.regions import SortKey, lifted, sort_keys
from weft.frontend.stablehlo.registry import converts
from weft.ir.expr import Expr


@converts("stablehlo.sort")
def sort(node: Node, *operands: Expr) -> Sequence[Expr]:
    axis = node.axis(node.integer("dimension", -1), rank_of(operands[0]))
    if shape_in(operands[0])[axis] in (0, 1):
        return operands
    keys = sort_keys(node.bodies[0])
    if keys is None:
        return _by_network(node, node.bodies[0], operands, axis)
    plain = len(operands) == len(keys) == 1 and not keys[0].is_total
    if plain and not dtype_in(operands[0]).is_bool:
        return [node.call(op.sort, operands[0], axis=axis, is_ascend=keys[0].is_ascending)]
    order: Expr | None = None
    for key in reversed(keys):  # the least significant key first: the sort is stable
        order = _ordered(node, operands[key.operand], key, order, axis)
    return [node.call(op.gather, x, order, axis=axis) for x in operands]


def _ordered(node: Node, x: Expr, key: SortKey, before: Expr | None, axis: int) -> Expr:
    """The positions that sort ``x``, elements that are equal in the order ``before``."""
    values = total_order_key(node, x) if key.is_total and dtype_in(x).is_float else x
    if dtype_in(values).is_bool:
        values = node.cast(values, "uint8")
    if before is not None:
        values = node.call(op.gather, values, before, axis=axis)
    found = node.call(op.argsort, values, axis=axis, is_ascend=key.is_ascending, dtype="int64")
    return found if before is None else node.call(op.gather, before, found, axis=axis)


def _by_network(node: Node, body: Body, operands: Sequence[Expr], axis: int) -> list[Expr]:
    """Batcher's odd-even merge sort over whole axes; positions decide between equal elements.

    Elements that fill the axis up to a power of two carry a mark that sorts them last.
    """
    size = shape_in(operands[0])[axis]
    if not isinstance(size, int):
        raise node.unsupported("a comparator of its own along a symbolic axis", got=str(size))
    length = 1 << (size - 1).bit_length()
    rank = rank_of(operands[0])
    whole = (*shape_in(operands[0])[:axis], length, *shape_in(operands[0])[axis + 1:])
    line = node.reshape(node.iota(length, "int32"), [length if a == axis else 1
                                                     for a in range(rank)])
    widths = tuple((0, length - size if a == axis else 0) for a in range(rank))
    state = [node.call(op.nn.pad, x, node.number(0, x), pad_width=widths) for x in operands]
    state.append(node.broadcast(line, whole))
    step = 1
    while step < length:
        distance = step
        while distance:
            state = _swapped(node, body, state, axis, line, (step, distance, size))
            distance //= 2
        step *= 2
    return [node.slice(x, {axis: 0}, {axis: size}) for x in state[:-1]]


def _swapped(node: Node, body: Body, state: list[Expr], axis: int, line: Expr,
             stage: tuple[int, int, int]) -> list[Expr]:
    """One stage: elements ``distance`` apart change places if they are out of order."""
    step, distance, size = stage
    length = shape_in(line)[axis]
    place = [n % (2 * step) for n in range(length)]
    starts = [(n - distance % step) % (2 * distance) < distance and n + distance < length
              and n >= distance % step and n // (2 * step) == (n + distance) // (2 * step)
              for n in range(length)] if place else []
    partners = list(range(length))
    for position, is_first in enumerate(starts):
        if is_first:
            partners[position], partners[position + distance] = position + distance, position
    partner = node.constant(partners, "int64")
    first = node.constant([p > n for n, p in enumerate(partners)], "bool")
    first = node.reshape(first, shape_in(line))
    other = [node.call(op.take, x, partner, axis=axis) for x in state]
    low = [node.call(op.where, first, x, y) for x, y in zip(state, other, strict=True)]
    high = [node.call(op.where, first, y, x) for x, y in zip(state, other, strict=True)]
    swaps = _is_after(node, body, low, high, size)
    return [node.call(op.where, swaps, y, x) for x, y in zip(state, other, strict=True)]


def _is_after(node: Node, body: Body, low: Sequence[Expr], high: Sequence[Expr], size: int
              ) -> Expr:
    """Whether the elements ``low`` belong behind those of ``high``."""
    shape = shape_in(low[0])
    pairs = [x for both in zip(low[:-1], high[:-1], strict=True) for x in both]
    swapped = [x for both in zip(high[:-1], low[:-1], strict=True) for x in both]
    (less,), (greater,) = (lifted(node, body, p, shape) for p in (pairs, swapped))
    end = node.number(size, low[-1])
    fills = [node.call(op.greater_equal, x[-1], end) for x in (low, high)]
    equal = node.call(op.logical_not, less)
    behind = node.call(op.logical_or, greater, node.call(
        op.logical_and, equal, node.call(op.greater, low[-1], high[-1])))
    either = node.call(op.logical_or, *fills)
    return node.call(op.where, either, node.call(op.greater, low[-1], high[-1]), behind)


@converts("chlo.top_k", "@mhlo.topk")
def top_k(node: Node, x: Expr) -> Sequence[Expr]:
    values = node.call(op.topk, x, k=node.integer("k"), axis=-1, is_ascend=False,
                       dtype=node.dtype(1))
    return [node.field(values, 0), node.field(values, 1)]
