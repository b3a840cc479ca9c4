"""Matrix multiplication of matrices, stacks of matrices, and vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import op, te
from weft.ir import MATMUL, Attrs, DType, RelationContext, TensorType, attr, broadcast_dims, has_any
from weft.ir.analysis import known_type
from weft.ir.expr import Call, Constant, Expr
from weft.ir.op import OpPattern, define_op, get_op, op_case
from weft.ir.shape import Dim, Shape, dim_product
from weft.op.gradients import attrs_of, in_result_dtype, sum_to, tensor_type
from weft.op.relations import (
    output_dtype,
)
from weft.support.dataclass import dataclass
from weft.support.errors import PassError
from weft.topi.nn import dense as topi_dense

_MATRIX = 2


def accumulate_in(dtype: Any) -> type:
    """The NumPy dtype that the references sum in: int64 for integers, float64 for floats."""
    return np.int64 if np.issubdtype(dtype, np.integer) else np.float64


@dataclass(frozen=True, kw_only=True)
class MatmulAttrs(Attrs):
    transpose_a: bool = attr(False, "the first matrix is stored transposed")
    transpose_b: bool = attr(False, "the second matrix is stored transposed")
    out_dtype: DType | None = attr(None, "dtype of the sum and the result; None for that of a")


@dataclass(frozen=True, kw_only=True)
class BatchMatmulAttrs(Attrs):
    transpose_a: bool = attr(False, "the first matrices are stored transposed")
    transpose_b: bool = attr(True, "the second matrices are stored transposed, as in Relay")
    out_dtype: DType | None = attr(None, "dtype of the sum and the result; None for that of a")


def _matmul_relation(ctx: RelationContext) -> bool:
    """As NumPy: matrices ``(…, M, K)`` and ``(…, K, N)``, whose leading axes broadcast.

    A vector is a row on the left and a column on the right; the result lacks that axis.
    """
    types = ctx.tensors_known(2)
    if types is None:
        return False
    a, b = types
    attrs = ctx.attrs_as(MatmulAttrs)
    for arg, type_ in enumerate(types):
        ctx.expect_min_rank(arg, type_, 1)
        ctx.expect_number(arg, type_)
    for arg, name in enumerate(("transpose_a", "transpose_b")):
        if getattr(attrs, name) and types[arg].ndim == 1:
            ctx.fail("a vector cannot be stored transposed", arg=arg, expected=f"{name}=False",
                     got=f"{name}=True with {types[arg]}")
    ctx.expect_factor(b, a, attrs.out_dtype)
    rows = (a.shape[-1 if attrs.transpose_a else -2],) if a.ndim > 1 else ()
    columns = (b.shape[-2 if attrs.transpose_b else -1],) if b.ndim > 1 else ()
    _expect_inner(ctx, a, b, attrs)
    batch = _batch(ctx, a.shape[:-2], b.shape[:-2])
    ctx.output(TensorType((*batch, *rows, *columns), output_dtype(attrs, a.dtype)))
    return True


def _batch_matmul_relation(ctx: RelationContext) -> bool:
    """Two stacks of matrices, of rank 3, whose first axes broadcast."""
    types = ctx.tensors_known(2)
    if types is None:
        return False
    a, b = types
    attrs = ctx.attrs_as(BatchMatmulAttrs)
    for arg, type_ in enumerate(types):
        ctx.expect_rank(arg, type_, 3)
        ctx.expect_number(arg, type_)
    ctx.expect_factor(b, a, attrs.out_dtype)
    _expect_inner(ctx, a, b, attrs)
    rows, columns = a.shape[-1 if attrs.transpose_a else -2], b.shape[-2 if attrs.transpose_b
                                                                     else -1]
    batch = _batch(ctx, a.shape[:-2], b.shape[:-2])
    ctx.output(TensorType((*batch, rows, columns), output_dtype(attrs, a.dtype)))
    return True


def _expect_inner(ctx: RelationContext, a: TensorType, b: TensorType,
                  attrs: MatmulAttrs | BatchMatmulAttrs) -> None:
    """Check that both operands have the same K."""
    left = a.ndim - (2 if attrs.transpose_a else 1)
    right = b.ndim - (2 if b.ndim > 1 and not attrs.transpose_b else 1)
    ctx.expect_dim(1, right, b.shape[right], a.shape[left], "the inner sizes do not match",
                   why=f" (axis {left} of the first argument)",
                   help=f"transpose_a is {attrs.transpose_a}, transpose_b is {attrs.transpose_b}")


def _batch(ctx: RelationContext, a: Shape, b: Shape) -> tuple[Dim, ...]:
    """The leading axes, broadcast."""
    rank = max(len(a), len(b))
    sizes: list[Dim] = []
    for axis in range(-rank, 0):
        x = a[axis] if -axis <= len(a) else 1
        y = b[axis] if -axis <= len(b) else 1
        size = broadcast_dims(x, y)
        if size is None:
            ctx.fail("the numbers of matrices do not match", arg=1, axis=len(b) + axis,
                     expected=f"{x} or 1", got=y)
        else:
            sizes.append(size)
    return tuple(sizes)


def _matmul_reference(a: np.ndarray, b: np.ndarray, transpose_a: bool = False,
                      transpose_b: bool = False, out_dtype: DType | None = None) -> np.ndarray:
    wide = accumulate_in(a.dtype)
    left = (a.swapaxes(-1, -2) if transpose_a else a).astype(wide)
    right = (b.swapaxes(-1, -2) if transpose_b else b).astype(wide)
    return np.asarray(left @ right).astype(a.dtype if out_dtype is None else out_dtype.numpy)


def _batch_matmul_reference(a: np.ndarray, b: np.ndarray, transpose_a: bool = False,
                            transpose_b: bool = True, out_dtype: DType | None = None
                            ) -> np.ndarray:
    return _matmul_reference(a, b, transpose_a, transpose_b, out_dtype)


@define_op("nn.matmul", attrs=MatmulAttrs, relation=_matmul_relation,
           pattern=OpPattern.OUT_FUSABLE, level=1, traits=MATMUL)
def matmul(a: te.Tensor, b: te.Tensor, attrs: MatmulAttrs) -> te.Tensor:
    """out[…, m, n] = sum over k of a[…, m, k] * b[…, k, n]

    Either matrix may be stored transposed. Leading axes broadcast, and vectors are rows on the left
    and columns on the right, as in NumPy.
    """
    return topi_dense.matmul(a, b, transpose_a=attrs.transpose_a, transpose_b=attrs.transpose_b,
                             out_dtype=attrs.out_dtype or a.dtype)


matmul.spec(_matmul_reference, op_case((3, 5), (5, 4)), op_case((5, 3), (5, 4), transpose_a=True),
            op_case((3, 5), (4, 5), transpose_b=True),
            op_case((5, 3), (4, 5), transpose_a=True, transpose_b=True), op_case((3, 0), (0, 2)),
            op_case((5,), (5,)), op_case((5,), (5, 4)), op_case((3, 5), (5,)),
            op_case((5,), (4, 5), transpose_b=True), op_case((5, 3), (5,), transpose_a=True),
            op_case((2, 3, 5), (5, 4)), op_case((2, 5, 3), (4, 5), transpose_a=True,
                                                transpose_b=True),
            op_case((3, 5), (2, 5, 4)), op_case((2, 3, 5), (5,)), op_case((5,), (2, 5, 4)),
            op_case((2, 3, 5), (2, 5, 4)), op_case((2, 1, 3, 5), (4, 5, 2)),
            op_case((1, 2, 5, 3), (3, 1, 4, 5), transpose_a=True, transpose_b=True),
            op_case((2, 0, 5), (2, 5, 4)), op_case((0, 3, 5), (1, 5, 4)),
            op_case((2, 3, 0), (0, 4)),
            op_case((2, 3, 5), (5, 4), dtypes="int32", low=-9, high=9),
            op_case((2, 3, 5), (2, 5, 4), dtypes=("uint8", "int8"), low=0, high=9,
                    out_dtype="int32"))


@matmul.decomposition
def _as_dense_or_batch_matmul(call: Call) -> Expr | None:
    """A matmul with vectors or stacks as ``nn.dense`` or ``nn.batch_matmul``.

    ``None`` for two matrices, and for unknown dimensions.
    """
    a_type, b_type = map(tensor_type, call.args)
    if a_type.ndim == b_type.ndim == _MATRIX or has_any((*a_type.shape, *b_type.shape)):
        return None
    attrs = attrs_of(call, MatmulAttrs)
    left, right = call.args
    a, b = a_type.shape, b_type.shape
    if len(a) == 1:
        left, a = get_op("expand_dims")(left, axis=0, num_newaxis=1), (1, *a)
    if len(b) == 1:
        right, b = get_op("expand_dims")(right, axis=1, num_newaxis=1), (*b, 1)
    if len(b) == _MATRIX and not attrs.transpose_a:  # one matrix for all rows
        weight = right if attrs.transpose_b else get_op("transpose")(right)
        result = get_op("nn.dense")(left, weight, out_dtype=attrs.out_dtype)
    else:
        result = _of_stacks(left, right, a, b, attrs)
    single = [-2] * (a_type.ndim == 1) + [-1] * (b_type.ndim == 1)
    return get_op("squeeze")(result, axis=tuple(single)) if single else result


matmul.expansion(_as_dense_or_batch_matmul)


@matmul.canonical_form
def _by_constant_rows(call: Call) -> Expr | None:
    """Two matrices, of which the second is constant, as ``nn.dense``."""
    attrs, (data, weight) = attrs_of(call, MatmulAttrs), call.args
    types = [known_type(x) for x in (data, weight, call)]
    if attrs.transpose_a or not isinstance(weight, Constant) or not all(
            isinstance(t, TensorType) and t.ndim == _MATRIX for t in types):
        return None
    rows = weight if attrs.transpose_b else get_op("transpose")(weight, span=weight.span)
    return get_op("nn.dense")(data, rows, units=types[2].shape[-1],  # type: ignore[no-any-return]
                              out_dtype=attrs.out_dtype, span=call.span)


def _of_stacks(left: Expr, right: Expr, a: Shape, b: Shape, attrs: MatmulAttrs) -> Expr:
    """A matmul of rank 2 or more by ``nn.batch_matmul``; ``a`` and ``b`` are the shapes."""
    batch = _broadcast(a[:-2], b[:-2])
    rows, columns = a[-1 if attrs.transpose_a else -2], b[-2 if attrs.transpose_b else -1]
    result = get_op("nn.batch_matmul")(
        _stacked(left, a, batch), _stacked(right, b, batch), transpose_a=attrs.transpose_a,
        transpose_b=attrs.transpose_b, out_dtype=attrs.out_dtype)
    return result if len(batch) == 1 else _reshaped(result, (*batch, rows, columns))


def _broadcast(a: Shape, b: Shape) -> Shape:
    """The shape that two shapes, which the type relation has checked, broadcast to."""
    rank = max(len(a), len(b))
    padded = [(1,) * (rank - len(s)) + s for s in (a, b)]
    return tuple(y if x == 1 else x for x, y in zip(*padded, strict=True))


def _stacked(x: Expr, shape: Shape, batch: Shape) -> Expr:
    """``x`` with one leading axis, of size 1 for a single matrix, which broadcasts."""
    if dim_product(shape[:-2]) == 1:
        return _reshaped(x, (1, *shape[-2:]))
    if shape[:-2] != batch:
        x = get_op("broadcast_to")(x, shape=(*batch, *shape[-2:]))
    if len(batch) == 1:
        return x
    return _reshaped(x, (dim_product(batch), *shape[-2:]))


def _reshaped(x: Expr, shape: Shape) -> Expr:
    return get_op("reshape")(x, newshape=shape, allowzero=True)


@matmul.gradient
@in_result_dtype
def _matmul_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    a, b = call.args
    if any(tensor_type(x).ndim != _MATRIX for x in (a, b)):
        raise PassError("the gradient of nn.matmul with stacks or vectors needs fixed sizes",
                        where=call.span, got=f"{tensor_type(a)} and {tensor_type(b)}",
                        help="give all sizes, or write it with reshape and nn.batch_matmul")
    attrs = attrs_of(call, MatmulAttrs)
    swap_a, swap_b = attrs.transpose_a, attrs.transpose_b
    da = (matmul(b, dy, transpose_a=swap_b, transpose_b=True) if swap_a
          else matmul(dy, b, transpose_b=not swap_b))
    db = (matmul(dy, a, transpose_a=True, transpose_b=swap_a) if swap_b
          else matmul(a, dy, transpose_a=not swap_a))
    return [da, db]


@define_op("nn.batch_matmul", attrs=BatchMatmulAttrs, relation=_batch_matmul_relation,
           pattern=OpPattern.OUT_FUSABLE, level=10, traits=MATMUL)
def batch_matmul(a: te.Tensor, b: te.Tensor, attrs: BatchMatmulAttrs) -> te.Tensor:
    """out[i, m, n] = sum over k of a[i, m, k] * b[i, k, n]; a stack of one matrix broadcasts."""
    return topi_dense.matmul(a, b, transpose_a=attrs.transpose_a, transpose_b=attrs.transpose_b,
                             out_dtype=attrs.out_dtype or a.dtype)


batch_matmul.spec(_batch_matmul_reference, op_case((2, 3, 5), (2, 4, 5)),
                  op_case((2, 3, 5), (2, 5, 4), transpose_b=False),
                  op_case((1, 5, 3), (2, 5, 4), transpose_a=True, transpose_b=False),
                  op_case((3, 2, 4), (1, 5, 4)))


@batch_matmul.gradient
@in_result_dtype
def _batch_matmul_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    attrs = attrs_of(call, BatchMatmulAttrs)
    a, b = call.args
    swap_a, swap_b = attrs.transpose_a, attrs.transpose_b
    bmm = op.nn.batch_matmul
    da = (bmm(b, dy, transpose_a=swap_b, transpose_b=True) if swap_a
          else bmm(dy, b, transpose_b=not swap_b))
    db = (bmm(dy, a, transpose_a=True, transpose_b=swap_a) if swap_b
          else bmm(a, dy, transpose_a=not swap_a, transpose_b=False))
    batch = tensor_type(call).shape[0]
    return [_one_batch(g, x, batch) for g, x in ((da, a), (db, b))]


def _one_batch(grad: Expr, x: Expr, batch: Dim) -> Expr:
    """The gradient of an operand of batch size 1, summed over the ``batch`` it was broadcast to."""
    type_ = tensor_type(x)
    if type_.shape[0] == batch:
        return grad
    source = TensorType((batch, *type_.shape[1:]), type_.dtype)
    return sum_to(grad, source, type_)


def matmul_each(
    a: Expr, b: Expr, examples: Sequence[Expr], is_batched: Sequence[bool], attrs: Any
) -> Expr:
    """``nn.matmul`` of operands of which at least one has a batch in front.

    A matrix that all examples share stays one: the rows of all examples are one operand of a GEMM.
    """
    ranks = [tensor_type(e).ndim for e in examples]
    batch_a, batch_b = is_batched
    swap_a, swap_b = attrs.transpose_a, attrs.transpose_b
    as_row, as_column = ranks[0] == 1 and batch_a, ranks[1] == 1 and batch_b
    if as_row and not batch_b and ranks[1] <= _MATRIX:
        return matmul(a, b, transpose_b=swap_b, out_dtype=attrs.out_dtype)
    if as_row:
        a = get_op("expand_dims")(a, axis=1)
    if as_column:
        b = get_op("expand_dims")(b, axis=2)
    ranks = [max(r, _MATRIX) if has_batch else r
             for r, has_batch in zip(ranks, is_batched, strict=True)]
    stacks = max(ranks)
    a = _with_stacks(a, stacks - ranks[0]) if batch_a else a
    b = _with_stacks(b, stacks - ranks[1]) if batch_b else b
    result = matmul(a, b, transpose_a=swap_a, transpose_b=swap_b, out_dtype=attrs.out_dtype)
    if not (as_row or as_column):
        return result
    # An operand that is a shared vector has removed its axis already.
    single = [-2 if ranks[1] >= _MATRIX else -1] * as_row + [-1] * as_column
    return get_op("squeeze")(result, axis=tuple(single))


def _with_stacks(x: Expr, count: int) -> Expr:
    return get_op("expand_dims")(x, axis=1, num_newaxis=count) if count > 0 else x


@matmul.batching
@batch_matmul.batching
def _matmul_rule(
    call: Call, args: Sequence[Expr], is_batched: Sequence[bool], _size: Dim
) -> Expr:
    return matmul_each(args[0], args[1], call.args, is_batched, call.attrs)

matmul.refer(integer_form="weft.op.qnn.integer_forms:matmul",
             weight_use="weft.op.nn.constant_weights:of_matmul")
batch_matmul.refer(integer_form="weft.op.qnn.integer_forms:batch_matmul")
