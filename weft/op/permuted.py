"""How operators take data whose axes are in another order: the rules of ``convert_layout``.

An operator names its rule as its hook ``permuted``. Operators whose layout inference is
``keep_layout`` or ``join_layouts`` need none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from weft import op
from weft.ir import Call, Constant, Expr, Op, TensorType, Tuple, known_type
from weft.op.layout_inference import join_layouts, keep_layout
from weft.op.reduce import reduced_axes
from weft.support.dataclass import dataclass

# order[i] is the original axis at position i.
Permutation: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Permuted:
    """A rewritten value and the order of its axes; ``None`` is the original order."""

    expr: Expr
    order: Permutation | None = None


Values: TypeAlias = Mapping[Expr, Permuted]
# An original node, the wanted order (None: the original) -> its rewritten value in that order.
Ordered: TypeAlias = Callable[[Expr, "Permutation | None"], Expr]
# The call in the order in which its data arrives; None if it needs the original order.
Rule: TypeAlias = Callable[[Call, Values, Ordered], "Permuted | None"]


def permutation(source: str, wanted: str) -> Permutation:
    """The order that takes layout ``source`` to ``wanted``."""
    return tuple(source.index(letter) for letter in wanted)


def is_identity(order: Permutation) -> bool:
    return order == tuple(range(len(order)))


def _unary(call: Call, values: Values, ordered: Ordered) -> Permuted | None:
    order = values[call.args[0]].order
    if order is None:
        return None
    return Permuted(call.replace(args=(ordered(call.args[0], order),)), order)


def _broadcast(call: Call, values: Values, ordered: Ordered) -> Permuted | None:
    """All operands in the order of the first that is permuted; lower ranks get leading axes."""
    type_ = known_type(call)
    orders = [values[a].order for a in call.args]
    order = next((o for o in orders if o is not None and len(o) == _ndim(type_)), None)
    if order is None:
        return None
    args = [_operand(arg, order, ordered) for arg in call.args]
    return Permuted(call.replace(args=tuple(args)), order)


def _ndim(type_: object) -> int:
    return type_.ndim if isinstance(type_, TensorType) else -1


def _operand(arg: Expr, order: Permutation, ordered: Ordered) -> Expr:
    ndim = _ndim(known_type(arg))
    if ndim == len(order):
        return ordered(arg, order)
    original = ordered(arg, None)
    if ndim == 0:
        return original
    # Broadcasting aligns the last axes, so the leading ones must exist before the permutation.
    added = len(order) - ndim
    if isinstance(original, Constant):
        data = original.data
        return Constant(data.reshape((1,) * added + data.shape).transpose(order))
    return op.transpose(op.expand_dims(original, axis=0, num_newaxis=added), axes=order)


def image(call: Call, values: Values, ordered: Ordered) -> Permuted | None:
    """Operators with a ``layout`` attribute, which names the order of the axes."""
    attrs: Any = call.attrs
    order = values[call.args[0]].order
    if order is None or len(attrs.layout) != len(order) or not attrs.layout.isalpha():
        return None
    layout = "".join(attrs.layout[axis] for axis in order)
    new = attrs.replace(layout=layout)
    return Permuted(call.replace(args=(ordered(call.args[0], order),), attrs=new), order)


def along_axis(call: Call, values: Values, ordered: Ordered) -> Permuted | None:
    attrs: Any = call.attrs
    order = values[call.args[0]].order
    if order is None:
        return None
    axis = order.index(attrs.axis % len(order))
    args = (ordered(call.args[0], order), *(ordered(a, None) for a in call.args[1:]))
    return Permuted(call.replace(args=args, attrs=attrs.replace(axis=axis)), order)


def reduction(call: Call, values: Values, ordered: Ordered) -> Permuted | None:
    attrs: Any = call.attrs
    order = values[call.args[0]].order
    if order is None:
        return None
    axes = reduced_axes(attrs, len(order))
    moved = tuple(sorted(order.index(a) for a in axes))
    new = attrs.replace(axis=moved, exclude=False)
    result = call.replace(args=(ordered(call.args[0], order),), attrs=new)
    if attrs.keepdims:
        return Permuted(result, order)
    left = [a for a in order if a not in axes]
    rank = {axis: i for i, axis in enumerate(sorted(left))}
    remaining = tuple(rank[a] for a in left)
    return Permuted(result, None if is_identity(remaining) else remaining)


def concatenate(call: Call, values: Values, ordered: Ordered) -> Permuted | None:
    attrs: Any = call.attrs
    fields = call.args[0]
    if not isinstance(fields, Tuple):
        return None
    order = next((o for f in fields.fields if (o := values[f].order) is not None), None)
    if order is None:
        return None
    axis = order.index(attrs.axis % len(order))
    permuted = Tuple(tuple(ordered(f, order) for f in fields.fields), span=fields.span)
    return Permuted(call.replace(args=(permuted,), attrs=attrs.replace(axis=axis)), order)


def pad(call: Call, values: Values, ordered: Ordered) -> Permuted | None:
    attrs: Any = call.attrs
    order = values[call.args[0]].order
    if order is None:
        return None
    widths = tuple(attrs.pad_width[axis] for axis in order)
    args = (ordered(call.args[0], order), ordered(call.args[1], None))
    return Permuted(call.replace(args=args, attrs=attrs.replace(pad_width=widths)), order)


def transpose(call: Call, values: Values, _: Ordered) -> Permuted | None:
    """A transpose only renames axes: the value stays, and its order changes."""
    attrs: Any = call.attrs
    value = values[call.args[0]]
    if value.order is None:
        return None
    axes = attrs.axes or tuple(reversed(range(len(value.order))))
    axes = tuple(a % len(value.order) for a in axes)
    order = tuple(axes.index(axis) for axis in value.order)
    return Permuted(value.expr, None if is_identity(order) else order)


def rule_of(operator: Op) -> Rule | None:
    """How calls of ``operator`` take permuted data; ``None`` if they need the original order.

    The fusion pattern would not tell: an elementwise operator may have an attribute ``axis``, or
    return several results.
    """
    rule: Rule | None = operator.hook("permuted")
    if rule is not None:
        return rule
    inference = operator.hook("layout")
    if inference is keep_layout:
        return _unary
    return _broadcast if inference is join_layouts else None
