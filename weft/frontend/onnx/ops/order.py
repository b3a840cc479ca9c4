"""Converters of CumSum, CumProd, TopK, Trilu, EyeLike, Tile and Hardmax."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft import op
from weft.frontend.onnx.dtypes import dtype_of
from weft.frontend.onnx.node import Node, tensor_type
from weft.frontend.onnx.registry import ConvertFunction, converts, register
from weft.frontend.onnx.reshaping import flatten_at, reshape_to
from weft.ir.dtype import DType
from weft.ir.expr import Constant, Expr
from weft.ir.op import Op
from weft.support.errors import UnsupportedModelError


def _scan(operator: Op) -> ConvertFunction:
    def convert(node: Node) -> Expr:
        axis = node.integer(1, "axis")
        return node.call(
            operator,
            node.input(0),
            axis=node.axis(axis, node.rank()),
            exclusive=node.attrs.flag("exclusive"),
            reverse=node.attrs.flag("reverse"),
        )

    return convert


register("CumSum", _scan(op.cumsum), since=11, attributes=("exclusive", "reverse"))
register("CumProd", _scan(op.cumprod), since=26, attributes=("exclusive", "reverse"))


@converts("TopK", since=10, attributes=("axis",), outputs=2)
@converts("TopK", since=11, attributes=("axis", "largest", "sorted"), outputs=2)
def top_k(node: Node) -> Sequence[Expr]:
    """Convert TopK; the result is always sorted, which ``sorted=0`` permits."""
    return _top_k(node, node.integer(1, "K"))


@converts("TopK", attributes=("axis", "k"), outputs=2)
def top_k_by_attribute(node: Node) -> Sequence[Expr]:
    return _top_k(node, node.attrs.integer("k", 0))


def _top_k(node: Node, count: int) -> Sequence[Expr]:
    axis = node.axis(node.attrs.integer("axis", -1), node.rank())
    ascending = not node.attrs.flag("largest", True)
    found = node.call(op.topk, node.input(0), k=count, axis=axis, is_ascend=ascending)
    return node.field(found, 0), node.field(found, 1)


@converts("Trilu", since=14, attributes=("upper",))
def trilu(node: Node) -> Expr:
    """Zero below (``upper``) or above the ``k``-th diagonal of the last two axes."""
    x, shape = node.input(0), node.shape()
    if len(shape) < 2:
        raise node.fail("the input is not a matrix", got=f"rank {len(shape)}")
    rows, columns = shape[-2:]
    if not isinstance(rows, int) or not isinstance(columns, int):
        raise UnsupportedModelError("Trilu over symbolic sizes", where=node.span)
    k = int(node.array(1, "k").reshape(())) if node.has_input(1) else 0
    offset = np.arange(columns)[None, :] - np.arange(rows)[:, None]
    kept = offset >= k if node.attrs.flag("upper", True) else offset <= k
    zero = node.constant(False if node.dtype().is_bool else 0, node.dtype())
    return node.call(op.where, Constant(kept, span=node.span), x, zero)


@converts("EyeLike", since=9, attributes=("dtype", "k"))
def eye_like(node: Node) -> Expr:
    shape = node.shape()
    if len(shape) != 2 or not all(isinstance(d, int) for d in shape):
        raise UnsupportedModelError("EyeLike of a tensor that is not a matrix of static shape",
                                    where=node.span)
    dtype = node.dtype()
    if "dtype" in node.attrs:
        dtype = dtype_of(node.attrs.integer("dtype", 0), "the result of EyeLike", node.span)
    rows, columns = (d for d in shape if isinstance(d, int))
    eye = np.eye(rows, columns, node.attrs.integer("k", 0))
    return Constant(eye.astype(DType.of(dtype).numpy), span=node.span)


@converts("Tile", since=6)
def tile(node: Node) -> Expr:
    reps = node.ints(1, "repeats")
    if len(reps) != node.rank() or any(r < 0 for r in reps):
        raise node.fail("wrong number of repeats", expected=f"{node.rank()} numbers >= 0",
                        got=str(reps))
    return node.call(op.tile, node.input(0), reps=reps)


@converts("Hardmax", attributes=("axis",))
def hardmax_flattened(node: Node) -> Expr:
    """Hardmax over all axes from ``axis`` on, flattened, as defined before opset 13."""
    axis = node.axis(node.attrs.integer("axis", 1), node.rank())
    rows = flatten_at(node, node.input(0), axis)
    return reshape_to(node, _hardmax(node, rows, 1), node.shape())


@converts("Hardmax", since=13, attributes=("axis",))
def hardmax(node: Node) -> Expr:
    axis = node.axis(node.attrs.integer("axis", -1), node.rank())
    return _hardmax(node, node.input(0), axis)


def _hardmax(node: Node, x: Expr, axis: int) -> Expr:
    """One at the first of the largest elements along the axis, zero elsewhere."""
    shape = tensor_type(x).shape
    size = shape[axis]
    if not isinstance(size, int):
        raise UnsupportedModelError("Hardmax along an axis of symbolic size", where=node.span)
    positions = np.arange(size).reshape(-1, *(1,) * (len(shape) - axis - 1))
    best = node.call(op.argmax, x, axis=(axis,), keepdims=True)
    hit = node.call(op.equal, best, Constant(positions, span=node.span))
    return node.call(op.cast, hit, dtype=node.dtype().name)
