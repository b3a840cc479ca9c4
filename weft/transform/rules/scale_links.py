"""Pass a constant scale through an operator between the scale and the weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from weft.ir import Call, Constant, Expr, Homogeneity, Op, OpPattern
from weft.support.dataclass import dataclass
from weft.topi.layout import Layout
from weft.transform.analysis.graph import known_type, op_name, traits_of
from weft.transform.rules.scale import channel_vector, finite_product


@dataclass(frozen=True, slots=True)
class Link:
    """A call that a scale passes through; ``operands`` are those that the scale moves to.

    ``rebuild`` makes the call from new operands, and adapts its constants to the scale.
    """

    operands: tuple[Expr, ...]
    rebuild: Callable[[Sequence[Expr]], Expr]


def backward_link(call: Call, scale: Constant) -> Link | None:
    """``call(x) * scale`` as a call of ``x * scale``; ``None`` if that is impossible."""
    if op_name(call) in ("add", "subtract"):
        return _scaled_sum_link(call, scale, two_sided=True)
    return _homogeneous_link(call, scale)


def forward_link(call: Call, scale: Constant) -> Link | None:
    """``call(x * scale)`` as ``call(x) * scale``; ``None`` if that is impossible."""
    if op_name(call) in ("add", "subtract"):
        inverse = reciprocal(scale)
        if inverse is None or constant_operand(call) is None:
            return None
        return _scaled_sum_link(call, inverse, two_sided=False)
    return _homogeneous_link(call, scale)


def carried_operand(call: Call) -> Expr | None:
    """The operand of ``call`` from which a scale could pass through ``call``, if any."""
    if traits_of(call).homogeneity is not Homogeneity.NONE:
        return call.args[0]
    link = _sum_link(call, lambda bias: bias, two_sided=False)
    return None if link is None else link.operands[0]


def constant_operand(call: Expr) -> tuple[Expr, Constant] | None:
    """The operands of a binary call with exactly one constant operand, which comes last."""
    if not isinstance(call, Call) or len(call.args) != 2:
        return None
    left, right = call.args
    if isinstance(right, Constant) and not isinstance(left, Constant):
        return left, right
    if isinstance(left, Constant) and not isinstance(right, Constant):
        return right, left
    return None


def reciprocal(divisor: Constant) -> Constant | None:
    """``1 / divisor``; ``None`` for integers, or if an element has no finite reciprocal."""
    if not divisor.tensor_type.dtype.is_float:
        return None
    with np.errstate(all="ignore"):
        inverse = np.asarray(1 / divisor.data, divisor.data.dtype)
    # The reciprocal of a denormal number or zero is infinite.
    return Constant(inverse, span=divisor.span) if np.isfinite(inverse).all() else None


def _homogeneous_link(call: Call, scale: Constant) -> Link | None:
    homogeneity = traits_of(call).homogeneity
    if homogeneity is Homogeneity.NONE:
        return None
    if homogeneity is Homogeneity.POSITIVE and not bool((scale.data > 0).all()):
        return None
    if not _is_elementwise(call) and not _is_per_channel(call, scale):
        return None
    return Link(call.args, lambda parts: _with_args(call, parts))


def _is_elementwise(call: Call) -> bool:
    return isinstance(call.op, Op) and call.op.pattern is OpPattern.ELEMWISE


def _is_per_channel(pool: Call, scale: Constant) -> bool:
    name = getattr(pool.attrs, "layout", None)
    layout = None if name is None else Layout.parse(name)
    if layout is None or not layout.is_primal:
        return False
    return channel_vector(scale, pool.args[0], layout.index_of("C")) is not None


def _scaled_sum_link(call: Call, scale: Constant, *, two_sided: bool) -> Link | None:
    """Through ``x + bias``, with the bias scaled; ``None`` if that overflows."""
    split = constant_operand(call)
    if split is None:
        return _sum_link(call, lambda bias: bias, two_sided=two_sided)
    scaled = finite_product(split[1], scale.data)
    return None if scaled is None else _sum_link(call, lambda _: scaled, two_sided=two_sided)


def _sum_link(
    call: Call, adapted: Callable[[Constant], Constant], *, two_sided: bool
) -> Link | None:
    """Through ``x + bias``, in any order, and with ``two_sided`` through ``x + y``."""
    if op_name(call) not in ("add", "subtract"):
        return None
    split = constant_operand(call)
    carried = call.args if split is None else (split[0],)
    if any(known_type(x) != known_type(call) for x in carried):
        return None  # the sum broadcasts its operand
    if split is None:
        return Link(carried, lambda parts: _with_args(call, parts)) if two_sided else None
    bias = split[1]

    def rebuild(parts: Sequence[Expr]) -> Expr:
        (x,) = parts
        return _with_args(call, [adapted(bias) if a is bias else x for a in call.args])

    return Link(carried, rebuild)


def _with_args(call: Call, args: Sequence[Expr]) -> Call:
    return call.replace(args=tuple(args), checked_type=call.checked_type)
