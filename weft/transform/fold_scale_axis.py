"""Scaling by constants disappears into the weights of the operator next to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from weft.ir.expr import Call, Constant, Expr, Function
from weft.ir.passes import FunctionPass, PassContext, register_pass
from weft.ir.visitor import count_uses
from weft.transform.graph import op_name, rewrite_function
from weft.transform.rules.scale import (
    channel_vector,
    input_scaled,
    output_channel_axis,
    output_scaled,
)


@register_pass
@dataclass(frozen=True)
class FoldScaleAxis(FunctionPass):
    """Convolutions and matrix products with constant weights absorb constant scales.

    A scale or divisor per output channel behind the operator, also behind an addition of
    constants and a relu, and a scale per input channel before it. Batch normalisation behind a
    convolution becomes one addition this way. A scale also absorbs the scales behind it. What
    another expression uses as well stays.

    def @main(%x: Tensor[(1, 2), float32]) {
      %0 = nn.dense(%x, const([1, 2, 3, 4], (2, 2), float32));
      multiply(%0, const([10, 100], (2,), float32))
    }
    =>
    def @main(%x: Tensor[(1, 2), float32]) {
      nn.dense(%x, const([10, 20, 300, 400], (2, 2), float32))
    }
    """

    name: ClassVar[str] = "fold_scale_axis"
    opt_level: ClassVar[int] = 3

    def run(self, fn: Function, ctx: PassContext) -> Function:  # noqa: ARG002
        uses = count_uses(fn)
        folding = _Folding()

        def step(original: Expr, node: Expr) -> Expr:
            result = folding.fold(node)
            if uses.get(original) == 1:
                folding.single_use.add(result)
            return result

        return rewrite_function(fn, step)


class _Folding:
    """One run over one function; ``single_use`` holds rewritten nodes with one consumer."""

    def __init__(self) -> None:
        self.single_use: set[Expr] = set()

    def fold(self, node: Expr) -> Expr:
        name = op_name(node)
        if not isinstance(node, Call):
            return node
        if name == "multiply":
            return self._behind(node, _constant_operand(node)) or node
        if name == "divide":
            return self._behind(node, _reciprocal_operand(node)) or node
        if output_channel_axis(node) is not None:
            return self._before(node) or node
        return node

    def _before(self, anchor: Call) -> Expr | None:
        """``anchor(x * c, w)`` as ``anchor(x, w * c)``."""
        scaled = anchor.args[0]
        split = _constant_operand(scaled) if op_name(scaled) == "multiply" else None
        if split is None or scaled not in self.single_use:
            return None
        data, scale = split
        return input_scaled(anchor, data, scale)

    def _behind(self, product: Call, split: tuple[Expr, Constant] | None) -> Expr | None:
        """``relu(anchor(x, w) + b) * c`` as ``relu(anchor(x, w * c) + b * c)``."""
        if split is None:
            return None
        chain, scale = split
        if product.checked_type != chain.checked_type:
            return None  # the product spreads its operand
        links: list[Callable[[Expr], Expr]] = []
        while chain in self.single_use and isinstance(chain, Call):
            absorbed = _absorbed(chain, scale)
            if absorbed is not None:
                for rebuild in reversed(links):
                    absorbed = rebuild(absorbed)
                return absorbed
            link = _link(chain, scale)
            if link is None:
                return None
            chain, rebuild = link
            links.append(rebuild)
        return None


def _absorbed(call: Call, scale: Constant) -> Expr | None:
    """``call * scale`` as one call, where ``call`` has weights or is itself a scaling."""
    axis = output_channel_axis(call)
    if axis is not None:
        vector = channel_vector(scale, call, axis)
        return None if vector is None else output_scaled(call, vector)
    split = _constant_operand(call) if op_name(call) == "multiply" else None
    if split is None or not _fits_within(scale, split[1]):
        return None
    operand, first = split
    return call.replace(args=(operand, _product(first, scale)), checked_type=call.checked_type)


def _fits_within(scale: Constant, other: Constant) -> bool:
    """Whether the product has the shape of one of the two, so that constants do not grow."""
    shapes = scale.data.shape, other.data.shape
    return np.broadcast_shapes(*shapes) in shapes


def _constant_operand(call: Expr) -> tuple[Expr, Constant] | None:
    """The operands of a binary call of which exactly one is constant, that one last."""
    if not isinstance(call, Call) or len(call.args) != 2:
        return None
    left, right = call.args
    if isinstance(right, Constant) and not isinstance(left, Constant):
        return left, right
    if isinstance(left, Constant) and not isinstance(right, Constant):
        return right, left
    return None


def _reciprocal_operand(call: Call) -> tuple[Expr, Constant] | None:
    """``x / c`` as the operands of ``x * (1 / c)``, for floating point."""
    x, divisor = call.args
    if not isinstance(divisor, Constant) or not divisor.tensor_type.dtype.is_float:
        return None
    with np.errstate(all="ignore"):
        inverse = np.asarray(1 / divisor.data, divisor.data.dtype)
    # A denormal or zero divisor has no reciprocal that gives the same quotients.
    return (x, Constant(inverse, span=divisor.span)) if np.isfinite(inverse).all() else None


def _link(call: Call, scale: Constant) -> tuple[Expr, Callable[[Expr], Expr]] | None:
    """How ``call`` passes a scale to its operand, or ``None`` where it does not."""
    name = op_name(call)
    if name == "nn.relu" and bool((scale.data > 0).all()):
        return call.args[0], lambda x: call.replace(args=(x,), checked_type=call.checked_type)
    split = _constant_operand(call) if name == "add" else None
    if split is None:
        return None
    operand, bias = split
    if operand.checked_type != call.checked_type:
        return None
    return operand, lambda x: call.replace(
        args=(x, _product(bias, scale)), checked_type=call.checked_type
    )


def _product(bias: Constant, scale: Constant) -> Constant:
    return Constant(np.asarray(bias.data * scale.data, bias.data.dtype), span=bias.span)
