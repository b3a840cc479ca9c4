"""Products of matrices, and convolutions."""

from __future__ import annotations

from collections.abc import Sequence

from weft.export.stablehlo.call import CallWriter, writes
from weft.export.stablehlo.text import ints, type_text
from weft.export.writers import Value
from weft.topi.nn.conv import side_padding


def _dot(c: CallWriter, a: str, b: str, batch: int, axes: tuple[int, int]) -> str:
    """The product over axis ``axes[0]`` of ``a`` and ``axes[1]`` of ``b``."""
    shared = f"batching_dims = {ints(list(range(batch)))} x {ints(list(range(batch)))}, " \
        if batch else ""
    types = f"({type_text(c.type(a))}, {type_text(c.type(b))}) -> {type_text(c.result)}"
    return c.body.add(
        f"stablehlo.dot_general {a}, {b}, {shared}contracting_dims = [{axes[0]}] x [{axes[1]}] : "
        f"{types}", c.result)


@writes("nn.dense")
def dense(c: CallWriter) -> Value | None:
    if c.attrs.weight_layout not in ("NK", "KN"):
        return c.no_form(f"weights of layout {c.attrs.weight_layout}")
    a, w = (c.converted(name, c.result.dtype) for name in c.inputs)
    last = len(c.shape(a)) - 1
    return _dot(c, a, w, 0, (last, 1 if c.attrs.weight_layout == "NK" else 0))


@writes("nn.batch_matmul", "nn.matmul")
def matmul(c: CallWriter) -> Value | None:
    a, b = (c.converted(name, c.result.dtype) for name in c.inputs)
    left, right = c.shape(a), c.shape(b)
    if len(left) < 2 or len(left) != len(right):
        return c.no_form("products of vectors, or of different ranks")
    lead = c.result.concrete_shape[:-2]
    a, b = c.broadcast(a, (*lead, *left[-2:])), c.broadcast(b, (*lead, *right[-2:]))
    last = len(left) - 1
    return _dot(c, a, b, len(lead), (last - 1 if c.attrs.transpose_a else last,
                                     last if c.attrs.transpose_b else last - 1))


def _dims(layout: str, names: dict[str, str]) -> str:
    spatial = iter(range(len(layout)))
    return "[" + ", ".join(names.get(letter) or str(next(spatial)) for letter in layout) + "]"


@writes("nn.conv1d", "nn.conv2d", "nn.conv3d")
def conv(c: CallWriter) -> Value | None:
    a = c.attrs
    out = a.out_layout or a.data_layout
    if not all(layout.isalpha() and layout.isupper()
               for layout in (a.data_layout, a.kernel_layout, out)):
        return c.no_form(f"layouts {a.data_layout} and {a.kernel_layout}")
    order = a.spatial
    if any([x for x in layout if x in order] != list(order)
           for layout in (a.data_layout, a.kernel_layout, out)):
        return c.no_form("spatial axes in another order")
    data, kernel = (c.converted(name, c.result.dtype) for name in c.inputs)
    images, taps = {"N": "b", "C": "f"}, {"O": "o", "I": "i"}
    numbers = f"{_dims(a.data_layout, images)}x{_dims(a.kernel_layout, taps)}->{_dims(out, images)}"
    types = f"({type_text(c.type(data))}, {type_text(c.type(kernel))}) -> {type_text(c.result)}"
    return c.body.add(
        f"stablehlo.convolution({data}, {kernel}) dim_numbers = {numbers}, window = "
        f"{_window(a.strides, a.padding, a.dilation)} {{batch_group_count = 1 : i64, "
        f"feature_group_count = {a.groups} : i64}} : {types}", c.result)


def _window(strides: Sequence[int], padding: Sequence[int], dilation: Sequence[int]) -> str:
    sides = ", ".join(ints(pair) for pair in side_padding(padding, len(strides)))
    return f"{{stride = {ints(strides)}, pad = [{sides}], rhs_dilate = {ints(dilation)}}}"
