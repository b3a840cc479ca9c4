"""Recognize attention written in basic operators: two matmuls with a softmax between.

From the result inwards: a matmul with the values; guards that exporters add for rows without
visible keys; the softmax; masks; the scale; a matmul of queries and keys. Reshapes that keep the
last two axes may occur anywhere in between.
"""

from __future__ import annotations

import math
from dataclasses import field
from typing import Any

from weft import op
from weft.ir import AnyDim, Call, Constant, Dim, Expr, Shape, TensorType, dim_product
from weft.support.dataclass import dataclass
from weft.transform.analysis.graph import known_type, op_name, traits_of


@dataclass(frozen=True, slots=True)
class Mask:
    """Numbers to add to the scores; with ``fill``, booleans: where false, the score is ``fill``."""

    expr: Expr
    fill: float | None = None


@dataclass(slots=True)
class AttentionMatch:
    """Attention as matched: operands, attributes, and the calls that the match consumed.

    ``masks``, outermost first, broadcast to the scores, which have shape (*lead, rows, keys).
    """

    query: Expr
    key: Expr
    value: Expr
    lead: Shape
    rows: Dim
    keys: Dim
    depth: Dim
    width: Dim
    masks: list[Mask]
    scale: float
    undefined: str
    calls: list[Call]


def known_shape(expr: Expr) -> Shape | None:
    """The shape of a tensor whose sizes are fixed or symbolic; ``None`` for other values."""
    type_ = known_type(expr)
    if not isinstance(type_, TensorType) or any(isinstance(d, AnyDim) for d in type_.shape):
        return None
    return type_.shape


MATMULS = ("nn.batch_matmul", "nn.matmul")


def find_attention(root: Expr) -> AttentionMatch | None:
    """Match attention whose final matmul is ``root``; ``None`` for any other expression."""
    return _Reader().attention(root) if isinstance(root, Call) and _is_matmul(root) else None


def _is_matmul(call: Expr) -> bool:
    """A matmul of floats that does not transpose its left operand."""
    if op_name(call) not in MATMULS or not isinstance(call, Call):
        return False
    attrs: Any = call.attrs
    type_ = known_type(call)
    is_float = isinstance(type_, TensorType) and type_.dtype.is_float and type_.ndim > 1
    return is_float and not attrs.transpose_a and attrs.out_dtype is None


def _is_right_transposed(product: Call) -> bool:
    attrs: Any = product.attrs
    return bool(attrs.transpose_b)


@dataclass(slots=True)
class _Reader:
    """Matches one expression from the outside in; ``calls`` are the calls matched so far."""

    calls: list[Call] = field(default_factory=list)
    masks: list[Mask] = field(default_factory=list)
    leads: list[Shape] = field(default_factory=list)
    undefined: str = "nan"
    guard: Expr | None = None

    def attention(self, root: Call) -> AttentionMatch | None:
        self.calls.append(root)
        softmax = self._softmax(self._within_shapes(root.args[0]))
        scores = None if softmax is None else self._within_masks(softmax.args[0])
        if scores is None or softmax is None:
            return None
        product, scale = self._within_scale(scores)
        if not isinstance(product, Call) or not _is_matmul(product):
            return None
        self.calls.append(product)
        shapes = [known_shape(x) for x in (softmax, root, *product.args, root.args[1])]
        if None in shapes:
            return None
        scored, result, *stacks = (s for s in shapes if s is not None)
        lead, (rows, keys) = (*self.leads, scored[:-2])[0], scored[-2:]
        # Reshapes may regroup the leading axes, so only their product is the same everywhere.
        if any(dim_product(s[:-2]) != dim_product(lead) for s in (result, *stacks)):
            return None
        if self.guard is not None and not self._understands_guard(self.guard):
            return None
        query, of_query = without_scale(product.args[0])
        key, of_key = without_scale(product.args[1])
        return AttentionMatch(
            query, key if _is_right_transposed(product) else with_matrix_axes_swapped(key),
            with_matrix_axes_swapped(root.args[1]) if _is_right_transposed(root) else root.args[1],
            lead, rows, keys, stacks[0][-1], result[-1], self.masks, scale * of_query * of_key,
            self.undefined, self.calls)

    def _within_shapes(self, expr: Expr) -> Expr:
        while keeps_matrices(expr) and isinstance(expr, Call):
            self.calls.append(expr)
            expr = expr.args[0]
        return expr

    def _softmax(self, weights: Expr) -> Call | None:
        """The softmax along the last axis, inside ``where(isnan(y), 0, y)`` or ``where(c, 0, y)``.

        ``c`` must select the rows with all keys hidden; that is checked once the masks are known.
        """
        if op_name(weights) == "where" and isinstance(weights, Call):
            test, zero, inner = weights.args
            if scalar_value(zero) != 0:
                return None
            self.calls.append(weights)
            if op_name(test) == "isnan" and isinstance(test, Call) and test.args[0] is inner:
                self.calls.append(test)
                self.undefined = "zero"
            else:
                self.guard = test
            weights = inner
        shape = known_shape(weights)
        if op_name(weights) != "nn.softmax" or not isinstance(weights, Call) or shape is None:
            return None
        attrs: Any = weights.attrs
        self.calls.append(weights)
        return weights if len(shape) > 1 and attrs.axis in (-1, len(shape) - 1) else None

    def _understands_guard(self, guard: Expr) -> bool:
        """Whether the rows set to zero are those with all keys hidden.

        These are rows of a mask whose maximum is minus infinity.
        """
        if isinstance(guard, Constant) and not guard.data.any():
            return True
        if len(self.masks) != 1 or self.masks[0].fill is not None:
            return False
        mask = self.masks[0].expr
        self.undefined = "zero_if_hidden"
        if isinstance(guard, Constant) and isinstance(mask, Constant):
            hidden = mask.data.max(axis=-1, keepdims=True) == -math.inf
            return guard.data.shape == hidden.shape and bool((guard.data == hidden).all())
        if op_name(guard) != "equal" or not isinstance(guard, Call):
            return False
        top, lowest = guard.args
        if op_name(top) != "max" or not isinstance(top, Call) or top.args[0] is not mask:
            return False
        attrs: Any = top.attrs
        last = len(known_shape(mask) or ()) - 1
        along_keys = attrs.keepdims and attrs.axis in ((-1,), (last,), -1, last)
        return bool(along_keys) and scalar_value(lowest) == -math.inf

    def _within_masks(self, scores: Expr) -> Expr | None:
        """The scores inside the masks, which all have one shape."""
        while True:
            scores = self._within_shapes(scores)
            step = _unmasked(scores)
            if step is None:
                return scores if len(set(self.leads)) < 2 else None
            shape = known_shape(scores)
            if shape is None or known_shape(step[0]) != shape or not isinstance(scores, Call):
                return None
            self.calls.append(scores)
            self.leads.append(shape[:-2])
            self.masks.append(step[1])
            scores = step[0]

    def _within_scale(self, scores: Expr) -> tuple[Expr, float]:
        scale = 1.0
        while True:
            scores = self._within_shapes(scores)
            step = _unscaled(scores)
            if step is None or not isinstance(scores, Call):
                return scores, scale
            self.calls.append(scores)
            scores, scale = step[0], scale * step[1]


def keeps_matrices(expr: Expr) -> bool:
    """Whether ``expr`` reshapes only the leading axes of a tensor."""
    if not isinstance(expr, Call) or not traits_of(expr).is_removable_reshape:
        return False
    before, after = known_shape(expr.args[0]), known_shape(expr)
    return (before is not None and after is not None and min(len(before), len(after)) > 1
            and before[-2:] == after[-2:])


def scalar_value(expr: Expr) -> float | None:
    """The value of a constant of one element."""
    if isinstance(expr, Constant) and expr.data.size == 1:
        return float(expr.data.reshape(()))
    return None


def _unmasked(scores: Expr) -> tuple[Expr, Mask] | None:
    """The scores before a mask, and the mask; ``None`` without a mask."""
    if not isinstance(scores, Call):
        return None
    if op_name(scores) == "where":
        seen, inner, other = scores.args
        fill = scalar_value(other)
        if fill is None:  # inverted: true means hidden
            fill, seen, inner = scalar_value(inner), op.logical_not(seen), other
        return None if fill is None else (inner, Mask(seen, fill))
    if op_name(scores) != "add":
        return None
    left, right = scores.args
    return (right, Mask(left)) if _leads_to_product(right) else (left, Mask(right))


def _leads_to_product(expr: Expr) -> bool:
    while isinstance(expr, Call):
        step = _unscaled(expr)
        if step is not None:
            expr = step[0]
        elif keeps_matrices(expr):
            expr = expr.args[0]
        else:
            return _is_matmul(expr)
    return False


def _unscaled(expr: Expr) -> tuple[Expr, float] | None:
    """The operand of a multiplication by a number, and the number."""
    if not isinstance(expr, Call) or op_name(expr) not in ("multiply", "divide"):
        return None
    left, right = expr.args
    if op_name(expr) == "divide":
        number = scalar_value(right)
        return None if not number else (left, 1.0 / number)
    number = scalar_value(right)
    if number is None:
        left, number = right, scalar_value(left)
    # A constant of one element may have more axes than the other operand, and then adds axes.
    whole = number is not None and math.isfinite(number) and known_shape(left) == known_shape(expr)
    return (left, number) if whole and number is not None else None


def without_scale(expr: Expr) -> tuple[Expr, float]:
    """An operand without the numbers that it is multiplied by, and their product.

    The match does not consume these calls: other uses of the scaled operand stay.
    """
    scale, current, below = 1.0, expr, expr
    while True:
        step = _unscaled(below)
        if step is not None:
            current = below = step[0]
            scale *= step[1]
        elif keeps_matrices(below) and isinstance(below, Call):
            below = below.args[0]
        else:
            return current, scale


def with_matrix_axes_swapped(expr: Expr) -> Expr:
    """``expr`` with its last two axes swapped; two swaps cancel."""
    below = expr
    while keeps_matrices(below) and isinstance(below, Call):
        below = below.args[0]
    if op_name(below) != "transpose" or not isinstance(below, Call):
        rank = len(known_shape(expr) or ())
        return _transposed(expr, (*range(rank - 2), rank - 1, rank - 2))
    inner, attrs = below.args[0], below.attrs
    rank = len(known_shape(inner) or ())
    axes = getattr(attrs, "axes", None) or tuple(reversed(range(rank)))
    axes = tuple(a % rank for a in (*axes[:-2], axes[-1], axes[-2]))
    return inner if axes == tuple(range(rank)) else _transposed(inner, axes)


def _transposed(x: Expr, axes: tuple[int, ...]) -> Expr:
    type_ = known_type(x)
    made = op.transpose(x, axes=axes, span=x.span)
    if not isinstance(type_, TensorType):
        return made
    return made.with_type(TensorType(tuple(type_.shape[a] for a in axes), type_.dtype))
