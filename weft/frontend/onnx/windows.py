"""Windows of convolution and pooling: kernel, strides, dilations, padding, MaxPool's indices."""

from __future__ import annotations

import math
from collections.abc import Sequence

from weft import op
from weft.frontend.common import arrays
from weft.frontend.onnx.node import Node
from weft.ir import Expr, Shape
from weft.support.dataclass import dataclass
from weft.support.errors import UnsupportedModelError

WINDOW_ATTRIBUTES = ("auto_pad", "dilations", "kernel_shape", "pads", "strides")
MAX_PADDED_ELEMENTS = 2**31
# More padding than this would make a large tensor of a small file.
_MAX_GROWTH, _SMALL_ELEMENTS = 64, 2**24
_AUTO_PAD = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


@dataclass(frozen=True)
class Window:
    """Window parameters, one entry per spatial axis; ``before`` and ``after`` are the padding."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def padding(self) -> tuple[int, ...]:
        """The padding in the order of weft operators: top, left, bottom, right."""
        return (*self.before, *self.after)


def window_of(node: Node, kernel: Sequence[int], spatial: Shape) -> Window:
    """Read the window attributes of ``node`` for spatial axes of the sizes ``spatial``.

    Raises ``InvalidModelError`` for attributes of the wrong length or range, and
    ``UnsupportedModelError`` for ``auto_pad`` over a symbolic size with a stride above 1.
    """
    rank = len(spatial)
    sizes = _checked(node, "kernel_shape", tuple(kernel), rank, 1)
    strides = _checked(node, "strides", node.attrs.integers("strides") or (1,) * rank, rank, 1)
    dilations = _checked(
        node, "dilations", node.attrs.integers("dilations") or (1,) * rank, rank, 1
    )
    mode = node.attrs.one_of("auto_pad", "NOTSET", _AUTO_PAD)
    if mode == "NOTSET":
        pads = node.attrs.integers("pads") or (0,) * (2 * rank)
        pads = _checked(node, "pads", pads, 2 * rank, 0)
        before, after = pads[:rank], pads[rank:]
    elif mode == "VALID":
        before = after = (0,) * rank
    else:
        before, after = _same_padding(node, sizes, strides, dilations, spatial)
    _check_padded_size(node, spatial, before, after)
    return Window(sizes, strides, dilations, before, after)


def check_one_padding(node: Node) -> None:
    """Raise ``InvalidModelError`` for a convolution with both ``auto_pad`` and other ``pads``."""
    pads = node.attrs.integers("pads")
    mode = node.attrs.one_of("auto_pad", "NOTSET", _AUTO_PAD)
    if pads is not None and any(pads) and mode != "NOTSET":
        raise node.fail("both auto_pad and pads are given", expected="one of them",
                        got=f"{mode} and {pads}")


def _check_padded_size(
    node: Node, spatial: Shape, before: tuple[int, ...], after: tuple[int, ...]
) -> None:
    """Limit the padded size: with large strides the output is small but the padded input is not."""
    padded = [
        b + a + (size if isinstance(size, int) else 1)
        for size, b, a in zip(spatial, before, after, strict=True)
    ]
    given = math.prod(size if isinstance(size, int) else 1 for size in spatial)
    limit = min(max(_MAX_GROWTH * given, _SMALL_ELEMENTS), MAX_PADDED_ELEMENTS)
    if math.prod(padded) > limit:
        raise node.fail(
            "the padded input is too large",
            expected=f"at most {limit} elements in each channel",
            got=f"sizes {tuple(padded)}",
        )


def _checked(
    node: Node, name: str, values: tuple[int, ...], length: int, smallest: int
) -> tuple[int, ...]:
    if len(values) != length or any(not smallest <= v < 2**31 for v in values):
        raise node.fail(
            f"attribute {name!r} does not match the input",
            expected=f"{length} numbers, each {smallest} or more",
            got=str(values),
        )
    return values


def _same_padding(
    node: Node,
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    spatial: Shape,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the padding for which the output size is ceil(size / stride)."""
    before, after = [], []
    lower = node.attrs.text("auto_pad", "") == "SAME_LOWER"
    for size, extent, stride, dilation in zip(spatial, kernel, strides, dilations, strict=True):
        if isinstance(size, int):
            remaining = size - (-(-size // stride) - 1) * stride
        elif stride == 1:
            remaining = 1
        else:
            raise UnsupportedModelError(
                f"auto_pad of {node.op} over an axis of symbolic size",
                where=node.span,
                help='fix the size at compile time: inputs={"x": (1, 3, 224, 224)}',
            )
        total = max(0, (extent - 1) * dilation + 1 - remaining)
        small, large = total // 2, total - total // 2
        before.append(large if lower else small)
        after.append(small if lower else large)
    return tuple(before), tuple(after)


def indices_of_largest(node: Node, window: Window) -> Expr:
    """Return int64 indices into the flattened input; the first of equal maxima is taken.

    With ``storage_order`` 1 the spatial axes are flattened in column-major order.
    """
    sizes = [d for d in node.shape() if isinstance(d, int)]
    ndim = len(window.kernel)
    if ndim not in (1, 2, 3) or len(sizes) < node.rank():
        raise UnsupportedModelError(
            "MaxPool indices need one to three spatial axes of fixed size",
            where=node.span,
            got=f"shape ({', '.join(map(str, node.shape()))})",
        )
    operators = op.nn.max_pool1d_indices, op.nn.max_pool2d_indices, op.nn.max_pool3d_indices
    positions = node.call(
        operators[ndim - 1],
        node.input(0),
        pool_size=window.kernel,
        strides=window.strides,
        dilation=window.dilations,
        padding=window.padding,
        ceil_mode=node.attrs.flag("ceil_mode"),
    )
    batch, channels, *spatial = sizes
    if node.attrs.flag("storage_order"):
        positions = _by_columns(node, positions, spatial)
    images = arrays.arange(batch * channels).reshape(batch, channels, *(1,) * len(spatial))
    return node.call(op.add, positions, node.constant(images * math.prod(spatial), "int64"))


def _by_columns(node: Node, positions: Expr, sizes: list[int]) -> Expr:
    """Convert row-major to column-major indices."""
    total, behind, step = node.constant(0, "int64"), math.prod(sizes), 1
    for size in sizes:
        behind //= size
        row = node.call(op.floor_divide, positions, node.constant(behind, "int64"))
        along = node.call(op.floor_mod, row, node.constant(size, "int64"))
        along = node.call(op.multiply, along, node.constant(step, "int64"))
        total = node.call(op.add, total, along)
        step *= size
    return total
