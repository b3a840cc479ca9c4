"""Reductions over axes, with NumPy's semantics."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from weft import op, te
from weft.ir import CONTINUOUS, SENSITIVE, ZERO_GRADIENT, MixedPrecision, OpTraits, linear
from weft.ir.attrs import Attrs, attr
from weft.ir.dtype import DType, int64
from weft.ir.expr import Call, Expr
from weft.ir.op import Case, Op, OpPattern, define_op, get_op, op_case
from weft.ir.shape import Dim, dim_product
from weft.ir.traits import NO_TRAITS, Family, in_family
from weft.ir.types import TensorType, Type, is_static
from weft.ir.typing.relation import Relation, RelationContext
from weft.ir.typing.relations import reduce_along
from weft.op.batching import all_repeated, with_attrs
from weft.op.gradients import (
    attrs_of,
    divided_by_size,
    known_dim,
    known_shape,
    scalar,
    size_value,
    tensor_type,
    typed_zeros,
)
from weft.op.layout_inference import (
    InputLayout,
    LayoutResult,
    data_layout,
    data_shape,
    without_letters,
)
from weft.op.relations import (
    checked,
    expect_bool,
    expect_float,
    expect_number,
)
from weft.support.dataclass import dataclass
from weft.topi import reduce as topi_reduce


@dataclass(frozen=True, kw_only=True)
class ReduceAttrs(Attrs):
    axis: int | tuple[int, ...] | None = attr(None, "axes reduced; None for all of them")
    keepdims: bool = attr(False, "keep the reduced axes with size 1")
    exclude: bool = attr(False, "reduce all axes except those named")


@dataclass(frozen=True, kw_only=True)
class ArgReduceAttrs(Attrs):
    axis: int | tuple[int, ...] | None = attr(None, "axes searched; None for all of them")
    keepdims: bool = attr(False, "keep the searched axes with size 1")
    exclude: bool = attr(False, "search all axes except those named")
    dtype: DType = attr(int64, "dtype of the indices",
                        check=lambda d: DType.of(d).is_int, expected="an integer dtype")
    select_last_index: bool = attr(False, "select the last of equal elements, not the first")


def reduced_axes(attrs: ReduceAttrs | ArgReduceAttrs, ndim: int) -> tuple[int, ...]:
    """The reduced axes, counted from the front, in ascending order."""
    if attrs.axis is None:
        return tuple(range(ndim))
    given = (attrs.axis,) if isinstance(attrs.axis, int) else attrs.axis
    named = {a % ndim for a in given}
    return tuple(a for a in range(ndim) if (a in named) != attrs.exclude)


def reduce_layout(
    attrs: ReduceAttrs, inputs: tuple[InputLayout, ...], types: tuple[Type, ...]
) -> LayoutResult | None:
    """Reduced axes leave the layout with their blocks; ``keepdims`` needs them unsplit."""
    layout = data_layout(inputs)
    if layout is None:
        return None
    letters = "".join(layout.primal_axes[a] for a in reduced_axes(attrs, len(data_shape(types))))
    axes = tuple(i for i, axis in enumerate(layout.axes) if axis.letter in letters)
    is_split = [layout.block_index_of(a) is not None for a in letters]
    # An axis of size 1, which ``keepdims`` leaves, cannot be split into blocks.
    if attrs.keepdims and True in is_split:  # ``any`` is an operator in this module
        return None
    result = layout if attrs.keepdims else without_letters(layout, letters)
    return LayoutResult((layout,), (result,), attrs.replace(axis=axes, exclude=False))


def _reduce_each(
    call: Call, args: Sequence[Expr], is_batched: Sequence[bool], size: Dim
) -> Expr:
    """The axes by number, counted after the batch."""
    attrs: Any = call.attrs
    axes = reduced_axes(attrs, tensor_type(call.args[0]).ndim)
    new = all_repeated(call, args, is_batched, size)
    return with_attrs(call, new, axis=tuple(a + 1 for a in axes), exclude=False)


_CASES = (
    op_case((3, 5)),
    op_case((3, 5), axis=1),
    op_case((2, 3, 4), axis=(0, -1), keepdims=True),
    op_case((2, 3, 4), axis=1, exclude=True),
    op_case((7,), axis=0, keepdims=True),
    op_case(()),
)
_EMPTY_CASES = (op_case((0, 3), axis=0), op_case((0, 3), axis=1))
_BOOL_CASES = tuple(dataclasses.replace(c, dtypes=("bool",)) for c in _CASES)
_EXTREME = replace(CONTINUOUS, keeps_scale=True)
_INT_CASES = (op_case((3, 5), axis=0, dtypes="int32", low=-9, high=9),)


def _reference(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(x: np.ndarray, axis: Any = None, keepdims: bool = False,
            exclude: bool = False) -> np.ndarray:
        array = np.asarray(x)
        axes = reduced_axes(ReduceAttrs(axis=axis, exclude=exclude), array.ndim)
        return np.asarray(function(array, axis=axes, keepdims=keepdims)).astype(array.dtype)

    return run


def _reduction(
    name: str,
    reference: Callable[..., Any],
    compute: Callable[[te.Tensor, tuple[int, ...], bool], te.Tensor],
    *,
    doc: str,
    check: Callable[..., None] = expect_number,
    needs_element: bool = False,
    integers: bool = True,
    cases: Sequence[Case] = _CASES,
    traits: OpTraits = NO_TRAITS,
) -> Op:
    def run(x: te.Tensor, attrs: ReduceAttrs) -> te.Tensor:
        return compute(x, reduced_axes(attrs, x.ndim), attrs.keepdims)

    run.__doc__ = doc
    relation: Relation = checked(check, reduce_along(needs_element=needs_element))
    op = define_op(name, attrs=ReduceAttrs, relation=relation, pattern=OpPattern.COMM_REDUCE,
                   level=4, inputs=("x",), traits=in_family(Family.REDUCTION, traits))(run)
    empty = [dataclasses.replace(c, dtypes=cases[0].dtypes) for c in _EMPTY_CASES]
    more = (*(() if needs_element else empty), *(_INT_CASES if integers else ()))
    op.layout(reduce_layout)
    op.batching(_reduce_each)
    op.spec(_reference(reference), *cases, *more)
    return op


def _with(reducer: Any, name: str) -> Callable[[te.Tensor, tuple[int, ...], bool], te.Tensor]:
    return lambda x, axes, keepdims: topi_reduce.reduce_with(
        x, reducer, axes, keepdims=keepdims, name=name
    )


sum = _reduction("sum", np.sum, _with(te.sum, "sum"), doc="The sum.", traits=linear(SENSITIVE))
prod = _reduction("prod", np.prod, _with(te.prod, "prod"), doc="The product.", traits=SENSITIVE)
max = _reduction("max", np.max, _with(te.max, "max"), needs_element=True,
                 doc="The largest element; NaN if there is one.", traits=_EXTREME)
min = _reduction("min", np.min, _with(te.min, "min"), needs_element=True,
                 doc="The smallest element; NaN if there is one.", traits=_EXTREME)
mean = _reduction(
    "mean", np.mean, lambda x, axes, keepdims: topi_reduce.mean(x, axes, keepdims=keepdims),
    doc="The sum divided by the count.", check=expect_float, needs_element=True, integers=False,
    traits=linear(SENSITIVE),
)


def _with_axes(call: Call, value: Expr) -> Expr:
    """``value``, of the result's type, with the reduced axes inserted as axes of size 1."""
    attrs = attrs_of(call, ReduceAttrs)
    axes = reduced_axes(attrs, tensor_type(call.args[0]).ndim)
    if attrs.keepdims:
        return value
    for axis in sorted(axes):
        value = op.expand_dims(value, axis=axis)
    return value


def _spread(value: Expr, like: Expr) -> Expr:
    """``value`` broadcast to the shape of ``like``."""
    type_ = tensor_type(like)
    if is_static(type_):
        return op.broadcast_to(value, shape=type_.shape)
    return op.add(typed_zeros(like), value)


mean.refer(reduced_form="weft.op.reduced_forms:mean")


@sum.gradient
def _sum_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    return [_spread(_with_axes(call, dy), call.args[0])]


@mean.gradient
def _mean_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    x, attrs = call.args[0], attrs_of(call, ReduceAttrs)
    shape = known_shape(x, call)
    count = dim_product(tuple(shape[axis] for axis in reduced_axes(attrs, len(shape))))
    return [_spread(divided_by_size(_with_axes(call, dy), known_dim(count, call), dy), x)]


@max.gradient
@min.gradient
def _extreme_gradient(call: Call, y: Expr, dy: Expr) -> list[Expr]:
    """Elements equal to the extreme share its gradient equally."""
    x, attrs = call.args[0], attrs_of(call, ReduceAttrs)
    winners = op.cast(op.equal(x, _with_axes(call, y)), dtype=tensor_type(x).dtype)
    axes = reduced_axes(attrs, tensor_type(x).ndim)
    count = op.sum(winners, axis=axes, keepdims=True)
    return [op.multiply(winners, op.divide(_with_axes(call, dy), count))]


@prod.gradient
def _prod_gradient(call: Call, y: Expr, dy: Expr) -> list[Expr]:
    """The product of the other factors; with one zero, only the zero has a gradient."""
    x, attrs = call.args[0], attrs_of(call, ReduceAttrs)
    axes = reduced_axes(attrs, tensor_type(x).ndim)
    zero, one = scalar(0.0, x), scalar(1.0, x)
    is_zero = op.equal(x, zero)
    # The product of the other factors is y / x, but 0 / 0 at a zero.
    others = op.prod(op.where(is_zero, one, x), axis=axes, keepdims=True)
    zeros = op.sum(op.cast(is_zero, dtype=tensor_type(x).dtype), axis=axes, keepdims=True)
    at_zero = op.where(op.equal(zeros, one), others, zero)
    slope = op.where(is_zero, at_zero, op.divide(_with_axes(call, y), op.where(is_zero, one, x)))
    return [op.multiply(_with_axes(call, dy), slope)]


any = _reduction("any", np.any, _with(te.any, "any"), doc="Whether one of the booleans is true.",
                 check=expect_bool, integers=False, cases=_BOOL_CASES)
all = _reduction("all", np.all, _with(te.all, "all"), doc="Whether all of the booleans are true.",
                 check=expect_bool, integers=False, cases=_BOOL_CASES)


@dataclass(frozen=True, kw_only=True)
class VarianceAttrs(ReduceAttrs):
    unbiased: bool = attr(False, "divide by the count minus one")


def _variance_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(2)
    if types is None:
        return False
    source, mean_type = types
    ctx.expect_same_dtype(1, mean_type, source.dtype)
    kept = tuple(1 if a in reduced_axes(ctx.attrs_as(VarianceAttrs), source.ndim) else d
                 for a, d in enumerate(source.shape))
    if mean_type.ndim != source.ndim:
        ctx.fail("wrong rank of the mean", arg=1, expected=TensorType(
            kept, source.dtype), got=mean_type, help="take mean(x, keepdims=True)")
    for axis, size in enumerate(kept):
        ctx.expect_dim(1, axis, mean_type.shape[axis], size, "the mean does not fit the data")
    return checked(expect_float, reduce_along(needs_element=True))(ctx)


@define_op("variance", attrs=VarianceAttrs, relation=_variance_relation,
           pattern=OpPattern.COMM_REDUCE, level=4, traits=CONTINUOUS)
def variance(x: te.Tensor, mean: te.Tensor, attrs: VarianceAttrs) -> te.Tensor:
    """The mean squared distance from ``mean``, which has the reduced axes with size 1."""
    axes = reduced_axes(attrs, x.ndim)
    return topi_reduce.variance(x, mean, axes, keepdims=attrs.keepdims, unbiased=attrs.unbiased)


def _variance_reference(
    x: np.ndarray, mean: np.ndarray, axis: Any = None, keepdims: bool = False,
    exclude: bool = False, unbiased: bool = False,
) -> np.ndarray:
    axes = reduced_axes(ReduceAttrs(axis=axis, exclude=exclude), x.ndim)
    count = np.prod([x.shape[a] for a in axes], dtype=np.int64) - unbiased
    total = np.sum(np.square(x - mean), axis=axes, keepdims=keepdims)
    return np.asarray(total / x.dtype.type(count)).astype(x.dtype)


variance.spec(
    _variance_reference, op_case((3, 5), (3, 1), axis=1),
    op_case((2, 3, 4), (1, 3, 1), axis=(0, -1)),
    op_case((4, 3), (1, 3), axis=0, unbiased=True, keepdims=True), op_case((3,), (1,)),
    op_case((2, 3), (2, 1), axis=0, exclude=True),
)


variance.refer(reduced_form="weft.op.reduced_forms:variance")


@variance.gradient
def _variance_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    """2 (x - mean) / count for x, and minus its sum for the mean."""
    x, mean_value = call.args
    attrs = attrs_of(call, VarianceAttrs)
    axes = reduced_axes(attrs, tensor_type(x).ndim)
    for axis in () if attrs.keepdims else axes:
        dy = get_op("expand_dims")(dy, axis=axis)
    shape = known_shape(x, call)
    count = known_dim(dim_product(tuple(shape[a] for a in axes)) - attrs.unbiased, call)
    factor = scalar(2.0 / count, x) if isinstance(count, int) else \
        op.divide(scalar(2.0, x), size_value(count, tensor_type(x).dtype))
    slope = (x - mean_value) * factor * dy
    return [slope, -sum(slope, axis=axes, keepdims=True)]


def _arg_relation(ctx: RelationContext) -> bool:
    attrs = ctx.attrs
    dtype = attrs.dtype if isinstance(attrs, ArgReduceAttrs) else int64
    return checked(expect_number, reduce_along(out_dtype=dtype, needs_element=True))(ctx)


def _arg_reference(largest: bool) -> Callable[..., np.ndarray]:
    find = np.argmax if largest else np.argmin

    def run(x: np.ndarray, axis: Any = None, keepdims: bool = False, exclude: bool = False,
            dtype: Any = int64, select_last_index: bool = False) -> np.ndarray:
        array = np.asarray(x)
        axes = reduced_axes(ReduceAttrs(axis=axis, exclude=exclude), array.ndim)
        kept = [a for a in range(array.ndim) if a not in axes]
        outer = tuple(array.shape[a] for a in kept)
        count = int(np.prod([array.shape[a] for a in axes], dtype=np.int64))
        rows = array.transpose(*kept, *axes).reshape(*outer, count)
        found = count - 1 - find(rows[..., ::-1], -1) if select_last_index else find(rows, -1)
        shape = [1 if a in axes else s for a, s in enumerate(array.shape)] if keepdims else outer
        return np.asarray(found).reshape(shape).astype(DType.of(dtype).numpy)

    return run


def _arg_reduction(name: str, *, largest: bool, doc: str) -> Op:
    def run(x: te.Tensor, attrs: ArgReduceAttrs) -> te.Tensor:
        return topi_reduce.arg_reduce(
            x, reduced_axes(attrs, x.ndim), keepdims=attrs.keepdims, largest=largest,
            select_last=attrs.select_last_index, dtype=attrs.dtype,
        )

    run.__doc__ = doc
    op = define_op(name, attrs=ArgReduceAttrs, relation=_arg_relation,
                   pattern=OpPattern.COMM_REDUCE, level=4, inputs=("x",),
                   traits=replace(ZERO_GRADIENT, mixed_precision=MixedPrecision.NEVER,
                                  family=Family.REDUCTION))(run)
    op.batching(_reduce_each)
    ties = np.array([[1, 3, 3], [2, 0, 0]], np.float32)
    op.spec(_arg_reference(largest), *_CASES, op_case(ties, axis=1),
            op_case(ties, axis=-1, select_last_index=True, dtype="int32"),
            op_case((4, 5), axis=1, dtypes="int32", low=-3, high=3))
    return op


argmax = _arg_reduction("argmax", largest=True, doc="The index of the largest element.")
argmin = _arg_reduction("argmin", largest=False, doc="The index of the smallest element.")
for _index in (argmax, argmin):
    _index.no_gradient("an index is an integer")


variance.batching(_reduce_each)
for _op in (sum, prod, max, min, mean):
    _op.refer(permuted="weft.op.permuted:reduction")
for _op, _rule in ((sum, "sum_"), (prod, "prod"), (max, "max_"), (min, "min_")):
    _op.refer(shape_value=f"weft.op.shape_values:{_rule}")
