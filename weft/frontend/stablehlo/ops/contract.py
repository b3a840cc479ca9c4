"""Products: dot_general, convolution with any order of axes, einsum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from weft import op
from weft.frontend.common.typed import shape_in
from weft.frontend.stablehlo.node import Node, Value, product, rank_of
from weft.frontend.stablehlo.ops.shape import dilated, padded, sizes_in
from weft.frontend.stablehlo.registry import converts
from weft.ir.expr import Expr
from weft.ir.op import Op

_CONVOLUTIONS: dict[int, Op] = {1: op.nn.conv1d, 2: op.nn.conv2d, 3: op.nn.conv3d}


@converts("stablehlo.dot_general")
def dot_general(node: Node, a: Expr, b: Expr) -> Expr:
    axes: Any = node.attributes.get("dot_dimension_numbers")
    if not isinstance(axes, Mapping):
        raise node.fail("the product has no dimension numbers")

    def told(name: str) -> list[int]:
        return [int(n) for n in axes.get(name) or ()]

    return contracted(node, a, b, (told("lhs_batching_dimensions"),
                                   told("rhs_batching_dimensions")),
                      (told("lhs_contracting_dimensions"), told("rhs_contracting_dimensions")))


@converts("stablehlo.dot", "chlo.dot")
def dot(node: Node, a: Expr, b: Expr) -> Expr:
    return contracted(node, a, b, ([], []), ([rank_of(a) - 1], [0]))


def contracted(node: Node, a: Expr, b: Expr, batch: tuple[list[int], list[int]],
               summed: tuple[list[int], list[int]]) -> Expr:
    """The product with batch axes first, then the free ones of ``a``, then those of ``b``."""
    for x, shared, inner in ((a, batch[0], summed[0]), (b, batch[1], summed[1])):
        node.axes([*shared, *inner], rank_of(x))
    free = [[i for i in range(rank_of(x)) if i not in (*shared, *inner)]
            for x, shared, inner in ((a, batch[0], summed[0]), (b, batch[1], summed[1]))]
    dtype = node.dtype()
    shapes = shape_in(a), shape_in(b)
    outer = [shapes[0][i] for i in batch[0]]
    result = (*outer, *(shapes[0][i] for i in free[0]), *(shapes[1][i] for i in free[1]))
    a, b = node.cast(a, dtype), node.cast(b, dtype)
    if dtype.is_bool:
        a, b = node.cast(a, "int32"), node.cast(b, "int32")
    # Matrices are read as they lie in memory.
    transposed_a = [*batch[0], *summed[0], *free[0]] == list(range(rank_of(a)))
    transposed_b = [*batch[1], *free[1], *summed[1]] == list(range(rank_of(b)))
    left = _matrices(node, a, batch[0], *((summed[0], free[0]) if transposed_a
                                          else (free[0], summed[0])))
    right = _matrices(node, b, batch[1], *((free[1], summed[1]) if transposed_b
                                           else (summed[1], free[1])))
    operator: Op = op.nn.batch_matmul if outer else op.nn.matmul
    if not outer:
        left, right = (node.reshape(x, shape_in(x)[1:]) for x in (left, right))
    made = node.call(operator, left, right, transpose_a=transposed_a, transpose_b=transposed_b)
    return node.cast(node.reshape(made, result), dtype)


def _matrices(node: Node, x: Expr, batch: list[int], rows: list[int], columns: list[int]) -> Expr:
    """``x`` as matrices, one after the other."""
    shape = shape_in(x)
    x = node.transpose(x, (*batch, *rows, *columns))
    return node.reshape(x, [product([shape[i] for i in axes]) for axes in (batch, rows, columns)])


@converts("stablehlo.einsum")
def einsum(node: Node, a: Expr, b: Expr) -> Expr:
    return node.tuple_call(op.einsum, [a, b], equation=node.word("einsum_config"))


@converts("stablehlo.dynamic_conv")
def dynamic_conv(node: Node, x: Expr, kernel: Expr, padding: Value) -> Expr:
    flat = sizes_in(node, padding)
    return _convolved(node, x, kernel, tuple(zip(flat[::2], flat[1::2], strict=True)))


@converts("stablehlo.convolution")
def convolution(node: Node, x: Expr, kernel: Expr) -> Expr:
    return _convolved(node, x, kernel, node.pairs("padding", rank_of(x) - 2))


def _convolved(node: Node, x: Expr, kernel: Expr, padding: tuple[tuple[Any, Any], ...]) -> Expr:
    images, taps, result = _axes(node, x, kernel)
    count = rank_of(x) - 2
    ones = (1,) * count
    x = node.transpose(x, images)
    kernel = node.transpose(kernel, taps)
    for axis, is_reversed in enumerate(node.ints("window_reversal", (0,) * count)):
        if is_reversed:
            kernel = node.call(op.reverse, kernel, axis=2 + axis)
    dtype = node.dtype()
    x, kernel = node.cast(x, dtype), node.cast(kernel, dtype)
    x = dilated(node, x, node.number(0, x), (1, 1, *node.ints("lhs_dilation", ones)))
    groups = node.integer("feature_group_count", 1)
    batches = node.integer("batch_group_count", 1)
    if batches > 1:
        x, groups = _batches_as_channels(node, x, batches), batches
    made = _plain(node, x, kernel, padding, node.ints("window_strides", ones),
                  node.ints("rhs_dilation", ones), groups)
    back = [0] * len(result)
    for position, axis in enumerate(result):
        back[axis] = position
    return node.transpose(made, back)


def _plain(node: Node, x: Expr, kernel: Expr, padding: Sequence[tuple[Any, Any]],
           strides: tuple[int, ...], dilation: tuple[int, ...], groups: int) -> Expr:
    """A convolution of images N, C, ... with a kernel O, I, ..."""
    if any(n < 0 for pair in padding for n in pair if isinstance(n, int)):
        low, high = ((0, 0, *(pair[side] for pair in padding)) for side in (0, 1))
        x = padded(node, x, node.number(0, x), low, high, (0,) * rank_of(x))
        padding = ((0, 0),) * len(padding)
    if not padding:
        line = _plain(node, node.reshape(x, (*shape_in(x), 1)),
                      node.reshape(kernel, (*shape_in(kernel), 1)), ((0, 0),), (1,), (1,), groups)
        return node.reshape(line, shape_in(line)[:2])
    if len(padding) not in _CONVOLUTIONS:
        raise node.unsupported("a convolution over more than three axes", got=str(len(padding)))
    sides = (*(low for low, _ in padding), *(high for _, high in padding))
    return node.call(_CONVOLUTIONS[len(padding)], x, kernel, strides=strides, padding=sides,
                     dilation=dilation, groups=groups)


def _batches_as_channels(node: Node, x: Expr, groups: int) -> Expr:
    """Groups of images as groups of channels: each group of the kernel sees one of them."""
    images, channels, *spatial = shape_in(x)
    parted = node.reshape(x, (groups, images // groups, channels, *spatial))
    moved = node.transpose(parted, (1, 0, *range(2, 3 + len(spatial))))
    return node.reshape(moved, (images // groups, groups * channels, *spatial))


def _axes(node: Node, x: Expr, kernel: Expr) -> tuple[list[int], list[int], list[int]]:
    """Where batch, features and spatial axes are: in the image, the kernel, the result."""
    told = node.attributes.get("dimension_numbers")
    count = rank_of(x) - 2
    if not isinstance(told, list) or len(told) != 3 or rank_of(kernel) != rank_of(x) or count < 0:
        raise node.fail("the convolution has no dimension numbers")
    letters = (("b", "f"), ("o", "i"), ("b", "f"))
    found: list[list[int]] = []
    for names, (first, second) in zip(told, letters, strict=True):
        wanted = [first, second, *map(str, range(count))]
        if sorted(names) != sorted(wanted):
            raise node.fail("the dimension numbers do not fit the operands", got=str(names),
                            expected=", ".join(wanted))
        found.append([names.index(letter) for letter in wanted])
    return found[0], found[1], found[2]
