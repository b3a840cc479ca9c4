"""Dense layers: a GEMM with a matrix of weights, and the addition of a bias."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import op, te
from weft.ir import Attrs, Call, Constant, DType, Expr, TensorType, attr, infer_expr, normalize_axis
from weft.ir.op import OpPattern, define_op, op_case
from weft.ir.shape import Dim, dim_product
from weft.ir.traits import CONTINUOUS, MATMUL, linear
from weft.ir.typing.relation import RelationContext
from weft.op.batching import along_with_parameters, with_attrs
from weft.op.gradients import (
    align_to_axis,
    attrs_of,
    cut_to,
    in_result_dtype,
    known_shape,
    scalar,
    tensor_type,
    to_order,
)
from weft.op.layout_inference import along_axis
from weft.op.nn.matmul import MatmulAttrs, accumulate_in, matmul_each
from weft.op.relations import (
    layout_attr,
    output_dtype,
    to_layout,
)
from weft.support.dataclass import dataclass
from weft.tir.expr import PrimExpr
from weft.topi.layout import Layout, transform_array
from weft.topi.nn import dense as topi_dense

NK = Layout.parse("NK")


@dataclass(frozen=True, slots=True)
class WeightPanels:
    """A weight (N, K) that is packed for a GEMM: panels of ``nr`` columns of N, K inside them.

    ``k_group`` neighbours along K are adjacent in memory: one lane of a dot-product instruction
    accumulates them. The shape is (N / nr, K, nr), with groups (N / nr, K / k_group, nr, k_group),
    rounded up and padded with zeros.
    """

    nr: int
    k_group: int = 1

    @property
    def layout(self) -> str:
        """The layout by name, such as ``NK16n`` and ``NK64n4k``."""
        return f"NK{self.nr}n" if self.k_group == 1 else f"NK{self.nr}n{self.k_group}k"

    @staticmethod
    def of(layout: Layout) -> WeightPanels | None:
        """The panels of a layout; ``None`` if it is not one of panels."""
        if layout.block_index_of("N") is None:
            return None
        panels = WeightPanels(layout.factor_of("N"), layout.factor_of("K"))
        return panels if panels.layout == layout.name else None


@dataclass(frozen=True, kw_only=True)
class DenseAttrs(Attrs):
    units: int | None = attr(None, "size of the result's last axis; None to read it off the "
                             "weight")
    out_dtype: DType | None = attr(None, "dtype of the sum and the result; None for the data's")
    weight_layout: str = attr("NK", "layout of the weight: NK, KN, or in panels such as NK16n")

    @property
    def panels(self) -> WeightPanels | None:
        """The panels in which the weight is packed; ``None`` if it is not."""
        return WeightPanels.of(Layout.parse(self.weight_layout))


def _dense_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(2)
    if types is None:
        return False
    data, weight = types
    attrs = ctx.attrs_as(DenseAttrs)
    layout = layout_attr(ctx, "weight_layout")
    ctx.expect_min_rank(0, data, 1)
    ctx.expect_rank(1, weight, layout.ndim)
    ctx.expect_number(0, data)
    ctx.expect_factor(weight, data, attrs.out_dtype)
    units, depth = to_layout(ctx, layout, NK, weight.shape, arg=1)
    if not _is_filled(depth, data.shape[-1], layout.factor_of("K")):
        ctx.expect_dim(1, layout.index_of("K"), depth, data.shape[-1],
                       "the inner sizes do not match", why=" (the last axis of the data)",
                       help=f"the weight layout is {layout}: (units, inner size)"
                       if layout == NK else None)
    if attrs.units is not None:
        if not _is_filled(units, attrs.units, layout.factor_of("N")):
            ctx.expect_dim(1, layout.index_of("N"), units, attrs.units,
                           "the number of units does not match", why=" (the attribute units)")
        units = attrs.units
    ctx.output(TensorType((*data.shape[:-1], units), output_dtype(attrs, data.dtype)))
    return True


def _is_filled(size: Dim, wanted: Dim, factor: int) -> bool:
    """Whether ``size`` is ``wanted`` rounded up to blocks of ``factor``."""
    both = isinstance(size, int) and isinstance(wanted, int)
    return both and 0 < size - wanted < factor


@define_op("nn.dense", attrs=DenseAttrs, relation=_dense_relation,
           pattern=OpPattern.OUT_FUSABLE, level=1, traits=MATMUL)
def dense(data: te.Tensor, weight: te.Tensor, attrs: DenseAttrs) -> te.Tensor:
    """out[…, n] = sum over k of data[…, k] * weight[n, k]

    A weight in panels is padded with zeros to whole panels: ``units`` is the number of columns that
    count, and the last axis of the data the size of K.
    """
    return topi_dense.dense(data, weight, weight_layout=Layout.parse(attrs.weight_layout),
                            out_dtype=attrs.out_dtype or data.dtype, units=attrs.units)


def _dense_reference(data: np.ndarray, weight: np.ndarray, out_dtype: DType | None = None,
                     weight_layout: str = "NK", units: int | None = None,
                     **_: Any) -> np.ndarray:
    dtype = accumulate_in(data.dtype)
    unpacked = transform_array(weight, Layout.parse(weight_layout), NK)[:units, :data.shape[-1]]
    result = data.astype(dtype) @ unpacked.astype(dtype).T
    return np.asarray(result).astype(data.dtype if out_dtype is None else out_dtype.numpy)


dense.spec(_dense_reference, op_case((3, 5), (4, 5)), op_case((2, 3, 5), (7, 5), units=7),
           op_case((5,), (4, 5)), op_case((3, 5), (5, 4), weight_layout="KN"),
           op_case((3, 5), (2, 5, 4), weight_layout="NK4n"),
           op_case((3, 5), (2, 3, 4, 2), weight_layout="NK4n2k", units=7),
           op_case((3, 5), (4, 5), dtypes="int32", low=-9, high=9), op_case((0, 5), (4, 5)),
           op_case((2, 0), (3, 0)))


def _as_matrix(x: Expr, call: Call) -> Expr:
    type_ = tensor_type(x)
    if type_.ndim == 2:
        return x
    *lead, last = known_shape(x, call)
    count = dim_product(tuple(lead))
    return op.reshape(x, newshape=(count, last), allowzero=True)


@dense.gradient
@in_result_dtype
def _dense_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    attrs = attrs_of(call, DenseAttrs)
    data, weight = call.args
    is_packed, is_nk = not attrs.weight_layout.isalpha(), attrs.weight_layout != "KN"
    matrix = _unpacked(call, weight, attrs) if is_packed else weight
    dx = op.nn.dense(dy, matrix, weight_layout="KN" if is_nk else "NK")
    rows, grads = _as_matrix(data, call), _as_matrix(dy, call)
    left, right = (grads, rows) if is_nk else (rows, grads)
    dw = op.nn.matmul(left, right, transpose_a=True)
    return [dx, _packed(dw, weight, attrs) if is_packed else dw]


def _unpacked(call: Call, weight: Expr, attrs: DenseAttrs) -> Expr:
    """The packed weight as a matrix (units, inner size), without what fills the panels."""
    matrix = to_order(weight, attrs.weight_layout, "NK")
    units, depth = known_shape(call, call)[-1], known_shape(call.args[0], call)[-1]
    return infer_expr(cut_to(cut_to(matrix, 0, units), 1, depth), trust=True)


def _packed(dw: Expr, weight: Expr, attrs: DenseAttrs) -> Expr:
    """The gradient of the matrix in panels, with zeros where the panels are filled."""
    typed = infer_expr(dw, trust=True)
    whole = tensor_type(to_order(weight, attrs.weight_layout, "NK")).shape
    pads = tuple((0, full - size) for full, size in zip(whole, tensor_type(typed).shape,
                                                        strict=True))
    filled = op.nn.pad(typed, scalar(0.0, typed), pad_width=pads) if any(
        after for _, after in pads) else typed
    return to_order(infer_expr(filled, trust=True), "NK", attrs.weight_layout)


@dense.canonical_form
def _with_weight_rows(call: Call) -> Expr | None:
    """A constant weight as (N, K); its transpose is folded."""
    attrs, (data, weight) = attrs_of(call, DenseAttrs), call.args
    if attrs.weight_layout != "KN" or not isinstance(weight, Constant):
        return None
    rows = op.transpose(weight, span=weight.span)
    return call.replace(args=(data, rows), attrs=attrs.replace(weight_layout="NK"))


@dataclass(frozen=True, kw_only=True)
class BiasAddAttrs(Attrs):
    axis: int = attr(1, "axis of the data that the bias runs along")


def _bias_add_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(2)
    if types is None:
        return False
    data, bias = types
    axis = normalize_axis(ctx, ctx.attrs_as(BiasAddAttrs).axis, data.ndim)
    ctx.expect_rank(1, bias, 1)
    ctx.expect_number(0, data)
    ctx.expect_same_dtype(1, bias, data.dtype)
    size = ctx.expect_dim(1, 0, bias.shape[0], data.shape[axis], "the bias does not fit the data",
                          why=f" (axis {axis} of the data)")
    ctx.output(TensorType((*data.shape[:axis], size, *data.shape[axis + 1:]), data.dtype))
    return True


@define_op("nn.bias_add", attrs=BiasAddAttrs, relation=_bias_add_relation,
           pattern=OpPattern.BROADCAST, level=1, traits=linear(CONTINUOUS))
def bias_add(data: te.Tensor, bias: te.Tensor, attrs: BiasAddAttrs) -> te.Tensor:
    """``data`` plus a vector along one axis."""
    axis = attrs.axis % data.ndim

    def element(*index: PrimExpr) -> PrimExpr:
        return data[index] + bias[index[axis]]

    return te.compute(data.shape, element, name="bias_add")


def _bias_add_reference(data: np.ndarray, bias: np.ndarray, axis: int = 1) -> np.ndarray:
    shape = [1] * data.ndim
    shape[axis] = bias.size
    return data + bias.reshape(shape)


bias_add.layout(along_axis())


@bias_add.decomposition
def _bias_add_decomposition(call: Call) -> Expr:
    """An addition of the bias, reshaped to broadcast along its axis."""
    data, bias = call.args
    ndim = tensor_type(data).ndim
    axis = attrs_of(call, BiasAddAttrs).axis % ndim
    return op.add(data, align_to_axis(bias, axis, ndim), span=call.span)
bias_add.spec(_bias_add_reference, op_case((2, 3, 4, 5), (3,)), op_case((3, 5), (5,), axis=-1),
              op_case((3, 5), (3,), axis=0))


@dense.batching
def _dense_each(
    call: Call, args: Sequence[Expr], is_batched: Sequence[bool], _size: Dim
) -> Expr | None:
    """One weight for all examples takes their rows together; else a stack of products."""
    attrs = attrs_of(call, DenseAttrs)
    if not is_batched[1]:
        return with_attrs(call, args)
    if attrs.weight_layout not in ("NK", "KN"):
        return None
    plain = MatmulAttrs(transpose_b=attrs.weight_layout == "NK", out_dtype=attrs.out_dtype)
    return matmul_each(args[0], args[1], call.args, is_batched, plain)


bias_add.batching(along_with_parameters("axis"))
dense.refer(integer_form="weft.op.qnn.integer_forms:dense",
            weight_use="weft.op.nn.constant_weights:of_dense")
bias_add.refer(permuted="weft.op.permuted:along_axis",
                integer_form="weft.op.qnn.integer_forms:bias_add")
