"""Where in its window the largest element is: the second output of MaxPool."""

from __future__ import annotations

import itertools
import math

import numpy as np

from weft import op
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.windows import Window
from weft.ir.expr import Expr
from weft.ir.shape import Shape
from weft.support.errors import UnsupportedModelError


def places_of_largest(node: Node, window: Window, result: Shape) -> Expr:
    """Places in the flat input; of equal elements the first one in the window counts.

    The taps of the windows are compared one after the other. ``storage_order`` 1 counts places of
    an image by columns.
    """
    shape = node.shape()
    sizes = [d for d in (*shape, *result) if isinstance(d, int)]
    if len(sizes) < len(shape) + len(result):
        raise UnsupportedModelError("MaxPool gives places in an image of symbolic size",
                                    where=node.span)  # fmt: skip
    spatial, out = sizes[2 : len(shape)], sizes[len(shape) + 2 :]
    best = places = None
    for tap in itertools.product(*map(range, window.kernel)):
        value, inside = _tap(node, window, spatial, out, tap)
        here = _flat_places(node, window, spatial, out, tap)
        if best is None or places is None:
            best, places = value, node.call(op.broadcast_to, here, shape=tuple(sizes[len(shape) :]))
        else:
            better = node.call(op.logical_and, node.call(op.greater, value, best), inside)
            best = node.call(op.where, better, value, best)
            places = node.call(op.where, better, here, places)
    if places is None:
        raise node.fail("the window is empty")
    count = math.prod(spatial)
    images = np.arange(sizes[0] * sizes[1]).reshape(sizes[0], sizes[1], *(1,) * len(spatial))
    return node.call(op.add, places, node.constant(images * count, "int64"))


def _axis_places(window: Window, axis: int, count: int, tap: int) -> np.ndarray:
    start = tap * window.dilations[axis] - window.before[axis]
    return np.arange(count) * window.strides[axis] + start


def _tap(
    node: Node, window: Window, spatial: list[int], out: list[int], tap: tuple[int, ...]
) -> tuple[Expr, Expr]:
    """One element of every window, the lowest value where it lies in the padding."""
    value = node.input(0)
    inside = np.ones((1,) * len(out), bool)
    for axis, (size, count) in enumerate(zip(spatial, out, strict=True)):
        places = _axis_places(window, axis, count, tap[axis])
        rest = (1,) * (len(out) - axis - 1)
        inside = inside & ((places >= 0) & (places < size)).reshape(-1, *rest)
        index = node.constant(np.clip(places, 0, size - 1), "int64")
        value = node.call(op.take, value, index, axis=axis + 2, mode="clip")
    kept = node.constant(inside, "bool")
    kind = node.dtype()
    lowest = -np.inf if kind.is_float else np.iinfo(kind.numpy).min
    return node.call(op.where, kept, value, node.scalar_like(lowest, value)), kept


def _flat_places(
    node: Node, window: Window, spatial: list[int], out: list[int], tap: tuple[int, ...]
) -> Expr:
    by_columns = node.attrs.integer("storage_order", 0) == 1
    order = range(len(spatial)) if by_columns else reversed(range(len(spatial)))
    total, step = np.zeros((1,) * len(out), np.int64), 1
    for axis in order:
        places = _axis_places(window, axis, out[axis], tap[axis])
        rest = (1,) * (len(out) - axis - 1)
        total = total + (places * step).reshape(-1, *rest)
        step *= spatial[axis]
    return node.constant(total, "int64")
