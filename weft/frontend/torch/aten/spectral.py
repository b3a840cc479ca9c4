"""Converters of eigenvalues of symmetric matrices, singular values, and fake quantization."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import op
from weft.frontend.torch.matrices import flattened, transposed, triangle
from weft.frontend.torch.node import Node, dtype_in, rank_of, shape_in
from weft.frontend.torch.registry import converts
from weft.ir.expr import Expr


@converts("_linalg_eigh")
def eigh(node: Node, x: Expr, triangle: str, with_vectors: bool) -> tuple[Expr, Expr]:
    """Ascending eigenvalues, and vectors as columns, whose signs torch does not define."""
    lower = x if triangle.upper() == "L" else transposed(node, x)
    made = node.call(op.linalg.eigh, flattened(node, lower))
    values = node.reshape(node.field(made, 0), shape_in(x)[:-1])
    vectors = node.reshape(node.field(made, 1), shape_in(x))
    return values, vectors if with_vectors else _empty(node, x)


@converts("_linalg_svd")
def svd(node: Node, x: Expr, full: bool, with_vectors: bool, *_driver: Any
        ) -> tuple[Expr, Expr, Expr]:
    """``U``, the singular values, and ``V'``; of a wide matrix by that of its transpose."""
    rows, columns = shape_in(x)[-2:]
    is_wide = rows < columns
    made = node.call(op.linalg.svd, flattened(node, transposed(node, x) if is_wide else x),
                     full=full and with_vectors)
    left, values, right = (_batched(node, node.field(made, i), x) for i in range(3))
    if is_wide:
        left, right = right, left
    if not with_vectors:
        return _empty(node, x), values, _empty(node, x)
    return left, values, transposed(node, right)


@converts("linalg_pinv.atol_rtol_tensor", "linalg_pinv.atol_rtol_float")
def pinv(node: Node, x: Expr, least: Any, relative: Any, hermitian: bool) -> Expr:
    """By the singular values that are above the cut-off, of which the inverses are taken.

    Of a ``hermitian`` matrix only the lower triangle is read.
    """
    if hermitian:
        below = triangle(node, x, lower=True, offset=-1)
        x = node.call(op.add, triangle(node, x, lower=True), transposed(node, below))
    left, values, right = svd(node, x, False, True)
    dtype = dtype_in(x)
    epsilon = np.finfo(dtype.numpy).eps * max(shape_in(x)[-2:])
    if relative is None:
        relative = epsilon if least is None else 0.0
    largest = node.call(op.max, values, axis=(-1,), keepdims=True)
    cut = node.call(op.maximum, _row(node, 0.0 if least is None else least, values),
                    node.call(op.multiply, _row(node, relative, values), largest))
    is_large = node.call(op.greater, values, cut)
    safe = node.call(op.where, is_large, values, node.scalar_like(1, values))
    inverse = node.call(op.where, is_large, node.call(op.divide, node.scalar_like(1, values), safe),
                        node.scalar_like(0, values))
    columns = node.call(op.expand_dims, inverse, axis=rank_of(inverse) - 1, num_newaxis=1)
    scaled = node.call(op.multiply, transposed(node, right), columns)
    made = node.call(op.nn.batch_matmul, flattened(node, scaled),
                     flattened(node, transposed(node, left)), transpose_b=False)
    return node.reshape(made, (*shape_in(x)[:-2], *reversed(shape_in(x)[-2:])))


def _row(node: Node, limit: Any, values: Expr) -> Expr:
    """A limit, or one for each matrix, that broadcasts to the singular values."""
    tensor = node.tensor(limit, dtype_in(values))
    return node.call(op.expand_dims, tensor, axis=rank_of(tensor), num_newaxis=1) \
        if rank_of(tensor) else tensor


def _batched(node: Node, found: Expr, x: Expr) -> Expr:
    return node.reshape(found, (*shape_in(x)[:-2], *shape_in(found)[1:]))


def _empty(node: Node, x: Expr) -> Expr:
    return node.call(op.zeros, shape=(0,), dtype=dtype_in(x))


@converts("fake_quantize_per_tensor_affine_cachemask")
def fake_quantize(node: Node, x: Expr, scale: Any, zero: Any, low: int, high: int
                  ) -> tuple[Expr, Expr]:
    """``x`` rounded to quantized numbers, and where these are within their range."""
    scale, zero = (node.tensor(value, "float32") for value in (scale, zero))
    dtype = dtype_in(x)
    inverse = node.call(op.divide, node.constant(1, "float32"), scale)
    steps = node.call(op.round, node.call(op.multiply, node.cast(x, "float32"), inverse))
    number = node.call(op.add, steps, zero)
    first, last = node.constant(low, "float32"), node.constant(high, "float32")
    inside = node.call(op.logical_and, node.call(op.greater_equal, number, first),
                       node.call(op.less_equal, number, last))
    kept = node.call(op.minimum, node.call(op.maximum, number, first), last)
    made = node.call(op.multiply, node.call(op.subtract, kept, zero), scale)
    return node.cast(made, dtype), inside


@converts("_fake_quantize_per_tensor_affine_cachemask_tensor_qparams")
def fake_quantize_by_tensors(node: Node, x: Expr, scale: Expr, zero: Expr, enabled: Expr,
                             low: int, high: int) -> tuple[Expr, Expr]:
    made, inside = fake_quantize(node, x, *(_like(node, value, x, None)
                                            for value in (scale, zero)), low, high)
    is_on = node.call(op.not_equal, _like(node, enabled, x, None), node.scalar_like(0, enabled))
    off = node.call(op.logical_not, is_on)
    return node.call(op.where, is_on, made, x), node.call(op.logical_or, inside, off)


@converts("fake_quantize_per_channel_affine_cachemask")
def fake_quantize_channels(node: Node, x: Expr, scale: Expr, zero: Expr, axis: int, low: int,
                           high: int) -> tuple[Expr, Expr]:
    return fake_quantize(node, x, *(_like(node, value, x, axis) for value in (scale, zero)),
                         low, high)


def _like(node: Node, value: Expr, x: Expr, axis: int | None) -> Expr:
    """One number, or one for each position of an axis, in a shape that broadcasts to ``x``."""
    shape = [1] * rank_of(x)
    if axis is None:
        return node.reshape(value, ())
    shape[axis] = shape_in(x)[axis]
    return node.reshape(value, shape)
