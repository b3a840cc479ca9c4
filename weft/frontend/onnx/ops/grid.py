"""Converter of GridSample, which samples at coordinates computed at run time."""

from __future__ import annotations

import itertools
from functools import reduce

from weft import op
from weft.frontend.common import arrays
from weft.frontend.onnx.node import Node, tensor_type
from weft.frontend.onnx.registry import converts
from weft.frontend.onnx.reshaping import reshape_to
from weft.ir import Expr, Op
from weft.support.dataclass import dataclass
from weft.support.errors import UnsupportedModelError

_MODES = {"linear": "linear", "bilinear": "linear", "cubic": "cubic", "bicubic": "cubic",
          "nearest": "nearest"}
_PADDING = ("zeros", "border", "reflection")
_CUBIC_A = -0.75


@dataclass(frozen=True)
class Tap:
    """An input index along one axis, its weight, and whether it is inside the input.

    ``None`` means a weight of 1, and always inside.
    """

    position: Expr
    weight: Expr | None
    inside: Expr | None


class Arithmetic:
    """Arithmetic on expressions of ``node``; the second operand may be a number."""

    def __init__(self, node: Node) -> None:
        self.node = node

    def of(self, operator: Op, a: Expr, b: Expr | float) -> Expr:
        other = b if isinstance(b, Expr) else self.node.scalar_like(b, a)
        return self.node.call(operator, a, other)

    def add(self, a: Expr, b: Expr | float) -> Expr:
        return self.of(op.add, a, b)

    def sub(self, a: Expr, b: Expr | float) -> Expr:
        return self.of(op.subtract, a, b)

    def mul(self, a: Expr, b: Expr | float) -> Expr:
        return self.of(op.multiply, a, b)


@converts("GridSample", since=16, attributes=("align_corners", "mode", "padding_mode"))
def grid_sample(node: Node) -> Expr:
    """Sum the weighted input elements around each coordinate, over all combinations of taps."""
    shape, grid = node.shape(), node.shape(1)
    if not all(isinstance(d, int) for d in (*shape, *grid)):
        raise UnsupportedModelError("GridSample of symbolic sizes", where=node.span,
                                    help='fix the sizes: inputs={"x": (1, 3, 224, 224)}')
    mode = _MODES[node.attrs.one_of("mode", "linear", tuple(_MODES))]
    spatial = len(shape) - 2
    if len(grid) != len(shape) or grid[-1] != spatial:
        raise node.fail("the shape of the grid does not match the input",
                        expected=f"{spatial} coordinates per position", got=str(grid))
    taps = [_taps_of(node, axis, mode) for axis in range(spatial)]
    return reduce(lambda a, b: node.call(op.add, a, b),
                  [_gathered(node, corner) for corner in itertools.product(*taps)])


def _taps_of(node: Node, axis: int, mode: str) -> list[Tap]:
    """Return the taps along ``axis``; grid coordinates are ordered from the last axis."""
    shape, m = node.shape(), Arithmetic(node)
    size, last = int(shape[axis + 2]), len(shape) - 3 - axis  # type: ignore[call-overload]
    x = node.call(op.take, node.input(1), node.constant(last, "int64"), axis=len(shape) - 1,
                  mode="clip")
    if node.attrs.flag("align_corners"):
        x = m.mul(m.add(x, 1), (size - 1) / 2)
        low, high = 0.0, size - 1.0
    else:
        x = m.mul(m.sub(m.mul(m.add(x, 1), float(size)), 1), 0.5)
        low, high = -0.5, size - 0.5
    padding = node.attrs.one_of("padding_mode", "zeros", _PADDING)
    fold = {
        "zeros": lambda p: p,
        "border": lambda p: node.call(op.clip, p, a_min=0.0, a_max=size - 1.0),
        "reflection": lambda p: _reflected(m, p, low, high),
    }[padding]
    if mode == "nearest":
        return [_tap(node, fold(node.call(op.round, fold(x))), None, size, padding)]
    if mode == "linear":
        x = fold(x)
    start = node.call(op.floor, x)
    part = m.sub(x, start)
    weigh = _linear_weights if mode == "linear" else _cubic_weights
    first = 0 if mode == "linear" else -1
    return [
        _tap(node, fold(m.add(start, k)) if mode == "cubic" else m.add(start, k), weight, size,
             padding)
        for k, weight in enumerate(weigh(m, part), start=first)
    ]


def _tap(node: Node, position: Expr, weight: Expr | None, size: int, padding: str) -> Tap:
    """Return a tap; outside the input it is zero (padding ``zeros``) or the nearest element."""
    inside = None
    if padding == "zeros":
        m = Arithmetic(node)
        inside = node.call(op.logical_and, m.of(op.greater_equal, position, 0.0),
                           m.of(op.less_equal, position, size - 1.0))
    clipped = node.call(op.clip, position, a_min=0.0, a_max=size - 1.0)
    return Tap(node.call(op.cast, clipped, dtype="int64"), weight, inside)


def _reflected(m: Arithmetic, x: Expr, low: float, high: float) -> Expr:
    """Reflect ``x`` at both borders until it is between them."""
    width = high - low
    if width <= 0:
        return m.mul(x, 0.0)
    away = m.node.call(op.abs, m.sub(x, low))
    folded = m.of(op.floor_mod, away, 2 * width)
    back = m.add(m.mul(folded, -1.0), 2 * width)
    return m.add(m.node.call(op.minimum, folded, back), low)


def _linear_weights(m: Arithmetic, part: Expr) -> list[Expr]:
    return [m.add(m.mul(part, -1.0), 1.0), part]


def _cubic_weights(m: Arithmetic, part: Expr) -> list[Expr]:
    """Keys' kernel at distances 1 + t, t, 1 - t and 2 - t."""
    a, rest = _CUBIC_A, m.add(m.mul(part, -1.0), 1.0)

    def inner(d: Expr) -> Expr:
        return m.add(m.mul(m.mul(d, d), m.sub(m.mul(d, a + 2), a + 3)), 1.0)

    def outer(d: Expr) -> Expr:
        cubic = m.mul(m.sub(d, 5.0), d)
        return m.mul(m.sub(m.mul(m.add(cubic, 8.0), d), 4.0), a)

    return [outer(m.add(part, 1.0)), inner(part), inner(rest), outer(m.add(rest, 1.0))]


def _gathered(node: Node, corner: tuple[Tap, ...]) -> Expr:
    """Gather the weighted input at one tap per axis: [batch, channels, positions…]."""
    batch, channels, *_ = node.shape()
    positions = tensor_type(corner[0].position).shape[1:]
    rank = 2 + len(positions)
    full = (batch, channels, *positions)

    def spread(value: Expr) -> Expr:
        return reshape_to(node, value, (batch, 1, *positions))

    lead = [
        node.constant(arrays.arange(n).reshape([-1 if a == axis else 1 for a in range(rank)]),
                      "int64")
        for axis, n in enumerate((batch, channels))
        if isinstance(n, int)  # always: the caller checks it
    ]
    index = [node.call(op.broadcast_to, i, shape=full)
             for i in (*lead, *(spread(t.position) for t in corner))]
    tuples = node.tuple_call(
        op.concatenate, [node.call(op.expand_dims, i, axis=0, num_newaxis=1) for i in index], axis=0
    )
    value = node.call(op.gather_nd, node.input(0), tuples)
    for tap in corner:
        if tap.inside is not None:
            value = node.call(op.where, spread(tap.inside), value, node.scalar_like(0, value))
        if tap.weight is not None:
            value = node.call(op.multiply, value, spread(tap.weight))
    return value
