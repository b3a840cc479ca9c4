"""Line search: a step that meets the strong Wolfe conditions (Nocedal and Wright 2006, 3.5)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from weft.eager.tensor import Tensor


class Point(NamedTuple):
    """A point of the line: the step to it, and the loss, gradient and slope there."""

    step: float
    loss: float
    gradient: Tensor
    slope: float


_DECREASE, _CURVATURE = 1e-4, 0.9  # c1 and c2 of the Wolfe conditions


def strong_wolfe(
    evaluate: Callable[[float], Point], start: Point, step: float, direction_size: float,
    tolerance: float, limit: int,
) -> tuple[Point, int]:
    """A point with a sufficient decrease and a small slope, and how many were looked at.

    After ``limit`` iterations, or when points are less than ``tolerance`` apart, the best so far.
    """
    point, previous, count = evaluate(step), start, 0
    while count < limit:
        if _is_too_high(point, start) or (count > 1 and point.loss >= previous.loss):
            return _narrowed(evaluate, start, [previous, point], direction_size, tolerance, count,
                             limit)
        if _is_flat(point, start):
            return point, count + 1
        if point.slope >= 0:
            return _narrowed(evaluate, start, [previous, point], direction_size, tolerance, count,
                             limit)
        bounds = point.step + 0.01 * (point.step - previous.step), point.step * 10
        previous, point = point, evaluate(_lowest_of_cubic(previous, point, bounds))
        count += 1
    return min(start, point, key=lambda one: one.loss), count + 1


def _narrowed(
    evaluate: Callable[[float], Point], start: Point, bracket: list[Point], direction_size: float,
    tolerance: float, count: int, limit: int,
) -> tuple[Point, int]:
    """Narrow an interval that holds a good point; its first end is the lower one."""
    low, high = sorted(bracket, key=lambda one: one.loss)
    is_stuck = False
    while count < limit and abs(high.step - low.step) * direction_size >= tolerance:
        left, right = sorted((low.step, high.step))
        first, second = (low, high) if bracket[0] is low else (high, low)
        step = _lowest_of_cubic(first, second, (left, right))
        margin = 0.1 * (right - left)
        if min(right - step, step - left) < margin:
            if is_stuck or step >= right or step <= left:
                step = right - margin if abs(step - right) < abs(step - left) else left + margin
                is_stuck = False
            else:
                is_stuck = True
        else:
            is_stuck = False
        point = evaluate(step)
        count += 1
        if _is_too_high(point, start) or point.loss >= low.loss:
            bracket = [low, point]
            low, high = (low, point) if low.loss <= point.loss else (point, low)
            continue
        if _is_flat(point, start):
            return point, count + 1
        if point.slope * (high.step - low.step) >= 0:
            high = low
        low = point
        bracket = [low, high]
    return low, count + 1


def _is_too_high(point: Point, start: Point) -> bool:
    return point.loss > start.loss + _DECREASE * point.step * start.slope


def _is_flat(point: Point, start: Point) -> bool:
    return abs(point.slope) <= -_CURVATURE * start.slope


def _lowest_of_cubic(one: Point, other: Point, bounds: tuple[float, float]) -> float:
    """The minimum of the cubic through two points with their slopes, within bounds."""
    low, high = bounds
    one, other = (one, other) if one.step <= other.step else (other, one)
    if one.step == other.step:
        return (low + high) / 2
    tilt = one.slope + other.slope - 3 * (one.loss - other.loss) / (one.step - other.step)
    square = tilt * tilt - one.slope * other.slope
    if not square >= 0:
        return (low + high) / 2
    root = math.sqrt(square)
    bottom = other.slope - one.slope + 2 * root
    if bottom == 0:
        return (low + high) / 2
    found = other.step - (other.step - one.step) * ((other.slope + root - tilt) / bottom)
    return min(max(found, low), high)
