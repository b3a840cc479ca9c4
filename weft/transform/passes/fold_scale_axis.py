"""Fold constant scales into the weights of neighbouring operators: forward, backward, or both."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from weft.ir import (
    Call,
    Constant,
    Expr,
    Function,
    FunctionPass,
    PassContext,
    Seeks,
    count_uses,
    register_pass,
)
from weft.ir.visitor import Routine, run_routine
from weft.support.dataclass import dataclass
from weft.transform.analysis.graph import known_type, op_name, rewrite_function
from weft.transform.rules import scale_links
from weft.transform.rules.scale import (
    channel_vector,
    finite_product,
    input_scaled,
    output_channel_axis,
    output_scaled,
)


def fold_scales(fn: Function, *, forward: bool, backward: bool) -> Function:
    """``fn`` with scales folded into the weights after them (``forward``) or before them.

    A scale does not pass a call that has several uses.
    """
    uses = count_uses(fn)
    folding = _Folding()

    def step(original: Expr, node: Expr) -> Expr:
        result = node
        if backward and isinstance(node, Call):
            result = folding.backward(node) or node
        if forward and isinstance(result, Call):
            result = folding.forward(result) or result
        if uses.get(original) == 1:
            folding.single_use.add(result)
        return result

    return rewrite_function(fn, step, (Call,))


class _Folding:
    """Folds the scales of one function; ``single_use`` holds rewritten nodes with one consumer."""

    def __init__(self) -> None:
        self.single_use: set[Expr] = set()

    def forward(self, anchor: Call) -> Expr | None:
        """``anchor(relu(x * c + b), w)`` as ``anchor(relu(x + b / c), w * c)``."""
        if output_channel_axis(anchor) is None:
            return None
        passed: list[Call] = []
        node = anchor.args[0]
        while isinstance(node, Call) and node in self.single_use:
            split = _scaled_operand(node)
            if split is not None:
                return self._pulled(anchor, passed, *split)
            operand = scale_links.carried_operand(node)
            if operand is None:
                return None
            passed.append(node)
            node = operand
        return None

    def _pulled(self, anchor: Call, passed: list[Call], data: Expr, scale: Constant) -> Expr | None:
        links: list[scale_links.Link] = []
        for call in passed:
            link = scale_links.forward_link(call, scale)
            if link is None:
                return None
            links.append(link)
        for link in reversed(links):
            data = link.rebuild([data])
            self.single_use.add(data)
        return input_scaled(anchor, data, scale)

    def backward(self, product: Call) -> Expr | None:
        """``relu(anchor(x, w) + b) * c`` as ``relu(anchor(x, w * c) + b * c)``."""
        split = _scaled_operand(product)
        return None if split is None else run_routine(self._absorbed(*split))

    def _absorbed(self, node: Expr, scale: Constant) -> Routine[Expr | None]:
        """``node * scale``, absorbed by ``node`` or by all of its operands."""
        if not isinstance(node, Call) or node not in self.single_use:
            return None
        absorbed = _absorbed_at_once(node, scale)
        if absorbed is not None:
            return absorbed
        link = scale_links.backward_link(node, scale)
        if link is None:
            return None
        parts = []
        for operand in link.operands:
            part = yield self._absorbed(operand, scale)
            if part is None:
                return None
            parts.append(part)
        self.single_use.update(parts)
        return link.rebuild(parts)


def _scaled_operand(call: Call) -> tuple[Expr, Constant] | None:
    """``x`` and ``c`` of ``x * c`` or ``x / c``, unless the product broadcasts ``x``."""
    split = None
    if op_name(call) == "multiply":
        split = scale_links.constant_operand(call)
    elif op_name(call) == "divide" and isinstance(call.args[1], Constant):
        inverse = scale_links.reciprocal(call.args[1])
        split = None if inverse is None else (call.args[0], inverse)
    if split is None or known_type(split[0]) != known_type(call):
        return None
    return split


def _absorbed_at_once(call: Call, scale: Constant) -> Expr | None:
    """``call * scale`` as one call, for a ``call`` that has weights or is itself a scaling."""
    axis = output_channel_axis(call)
    if axis is not None:
        vector = channel_vector(scale, call, axis)
        return None if vector is None else output_scaled(call, vector)
    split = scale_links.constant_operand(call) if op_name(call) == "multiply" else None
    if split is None or not _fits_within(scale, split[1]):
        return None
    operand, first = split
    both = finite_product(first, scale.data)
    if both is None:
        return None
    return call.replace(args=(operand, both), checked_type=call.checked_type)


def _fits_within(scale: Constant, other: Constant) -> bool:
    """Whether the product has the shape of one factor, so that constants do not grow."""
    shapes = scale.data.shape, other.data.shape
    return np.broadcast_shapes(*shapes) in shapes


_SCALINGS = Seeks(operators=("multiply", "divide"))


@register_pass
@dataclass(frozen=True)
class ForwardFoldScaleAxis(FunctionPass):
    """Fold a constant scale of an operator's operand into its weights.

    A scale or divisor per input channel moves forward through additions of constants (which are
    divided by it), through homogeneous operators (average pooling), and, if it is positive,
    through positively homogeneous ones (relu, max pooling).

    def @main(%x: Tensor[(1, 2), float32]) {
      %0 = nn.relu(add(multiply(%x, const([2, 4], (2,), float32)), 8f));
      nn.dense(%0, const([1, 2, 3, 4], (2, 2), float32))
    }
    =>
    def @main(%x: Tensor[(1, 2), float32]) {
      %0 = nn.relu(add(%x, const([4, 2], (2,), float32)));
      nn.dense(%0, const([2, 8, 6, 16], (2, 2), float32))
    }
    """

    name: ClassVar[str] = "forward_fold_scale_axis"
    opt_level: ClassVar[int] = 3
    seeks: ClassVar[Seeks] = _SCALINGS

    def run(self, fn: Function, ctx: PassContext) -> Function:  # noqa: ARG002
        return fold_scales(fn, forward=True, backward=False)


@register_pass
@dataclass(frozen=True)
class BackwardFoldScaleAxis(FunctionPass):
    """Fold a constant scale of an operator's result into its weights.

    A scale or divisor per output channel moves backward through additions of constants, through
    sums whose operands both absorb it, through operators that are homogeneous (average pooling),
    and, if it is positive, through positively homogeneous ones (relu, max pooling). A constant
    scale also absorbs later scales.

    def @main(%x: Tensor[(1, 2), float32]) {
      %0 = nn.dense(%x, const([1, 2, 3, 4], (2, 2), float32));
      multiply(nn.relu(add(%0, 1f)), const([10, 100], (2,), float32))
    }
    =>
    def @main(%x: Tensor[(1, 2), float32]) {
      %0 = nn.dense(%x, const([10, 20, 300, 400], (2, 2), float32));
      nn.relu(add(%0, const([10, 100], (2,), float32)))
    }
    """

    name: ClassVar[str] = "backward_fold_scale_axis"
    opt_level: ClassVar[int] = 3
    seeks: ClassVar[Seeks] = _SCALINGS

    def run(self, fn: Function, ctx: PassContext) -> Function:  # noqa: ARG002
        return fold_scales(fn, forward=False, backward=True)


@register_pass
@dataclass(frozen=True)
class FoldScaleAxis(FunctionPass):
    """Fold constant scales into the weights of convolutions and matrix multiplications.

    Combines ``backward_fold_scale_axis`` and ``forward_fold_scale_axis`` in one walk: a scale is
    folded into the weights before it, else into those after it. So a batch normalisation after a
    convolution becomes one addition.

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
    seeks: ClassVar[Seeks] = _SCALINGS

    def run(self, fn: Function, ctx: PassContext) -> Function:  # noqa: ARG002
        return fold_scales(fn, forward=True, backward=True)
