"""Sequences and grids of numbers: arange, meshgrid."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import te
from weft.ir import Attrs, OpTraits, RelationContext, TensorType, TupleType, attr, linear, one_of
from weft.ir.dtype import DType, float32, float64, int64
from weft.ir.expr import Call, Expr, Tuple, TupleGetItem
from weft.ir.op import OpPattern, define_op, get_op, op_case
from weft.ir.shape import KnownDim, SymDim, dim_max
from weft.support.dataclass import dataclass
from weft.tir.expr import as_prim, const, maximum
from weft.topi.sizes import as_size


@dataclass(frozen=True, kw_only=True)
class ArangeAttrs(Attrs):
    start: KnownDim | float = attr(0, "first number")
    stop: KnownDim | float = attr(doc="exclusive bound", expected="a number")
    step: int | float = attr(1, "distance between neighbours", check=lambda s: s != 0,
                             expected="a nonzero number")
    dtype: DType = attr(float32, "dtype of the numbers")


def arange_length(start: float, stop: float, step: float) -> int:
    """The number of elements from ``start`` before ``stop``."""
    return max(math.ceil((stop - start) / step), 0)


def whole_length(start: Any, stop: Any, step: int, larger: Callable[[Any, Any], Any]) -> Any:
    """``arange_length`` of whole numbers, over dimensions or over tensor expressions."""
    span = larger(stop - start if step > 0 else start - stop, 0)
    return span if abs(step) == 1 else (span + (abs(step) - 1)) // abs(step)


def _arange_relation(ctx: RelationContext) -> bool:
    attrs = ctx.attrs_as(ArangeAttrs)
    start, stop, step = attrs.start, attrs.stop, attrs.step
    if isinstance(start, SymDim) or isinstance(stop, SymDim):
        if isinstance(start, float) or isinstance(stop, float) or isinstance(step, float):
            ctx.fail("symbolic bounds need whole numbers", expected="integers and symbols",
                     got=f"start {start}, stop {stop}, step {step}")
        else:
            length = whole_length(start, stop, step, dim_max)
            ctx.output(TensorType((length,), attrs.dtype))
    else:
        ctx.output(TensorType((arange_length(start, stop, step),), attrs.dtype))
    return True


@define_op("arange", attrs=ArangeAttrs, relation=_arange_relation, pattern=OpPattern.INJECTIVE,
           level=3, traits=OpTraits(is_creation=True, has_zero_gradient=True))
def arange(attrs: ArangeAttrs) -> te.Tensor:
    """``start + i * step`` below (or above) ``stop``, computed in int64 or float64."""
    start, stop, step = attrs.start, attrs.stop, attrs.step
    if isinstance(start, (int, float)) and isinstance(stop, (int, float)):
        size = as_prim(arange_length(start, stop, step))
        whole = all(isinstance(v, int) for v in (start, step))
        first = const(start, int64 if whole else float64)
    else:
        first = as_prim(as_size(start))
        size, whole = whole_length(first, as_prim(as_size(stop)), int(step), maximum), True
    kind = int64 if whole else float64
    step_size = const(step, kind)
    return te.compute((size,),
                      lambda i: (first + i.astype(kind) * step_size).astype(attrs.dtype),
                      name="arange")


def _arange_reference(
    stop: float, start: float = 0, step: float = 1, dtype: DType = float32
) -> np.ndarray:
    numbers = np.arange(arange_length(start, stop, step))
    return (start + numbers * step).astype(DType.of(dtype).numpy)


arange.spec(_arange_reference, op_case(stop=5), op_case(start=2, stop=11, step=3, dtype="int32"),
            op_case(start=1.0, stop=0.0, step=-0.3), op_case(start=3, stop=3, dtype="int64"),
            op_case(start=4, stop=-1, step=-2))


@dataclass(frozen=True, kw_only=True)
class MeshgridAttrs(Attrs):
    indexing: str = attr("ij", "whether the first axis follows the first line (ij) or the second "
                         "(xy)", check=one_of("ij", "xy"), expected='"ij" or "xy"')


def _line_axes(count: int, indexing: str) -> list[int]:
    """The axis of the grid along which each line varies."""
    axes = list(range(count))
    if indexing == "xy" and count > 1:
        axes[0], axes[1] = 1, 0
    return axes


def _meshgrid_relation(ctx: RelationContext) -> bool:
    lines = ctx.tensors(0)
    if lines is None:
        return False
    if not lines:
        ctx.fail("meshgrid needs at least one line", arg=0, expected="one line or more",
                 got="an empty tuple")
    for line in lines:
        ctx.expect_rank(0, line, 1)
    axes = _line_axes(len(lines), ctx.attrs_as(MeshgridAttrs).indexing)
    shape = tuple(lines[axes.index(a)].shape[0] for a in range(len(lines)))
    ctx.output(TupleType(tuple(TensorType(shape, line.dtype) for line in lines)))
    return True


@define_op("meshgrid", attrs=MeshgridAttrs, relation=_meshgrid_relation,
           pattern=OpPattern.INJECTIVE, inputs=("*lines",), level=3, traits=linear(),
           results=lambda _, inputs: inputs)
def meshgrid(lines: tuple[te.Tensor, ...], attrs: MeshgridAttrs) -> tuple[te.Tensor, ...]:
    """Each line broadcast to the grid of all lines: the coordinates of the grid points."""
    axes = _line_axes(len(lines), attrs.indexing)
    shape = [lines[axes.index(a)].shape[0] for a in range(len(lines))]

    def spread(line: te.Tensor, axis: int) -> te.Tensor:
        return te.compute(shape, lambda *i: line[i[axis]], name=f"grid{axis}")

    return tuple(spread(line, axis) for line, axis in zip(lines, axes, strict=True))


def _meshgrid_reference(
    lines: Sequence[np.ndarray], indexing: str = "ij"
) -> tuple[np.ndarray, ...]:
    axes = _line_axes(len(lines), indexing)
    shape = [lines[axes.index(a)].size for a in range(len(lines))]
    along = [[-1 if a == axis else 1 for a in range(len(lines))] for axis in axes]
    return tuple(np.array(np.broadcast_to(line.reshape(s), shape), order="C")
                 for line, s in zip(lines, along, strict=True))


meshgrid.spec(_meshgrid_reference, op_case([(3,), (4,)]),
              op_case([(3,), (4,), (2,)], indexing="xy"),
              op_case([(3,)]), op_case([(0,), (2,)]))


@meshgrid.gradient
def _meshgrid_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    type_ = call.args[0].checked_type
    count = len(type_.fields) if isinstance(type_, TupleType) else 0
    axes = _line_axes(count, call.attrs.indexing)  # type: ignore[attr-defined]
    return [Tuple(tuple(get_op("sum")(TupleGetItem(dy, n), axis=axis, exclude=True)
                        for n, axis in enumerate(axes)))]
