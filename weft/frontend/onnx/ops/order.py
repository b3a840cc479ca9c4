"""Converters of CumSum, CumProd, TopK, Trilu, EyeLike, Tile and Hardmax."""

from __future__ import annotations

from collections.abc import Sequence

from weft import op
from weft.frontend.common import arrays
from weft.frontend.common.typed import FOLD_LIMIT_ELEMENTS
from weft.frontend.onnx.node import Node, tensor_type
from weft.frontend.onnx.registry import ConvertFunction, converts, register
from weft.frontend.onnx.reshaping import (
    flatten_at,
    known_sizes,
    positions,
    positions_along,
    reshape_to,
)
from weft.frontend.onnx.tensors import dtype_of
from weft.ir import Expr, Op
from weft.ir.shape import Dim, at_least, dim_add


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
    return _top_k(node, node.dim(1, "K"))


@converts("TopK", attributes=("axis", "k"), outputs=2)
def top_k_by_attribute(node: Node) -> Sequence[Expr]:
    return _top_k(node, node.attrs.integer("k", 0))


def _top_k(node: Node, count: Dim) -> Sequence[Expr]:
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
    k = reshape_to(node, node.input(1), ()) if node.has_input(1) else node.constant(0, "int64")
    offset = node.call(op.subtract, positions(node, columns), positions_along(node, rows, 0, 2))
    compare = op.greater_equal if node.attrs.flag("upper", True) else op.less_equal
    zero = node.constant(False if node.dtype().is_bool else 0, node.dtype())
    return node.call(op.where, node.call(compare, offset, k), x, zero)


@converts("EyeLike", since=9, attributes=("dtype", "k"))
def eye_like(node: Node) -> Expr:
    shape = node.shape()
    if len(shape) != 2:
        raise node.fail("the input is not a matrix", got=f"rank {len(shape)}")
    dtype = node.dtype()
    if "dtype" in node.attrs:
        dtype = dtype_of(node.attrs.integer("dtype", 0), "the result of EyeLike", node.span)
    rows, columns = shape
    k = node.attrs.integer("k", 0)
    if isinstance(rows, int) and isinstance(columns, int) \
            and rows * columns <= FOLD_LIMIT_ELEMENTS:
        return node.constant(arrays.eye(rows, columns, k), dtype)
    diagonal = positions_along(node, dim_add(rows, k), 0, 2, first=k)
    return node.call(op.cast, node.call(op.equal, positions(node, columns), diagonal), dtype=dtype)


@converts("Tile", since=6)
def tile(node: Node) -> Expr:
    reps = known_sizes(node, node.dims(1, "repeats"))
    if len(reps) != node.rank() or not all(at_least(r, 0) for r in reps):
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
    best = node.call(op.argmax, x, axis=(axis,), keepdims=True)
    hit = node.call(op.equal, best, positions_along(node, shape[axis], axis, len(shape)))
    return node.call(op.cast, hit, dtype=node.dtype().name)
