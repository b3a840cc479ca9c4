"""Softmax and log-softmax, numerically stable for large values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import te
from weft.tir.expr import PrimExpr, const, select

Power = Callable[[PrimExpr], PrimExpr]

# One instruction per vector; the maximum that propagates NaN needs three.
_largest = te.comm_reducer(lambda a, b: select(a > b, a, b), te.min_value, "largest")


def softmax(x: te.Tensor, axis: int, exp: Power = te.exp) -> te.Tensor:
    """exp(x - max) / sum exp(x - max) along ``axis``; ``exp`` may be an approximation.

    Stages: ``softmax_max``, ``softmax_exp``, ``softmax_sum``,
    ``softmax_scale`` (one division per row), ``softmax_output``.
    """
    _, powers, total = _stages(x, axis, exp)
    scale = te.compute(
        total.shape, lambda *i: const(1, x.dtype) / total[i], name="softmax_scale",
    )
    return te.compute(
        x.shape, lambda *i: powers[i] * scale[_without(i, axis)], name="softmax_output",
    )


def log_softmax(x: te.Tensor, axis: int) -> te.Tensor:
    """(x - max) - log sum exp(x - max) along ``axis``.

    Stages: ``softmax_max``, ``softmax_exp``, ``softmax_sum``, ``log_softmax_output``.
    """
    largest, _, total = _stages(x, axis, te.exp)

    def element(*index: PrimExpr) -> PrimExpr:
        row = _without(index, axis)
        return x[index] - largest[row] - te.log(total[row])

    return te.compute(x.shape, element, name="log_softmax_output")


def _stages(x: te.Tensor, axis: int, exp: Power) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    """The maximum, the exponentials relative to it, and their sum.

    The maximum may ignore NaN: its exponential makes the sum NaN, and so the whole row.
    """
    largest = _along(x, axis, _largest, "softmax_max")
    powers = te.compute(
        x.shape, lambda *i: exp(x[i] - largest[_without(i, axis)]), name="softmax_exp",
    )
    return largest, powers, _along(powers, axis, te.sum, "softmax_sum")


def _without(index: tuple[PrimExpr, ...], axis: int) -> tuple[PrimExpr, ...]:
    return (*index[:axis], *index[axis + 1:])


def _along(x: te.Tensor, axis: int, reducer: Callable[..., Any], name: str) -> te.Tensor:
    k = te.reduce_axis(x.shape[axis], name="k")
    return te.compute(
        _without(x.shape, axis),
        lambda *i: reducer(x[(*i[:axis], k.var, *i[axis:])], k),
        name=name,
    )
