"""Replace reads at constant, regular positions by slices and repetitions."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import op
from weft.ir import Call, Constant, Expr, NoMatch, RuleSet, TensorType, rule
from weft.ir.rewrite.pattern import any_, const
from weft.transform.analysis.graph import known_type


@rule(op.take(any_("x"), const("positions")), group="simplify")
def take_at_even_steps(x: Expr, positions: Constant, call: Call) -> Expr | NoMatch:
    """
    fn (%x: Tensor[(2, 6), float32]) { take(%x, const([1, 3, 5], (3,), int64), axis=1) }
    =>
    fn (%x: Tensor[(2, 6), float32]) {
      strided_slice(%x, begin=(1,), end=(6,), strides=(2,), axes=(1,))
    }
    """
    found = _along_axis(x, positions, call)
    if isinstance(found, NoMatch):
        return found
    axis, size, at = found
    start, step = int(at[0]), int(at[1] - at[0]) if at.size > 1 else 1
    if step < 1 or not np.array_equal(at, start + step * np.arange(at.size)):
        return NoMatch("the positions are not an arithmetic progression")
    if step == 1 and at.size == size:
        return x
    return op.strided_slice(x, begin=(start,), end=(int(at[-1]) + 1,), strides=(step,),
                            axes=(axis,))


@rule(op.take(any_("x"), const("positions")), group="simplify")
def take_of_each_several_times(x: Expr, positions: Constant, call: Call) -> Expr | NoMatch:
    """
    fn (%x: Tensor[(2, 3), float32]) { take(%x, const([0, 0, 1, 1, 2, 2], (6,), int64), axis=1) }
    =>
    fn (%x: Tensor[(2, 3), float32]) { repeat(%x, repeats=2, axis=1) }
    """
    found = _along_axis(x, positions, call)
    if isinstance(found, NoMatch):
        return found
    axis, size, at = found
    times, rest = divmod(at.size, size)
    if rest or times < 2 or not np.array_equal(at, np.arange(at.size) // times):
        return NoMatch("the positions do not repeat each element equally often, in order")
    return op.repeat(x, repeats=times, axis=axis)


def _along_axis(x: Expr, positions: Constant, call: Call) -> tuple[int, int, np.ndarray] | NoMatch:
    """The axis, its size, and the positions, if these are in range."""
    attrs: Any = call.attrs
    type_ = known_type(x)
    if attrs.axis is None or not isinstance(type_, TensorType):
        return NoMatch("axis is None")
    axis = attrs.axis % len(type_.shape)
    size = type_.shape[axis]
    if not isinstance(size, int) or positions.data.ndim != 1 or positions.data.size == 0:
        return NoMatch("the size is not static, or the positions have several axes")
    at = positions.data.astype(np.int64)
    if at.min() < 0 or at.max() >= size:
        return NoMatch("a position is out of range")
    return axis, size, at


RULES = RuleSet(take_at_even_steps, take_of_each_several_times)
