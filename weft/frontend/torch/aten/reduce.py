"""Converters of reductions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from weft import op
from weft.frontend.common import arrays
from weft.frontend.torch.node import Node, axes_of, axis_of, dtype_in, rank_of, shape_in
from weft.frontend.torch.registry import converts
from weft.ir import Constant, DType, Expr, KnownDim, Op
from weft.op.composites import norms

Axes = int | Sequence[int] | None


def _reduced(node: Node, operator: Op, x: Expr, axes: Axes, keepdims: bool) -> Expr:
    if not rank_of(x):
        return x  # torch accepts axis 0 for scalars
    return node.call(operator, x, axis=axes_of(axes, rank_of(x)), keepdims=bool(keepdims))


@converts("sum", "mean", "prod")
def accumulate(node: Node, x: Expr, axes: Axes = None, keepdims: bool = False,
               *_dtype: Any) -> Expr:
    operator = {"sum": op.sum, "mean": op.mean, "prod": op.prod}[node.op.split(".")[1]]
    x = node.cast(x, node.dtype())
    if operator is op.mean and 0 in shape_in(x):
        return _mean_of_empty(node, x, axes_of(axes, rank_of(x)), keepdims)
    return _reduced(node, operator, x, axes, keepdims)


def _mean_of_empty(node: Node, x: Expr, axes: Sequence[int], keepdims: bool) -> Expr:
    """0 / 0 where an axis of ``axes`` is empty; no result otherwise has an element."""
    kept = [1 if a in axes else n for a, n in enumerate(shape_in(x)) if keepdims or a not in axes]
    return node.broadcast(node.scalar_like(math.nan, x), kept)


@converts("sum.default", "mean.default", "prod.default")
def accumulate_all(node: Node, x: Expr, *_dtype: Any) -> Expr:
    return accumulate(node, x)


@converts("amax", "amin", "max.default", "min.default")
def extreme(node: Node, x: Expr, axes: Axes = None, keepdims: bool = False) -> Expr:
    operator = op.max if node.op.split(".")[1] in ("amax", "max") else op.min
    return _extreme(node, operator, x, axes, keepdims)


def _extreme(node: Node, operator: Op, x: Expr, axes: Axes, keepdims: bool) -> Expr:
    if not dtype_in(x).is_bool:
        return _reduced(node, operator, x, axes, keepdims)
    return node.cast(_reduced(node, operator, node.cast(x, "uint8"), axes, keepdims), "bool")


@converts("any", "all", "_is_all_true", "_is_any_true")
def truth(node: Node, x: Expr, axes: Axes = None, keepdims: bool = False) -> Expr:
    wanted = axes_of(axes, rank_of(x))
    is_any = "any" in node.op
    if any(shape_in(x)[a] == 0 for a in wanted if rank_of(x)):
        shape = [1 if a in wanted else n for a, n in enumerate(shape_in(x))]
        x = Constant(arrays.full(shape, not is_any), span=node.span)
    return _extreme(node, op.max if is_any else op.min, node.cast(x, "bool"), wanted, keepdims)


@converts("max.dim", "min.dim")
def extreme_and_place(node: Node, x: Expr, axis: int, keepdims: bool) -> tuple[Expr, Expr]:
    is_max = node.op.startswith("aten.max")
    value = _extreme(node, op.max if is_max else op.min, x, axis, keepdims)
    return value, _position(node, op.argmax if is_max else op.argmin, x, axis, keepdims)


@converts("argmax", "argmin")
def position(node: Node, x: Expr, axis: int | None, keepdims: bool) -> Expr:
    operator = op.argmax if node.op.startswith("aten.argmax") else op.argmin
    if axis is None:
        flat = node.reshape(x, (math.prod(shape_in(x)),))
        found = _position(node, operator, flat, 0, keepdims=False)
        return node.reshape(found, (1,) * rank_of(x)) if keepdims else found
    return _position(node, operator, x, axis, keepdims)


def _position(node: Node, operator: Op, x: Expr, axis: int, keepdims: bool) -> Expr:
    if not rank_of(x):
        return node.constant(0, "int64")
    x = node.cast(x, "uint8") if dtype_in(x).is_bool else x
    return node.call(operator, x, axis=(axis_of(axis, rank_of(x)),), keepdims=bool(keepdims),
                     dtype="int64")


@converts("var.correction")
def var(node: Node, x: Expr, axes: Axes, correction: float | None, keepdims: bool) -> Expr:
    return _moments(node, x, axes, correction, keepdims)[0]


@converts("var.dim")
def var_unbiased(node: Node, x: Expr, axes: Axes, unbiased: bool, keepdims: bool) -> Expr:
    return _moments(node, x, axes, float(unbiased), keepdims)[0]


@converts("std.correction")
def std(node: Node, x: Expr, axes: Axes, correction: float | None, keepdims: bool) -> Expr:
    return node.call(op.sqrt, var(node, x, axes, correction, keepdims))


@converts("var_mean.correction")
def var_mean(node: Node, x: Expr, axes: Axes, correction: float | None,
             keepdims: bool) -> tuple[Expr, Expr]:
    return _moments(node, x, axes, correction, keepdims)


def _moments(node: Node, x: Expr, axes: Axes, correction: float | None,
             keepdims: bool) -> tuple[Expr, Expr]:
    """The variance with divisor n - correction, and the mean."""
    wanted = axes_of(axes, rank_of(x))
    count = math.prod(shape_in(x)[a] for a in wanted) if rank_of(x) else 1
    if count == 0:
        nothing = _mean_of_empty(node, x, wanted, keepdims)
        return nothing, nothing
    mean = _reduced(node, op.mean, x, wanted, keepdims=True)
    centred = node.call(op.subtract, x, mean)
    total = _reduced(node, op.sum, node.call(op.multiply, centred, centred), wanted, keepdims)
    rest = _degrees(node, count, 1 if correction is None else correction, x)
    variance = node.call(op.divide, total, rest)
    return variance, node.reshape(mean, shape_in(variance))


def _degrees(node: Node, count: KnownDim, correction: float, x: Expr) -> Expr:
    """max(count - correction, 0) as a tensor of rank 0 of the dtype of ``x``."""
    if isinstance(count, int):
        return node.scalar_like(max(count - correction, 0), x)
    rest = node.call(op.subtract, node.size(count, DType.of("float64")),
                     node.constant(correction, "float64"))
    return node.cast(node.call(op.maximum, rest, node.constant(0, "float64")), dtype_in(x))


@converts("linalg_vector_norm")
def vector_norm(node: Node, x: Expr, order: float, axes: Axes, keepdims: bool,
                *_dtype: Any) -> Expr:
    x = node.cast(x, node.dtype())
    wanted = axes_of(axes, rank_of(x)) if rank_of(x) else None
    return node.composed(norms.p_norm, x, order, wanted, bool(keepdims))


@converts("cumsum", "cumprod")
def scan(node: Node, x: Expr, axis: int, *_dtype: Any) -> Expr:
    x = node.cast(x, node.dtype())
    if not rank_of(x):
        return x
    operator = op.cumsum if node.op.startswith("aten.cumsum") else op.cumprod
    return node.call(operator, x, axis=axis_of(axis, rank_of(x)))
