"""Layout inference: the layouts in which an operator can run, given those of its arguments.

``op.layout`` registers ``infer(attrs, input_layouts, input_types) -> LayoutResult | None``.
``input_layouts`` holds the current layout of each argument, or ``None`` for its original layout (a
tuple of these for a tuple argument). ``input_types`` are the original types. The primal axes of a
layout are in the original order, so axis ``i`` of the program is the letter
``layout.primal_axes[i]``. A result of ``None`` means that the operator needs all arguments in
their original layout.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from weft.ir import Attrs, Dim, Shape, TensorType, TupleType, Type
from weft.support.dataclass import dataclass
from weft.topi.layout import Layout, LayoutAxis

InputLayout: TypeAlias = "Layout | tuple[Layout | None, ...] | None"


@dataclass(frozen=True, slots=True)
class LayoutResult:
    """The layouts that a call takes its arguments in, and those of its results.

    ``inputs`` has one entry per argument (``None``: original layout; a tuple for a tuple argument),
    ``outputs`` one per result, and ``attrs`` are the attributes of the call on tensors in these
    layouts.
    """

    inputs: tuple[InputLayout, ...]
    outputs: tuple[Layout | None, ...]
    attrs: Attrs


LayoutInference: TypeAlias = Callable[
    [Attrs, "tuple[InputLayout, ...]", "tuple[Type, ...]"], "LayoutResult | None"
]


def data_layout(inputs: Sequence[InputLayout]) -> Layout | None:
    """The current layout of the first argument."""
    return inputs[0] if isinstance(inputs[0], Layout) else None


def data_shape(types: Sequence[Type]) -> Shape:
    """The original shape of the first argument."""
    first = types[0]
    return first.shape if isinstance(first, TensorType) else ()


def keep_layout(
    attrs: Attrs, inputs: tuple[InputLayout, ...], _types: tuple[Type, ...]
) -> LayoutResult | None:
    """For unary elementwise functions: the result has the layout of the argument."""
    layout = data_layout(inputs)
    return None if layout is None else LayoutResult((layout,), (layout,), attrs)


def join_layouts(
    attrs: Attrs, inputs: tuple[InputLayout, ...], types: tuple[Type, ...]
) -> LayoutResult | None:
    """For broadcasting functions: one layout for all arguments.

    Among the current layouts that every argument can take, the one with the largest blocks, and
    of equal ones the first. Arguments of lower rank take the layout restricted to their axes,
    arguments of size 1 along a split axis a block of 1, and scalars stay as they are.
    """
    rank = max(t.ndim for t in types if isinstance(t, TensorType))
    arriving = [i for i in inputs if isinstance(i, Layout) and len(i.primal_axes) == rank]
    for layout in sorted(dict.fromkeys(arriving), key=block_size, reverse=True):
        if all(fits(layout, t) for t in types):
            wanted = tuple(operand_layout(layout, t) for t in types)
            return LayoutResult(wanted, (layout,), attrs)
    return None


def block_size(layout: Layout) -> int:
    """The number of elements of one block of ``layout``."""
    return math.prod(axis.factor or 1 for axis in layout.axes)


def fits(layout: Layout, type_: Type) -> bool:
    """Whether a tensor can broadcast against one in ``layout``: blocks must divide its sizes."""
    if not isinstance(type_, TensorType) or type_.ndim > len(layout.primal_axes):
        return False
    if all(d == 1 for d in type_.shape):
        return True
    sizes = _sizes(layout, type_.shape)
    return all(
        axis.factor is None
        or sizes.get(axis.letter) == 1
        or divides(axis.factor, sizes.get(axis.letter))
        for axis in layout.axes
    )


def operand_layout(layout: Layout, type_: Type) -> Layout | None:
    """The layout of an operand that ``fits``; ``None`` if it broadcasts in its original layout."""
    if not isinstance(type_, TensorType) or all(d == 1 for d in type_.shape):
        return None
    sizes = _sizes(layout, type_.shape)
    axes = tuple([
        LayoutAxis(axis.letter, 1) if axis.factor and sizes[axis.letter] == 1 else axis
        for axis in layout.axes
        if axis.letter in sizes
    ])
    return layout if axes == layout.axes else Layout(axes)


def _sizes(layout: Layout, shape: Shape) -> dict[str, Dim]:
    """The size along each letter; axes are aligned from the last, as in broadcasting."""
    letters = layout.primal_axes[len(layout.primal_axes) - len(shape):]
    return dict(zip(letters, shape, strict=True))


def divides(factor: int, size: Dim | None) -> bool:
    return isinstance(size, int) and size % factor == 0


def axis_letter(layout: Layout, axis: int) -> str:
    """The letter of an axis of the program; negative axes count from the end."""
    return layout.primal_axes[axis]


def unsplit_axis(layout: Layout, axis: int) -> int | None:
    """The position of an axis of the program in ``layout``; ``None`` if it is split."""
    letter = axis_letter(layout, axis)
    return None if layout.block_index_of(letter) is not None else layout.index_of(letter)


def without_letters(layout: Layout, letters: str) -> Layout | None:
    """``layout`` without some axes; ``None`` if no split axis remains."""
    rest = Layout(tuple(a for a in layout.axes if a.letter not in letters))
    return None if rest.is_primal else rest


def along_axis(outputs: int = 1) -> LayoutInference:
    """For functions along the axis in the attribute ``axis``, which must not be split."""

    def infer(
        attrs: Attrs, inputs: tuple[InputLayout, ...], _types: tuple[Type, ...]
    ) -> LayoutResult | None:
        layout = data_layout(inputs)
        if layout is None:
            return None
        axis = unsplit_axis(layout, getattr(attrs, "axis", 0))
        if axis is None:
            return None
        rest = (None,) * (len(inputs) - 1)
        return LayoutResult((layout, *rest), (layout,) * outputs, attrs.replace(axis=axis))

    return infer


def image_layout(
    attrs: Attrs, inputs: tuple[InputLayout, ...], _types: tuple[Type, ...]
) -> LayoutResult | None:
    """For functions of images whose attribute ``layout`` names the axes; H and W must be unsplit.

    The attribute must agree with the current layout up to blocks, because each producer names axes
    by its own convention.
    """
    layout = data_layout(inputs)
    if layout is None or layout.primal_axes != getattr(attrs, "layout", None):
        return None
    if layout.factor_of("H") * layout.factor_of("W") != 1:
        return None
    return LayoutResult((layout,), (layout,), attrs.replace(layout=layout.name))


def tuple_types(types: Sequence[Type]) -> tuple[TensorType, ...] | None:
    """The fields of an argument that is a tuple of tensors."""
    first = types[0]
    if not isinstance(first, TupleType):
        return None
    fields = tuple(f for f in first.fields if isinstance(f, TensorType))
    return fields if len(fields) == len(first.fields) else None


def keeps_order(layout: Layout, shape: Shape) -> bool:
    """Whether ``layout`` keeps the elements of a tensor of the original ``shape`` in order.

    It does if only axes of size 1 lie between every split axis and its block.
    """
    sizes = dict(zip(layout.primal_axes, shape, strict=True))
    order = [a for a in layout.axes if not _is_unit(layout, a, sizes[a.letter])]
    merged = [a for primal in layout.primal_axes for a in order if a.letter == primal]
    return order == merged


def _is_unit(layout: Layout, axis: LayoutAxis, size: Dim) -> bool:
    if axis.factor is not None:
        return axis.factor == 1
    return size == layout.factor_of(axis.letter)
