"""Reductions of windows, and their gradients: reduce_window, select_and_scatter."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from weft import op
from weft.frontend.common.typed import dtype_in, shape_in
from weft.frontend.stablehlo.node import Node, rank_of
from weft.frontend.stablehlo.ops.shape import dilated, padded
from weft.frontend.stablehlo.regions import combinations, is_neutral, lifted, monoid_of
from weft.frontend.stablehlo.registry import converts
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.support.dataclass import dataclass

# Elements of a window that are combined one by one.
_MOST_TAPS = 4096
_RUNNING: dict[str, Op] = {"add": op.cumsum, "multiply": op.cumprod, "maximum": op.cummax,
                           "minimum": op.cummin}
_MAX_POOLS: dict[int, tuple[Op, str, str]] = {
    1: (op.nn.max_pool1d, "NCW", "NWC"), 2: (op.nn.max_pool2d, "NCHW", "NHWC"),
    3: (op.nn.max_pool3d, "NCDHW", "NDHWC")}


@dataclass(frozen=True, slots=True)
class _Window:
    """The geometry of the windows, by axis."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    base: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]

    @staticmethod
    def of(node: Node, rank: int) -> _Window:
        ones = (1,) * rank
        found = _Window(node.ints("window_dimensions", ones), node.ints("window_strides", ones),
                        node.ints("base_dilations", ones), node.ints("window_dilations", ones),
                        node.pairs("padding", rank))
        lengths = {len(found.sizes), len(found.strides), len(found.base), len(found.dilation)}
        if lengths != {rank} or min((*found.sizes, *found.strides, *found.base,
                                     *found.dilation), default=1) < 1:
            raise node.fail("the window does not fit the operand",
                            expected=f"{rank} positive numbers of each kind", got=str(found))
        return found

    def count(self, axis: int, size: Any) -> Any:
        """How many windows lie along an axis of a padded operand."""
        span = (self.sizes[axis] - 1) * self.dilation[axis] + 1
        return (size - span) // self.strides[axis] + 1


@converts("stablehlo.reduce_window")
def reduce_window(node: Node, *operands: Expr) -> Sequence[Expr]:
    count = len(operands) // 2
    xs, inits = operands[:count], operands[count:]
    if not xs or len(operands) % 2:
        raise node.fail("the operands are no pairs of tensors and initial values")
    window = _Window.of(node, rank_of(xs[0]))
    names = combinations(node.bodies[0], count)
    if count == 1:
        special = _running(node, xs[0], inits[0], window, names[0]) or \
            _pooled(node, xs[0], inits[0], window, names[0])
        if special is not None:
            return [special]
    if math.prod(window.sizes) > _MOST_TAPS and sum(window.sizes) > _MOST_TAPS:
        raise node.unsupported("a window of too many elements", expected=f"at most {_MOST_TAPS}",
                               got=str(window.sizes))
    state = [padded(node, dilated(node, x, init, window.base), init,
                    [low for low, _ in window.padding], [high for _, high in window.padding],
                    [0] * rank_of(x)) for x, init in zip(xs, inits, strict=True)]
    for axis in range(rank_of(xs[0])):
        state = _along(node, state, window, axis)
    if all(monoid is not None and is_neutral(init, monoid, dtype_in(x)) for monoid, init, x in zip(
            (monoid_of(n, dtype_in(x)) for n, x in zip(names, xs, strict=True)), inits, xs,
            strict=True)):
        return state
    return lifted(node, node.bodies[0], [*inits, *state], shape_in(state[0]))


def _along(node: Node, state: list[Expr], window: _Window, axis: int) -> list[Expr]:
    """The taps of the window along one axis, combined from the first to the last."""
    step, taps = window.strides[axis], window.sizes[axis]
    count = window.count(axis, shape_in(state[0])[axis])
    if isinstance(count, int) and count <= 0:
        raise node.fail("the window is larger than the padded operand")

    def tap(number: int) -> list[Expr]:
        first = number * window.dilation[axis]
        return [node.slice(x, {axis: first}, {axis: first + (count - 1) * step + 1},
                           {axis: step}) for x in state]

    total = tap(0)
    for number in range(1, taps):
        total = lifted(node, node.bodies[0], [*total, *tap(number)], shape_in(total[0]))
    return total


def _running(node: Node, x: Expr, init: Expr, window: _Window, name: str | None) -> Expr | None:
    """A cumulative sum, product or extreme: a window over all elements before each."""
    wide = [a for a, n in enumerate(window.sizes) if n > 1]
    monoid = monoid_of(name, dtype_in(x))
    if len(wide) != 1 or name not in _RUNNING or dtype_in(x).is_bool or monoid is None \
            or not is_neutral(init, monoid, dtype_in(x)):
        return None
    axis, size = wide[0], shape_in(x)[wide[0]]
    ones = (1,) * rank_of(x)
    others = [pair for a, pair in enumerate(window.padding) if a != axis]
    if window.sizes[axis] != size or any(pair != (0, 0) for pair in others) or \
            not window.strides == window.base == window.dilation == ones:
        return None
    if window.padding[axis] not in ((size - 1, 0), (0, size - 1)):
        return None
    return node.call(_RUNNING[name], x, axis=axis, reverse=window.padding[axis] == (0, size - 1))


def _pooled(node: Node, x: Expr, init: Expr, window: _Window, name: str | None) -> Expr | None:
    """A pool of weft; ``None`` for windows that no pool has."""
    rank = rank_of(x)
    monoid = monoid_of(name, dtype_in(x))
    if name != "maximum" or monoid is None or not dtype_in(x).is_float \
            or rank - 2 not in _MAX_POOLS or window.base != (1,) * rank \
            or not is_neutral(init, monoid, dtype_in(x)):
        return None
    operator, first, last = _MAX_POOLS[rank - 2]
    plain = [a for a in range(rank) if (window.sizes[a], window.strides[a], window.dilation[a],
                                        window.padding[a]) == (1, 1, 1, (0, 0))]
    layout = first if {0, 1} <= set(plain) else last if {0, rank - 1} <= set(plain) else None
    spatial = range(2, rank) if layout == first else range(1, rank - 1)
    sides = [window.padding[a] for a in spatial]
    if layout is None or any(n < 0 for pair in sides for n in pair):
        return None
    return node.call(operator, x, pool_size=tuple(window.sizes[a] for a in spatial),
                     strides=tuple(window.strides[a] for a in spatial),
                     dilation=tuple(window.dilation[a] for a in spatial),
                     padding=(*(low for low, _ in sides), *(high for _, high in sides)),
                     layout=layout)


@converts("stablehlo.select_and_scatter")
def select_and_scatter(node: Node, x: Expr, source: Expr, init: Expr) -> Expr:
    """Each element of ``source`` goes to the place that its window of ``x`` selects."""
    window = _Window.of(node, rank_of(x))
    taps = list(itertools.product(*map(range, window.sizes)))
    (name,) = combinations(node.bodies[1], 1)
    monoid = monoid_of(name, dtype_in(source))
    if len(taps) > _MOST_TAPS or monoid is None or monoid.scatter != "add":
        raise node.unsupported("this window or region of a scatter",
                               expected=f"sums, and windows of at most {_MOST_TAPS} elements",
                               got=str(window.sizes))
    chosen = _selected(node, x, window, taps)
    total: Expr | None = None
    zero = node.number(0, source)
    for number, tap in enumerate(taps):
        here = node.call(op.equal, chosen, node.number(number, chosen))
        part = node.call(op.where, here, source, zero)
        part = _placed(node, part, window, tap, shape_in(x))
        total = part if total is None else node.call(op.add, total, part)
    if total is None:
        raise node.fail("the window is empty")
    return total if is_neutral(init, monoid, dtype_in(source)) else node.call(op.add, total, init)


def _selected(node: Node, x: Expr, window: _Window, taps: Sequence[tuple[int, ...]]) -> Expr:
    """The number of the tap that each window selects; a tap outside of ``x`` is never selected."""
    best: Expr | None = None
    number: Expr | None = None
    for position, tap in enumerate(taps):
        value, inside = _tap(node, x, window, tap)
        here = node.constant(position, "int32")
        if best is None or number is None:
            best, number = value, node.call(op.where, inside, here, node.constant(-1, "int32"))
            continue
        # The region says whether the element selected so far stays.
        (stays,) = lifted(node, node.bodies[0], [best, value], shape_in(value))
        first = node.call(op.less, number, node.number(0, number))
        takes = node.call(op.logical_and, inside, node.call(
            op.logical_or, first, node.call(op.logical_not, stays)))
        best = node.call(op.where, takes, value, best)
        number = node.call(op.where, takes, here, number)
    if number is None:
        raise node.fail("the window is empty")
    return number


def _tap(node: Node, x: Expr, window: _Window, tap: tuple[int, ...]) -> tuple[Expr, Expr]:
    """One element of every window, and whether it is an element of ``x``."""
    rank = rank_of(x)
    low, high = zip(*window.padding, strict=True) if rank else ((), ())
    wide = padded(node, x, node.number(0, x), low, high, (0,) * rank)
    sizes = shape_in(wide)
    counts = [window.count(a, sizes[a]) for a in range(rank)]
    starts = dict(enumerate(tap))
    ends = {a: tap[a] + (counts[a] - 1) * window.strides[a] + 1 for a in range(rank)}
    steps = dict(enumerate(window.strides))
    inside: Expr = node.broadcast(node.constant(True, "bool"), counts)
    for axis in range(rank):
        if window.padding[axis] == (0, 0):
            continue
        line = node.call(op.arange, start=tap[axis] - low[axis], stop=ends[axis] - low[axis],
                         step=window.strides[axis], dtype="int64")
        within = node.call(op.logical_and,
                           node.call(op.greater_equal, line, node.number(0, line)),
                           node.call(op.less, line, node.number(shape_in(x)[axis], line)))
        within = node.reshape(within, [n if a == axis else 1 for a, n in enumerate(counts)])
        inside = node.call(op.logical_and, inside, within)
    return node.slice(wide, starts, ends, steps), inside


def _placed(node: Node, part: Expr, window: _Window, tap: tuple[int, ...], shape: Sequence[int]
            ) -> Expr:
    """Values of windows at the places of one of their elements, zeros elsewhere."""
    low = [tap[a] - window.padding[a][0] for a in range(len(shape))]
    lengths = [(n - 1) * s + 1 for n, s in zip(shape_in(part), window.strides, strict=True)]
    high = [shape[a] - lengths[a] - low[a] for a in range(len(shape))]
    return padded(node, part, node.number(0, part), low, high, [s - 1 for s in window.strides])
