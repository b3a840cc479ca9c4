"""Attention as one operator: softmax(scale * q kT, masked) v."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import te
from weft.ir import Attrs, DType, RelationContext, TensorType, attr, float32, infer_expr, int64
from weft.ir.expr import Call, Constant, Expr, const
from weft.ir.op import OpPattern, define_op, get_op, op_case
from weft.ir.shape import AnyDim, Dim, dim_mul, dim_product, dims_equal
from weft.ir.typing.relations import broadcast_dims
from weft.op.batching import aligned, all_repeated, leading, with_attrs
from weft.op.gradients import attrs_of, numbered, tensor_type
from weft.support.dataclass import dataclass
from weft.support.errors import InternalError
from weft.topi.nn import attention as topi_attention

# A score this low acts as minus infinity beside any visible score: its exponential is 0.
AS_GOOD_AS_INFINITE = -1e30
UNDEFINED = ("nan", "zero_if_hidden", "zero")


@dataclass(frozen=True, kw_only=True)
class AttentionAttrs(Attrs):
    scale: float = attr(1.0, "factor of the scores")
    causal: bool = attr(False, "query l sees only the keys up to l + offset")
    offset: int = attr(0, "number of keys that the first query sees, minus one, if causal")
    fill: float | None = attr(None, "score of hidden keys; None for minus infinity")
    undefined: str = attr(
        "nan", 'queries without a softmax: "nan"; "zero_if_hidden" gives zeros where all scores '
        'are minus infinity, "zero" in any case', check=lambda how: how in UNDEFINED,
        expected=", ".join(UNDEFINED))

    @property
    def unseen(self) -> float:
        return -math.inf if self.fill is None else self.fill

    @property
    def last_key(self) -> int | None:
        """The last key that the first query sees; ``None`` for no limit."""
        return self.offset if self.causal else None


def _attention_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(3)
    if types is None:
        return False
    q, k, v = types
    ctx.attrs_as(AttentionAttrs)
    for arg, type_ in enumerate(types):
        ctx.expect_float(arg, type_)
        ctx.expect_same_dtype(arg, type_, q.dtype)
    check_operands(ctx, (q, k, v))
    ctx.output(TensorType((*q.shape[:-1], v.shape[-1]), q.dtype))
    return True


def check_operands(
    ctx: RelationContext, types: tuple[TensorType, TensorType, TensorType], first: int = 0
) -> None:
    """Check queries, keys and values, the arguments from ``first`` on, against each other."""
    q, k, v = types
    ctx.expect_min_rank(first, q, 2)
    for arg, type_ in ((first + 1, k), (first + 2, v)):
        ctx.expect_rank(arg, type_, q.ndim)
        for axis in range(q.ndim - 3):
            ctx.expect_dim(arg, axis, type_.shape[axis], q.shape[axis],
                           "the batches do not match", why=" (that of the query)")
    _check_heads(ctx, q, k, v, first)
    ctx.expect_dim(first + 1, q.ndim - 1, k.shape[-1], q.shape[-1], "the inner sizes do not match",
                   why=" (the last axis of the query)")
    ctx.expect_dim(first + 2, q.ndim - 2, v.shape[-2], k.shape[-2],
                   "the numbers of keys and values do not match", why=" (the keys)")


def _check_heads(ctx: RelationContext, q: TensorType, k: TensorType, v: TensorType,
                 first: int) -> None:
    if q.ndim < 3:
        return
    heads, shared = q.shape[-3], k.shape[-3]
    ctx.expect_dim(first + 2, q.ndim - 3, v.shape[-3], shared, "the heads do not match",
                   why=" (those of the keys)")
    known = isinstance(heads, int) and isinstance(shared, int)
    if known and (heads != shared and (not shared or heads % shared)):
        ctx.fail("the heads do not divide into groups", arg=first + 1, axis=q.ndim - 3,
                 expected=f"a divisor of {heads} (the heads of the query)", got=shared)


def _masked_relation(ctx: RelationContext) -> bool:
    mask, q, k = ctx.tensor(3), ctx.tensor(0), ctx.tensor(1)
    if mask is None or not _attention_relation(ctx) or q is None or k is None:
        return False
    if not mask.dtype.is_bool:
        ctx.expect_float(3, mask)
    scores = (*q.shape[:-1], k.shape[-2])
    if mask.ndim > len(scores):
        ctx.fail("the mask has too many dimensions", arg=3,
                 expected=f"rank {len(scores)} or less", got=mask.ndim)
    for axis, (size, wanted) in enumerate(
            zip(mask.shape, scores[len(scores) - mask.ndim:], strict=True)):
        joint = broadcast_dims(size, wanted)
        if joint is None or (isinstance(size, int) and size != 1 and wanted == 1):
            ctx.fail("the mask does not fit the scores", arg=3, axis=axis,
                     expected=f"{wanted} or 1", got=size)
    return True


def _compute(q: te.Tensor, k: te.Tensor, v: te.Tensor, mask: te.Tensor | None,
             attrs: AttentionAttrs) -> te.Tensor:
    return topi_attention.attention(
        q, k, v, mask, scale=attrs.scale, offset=attrs.last_key, fill=attrs.unseen,
        undefined=attrs.undefined)


@define_op("nn.attention", attrs=AttentionAttrs, relation=_attention_relation,
           pattern=OpPattern.OPAQUE, level=10)
def attention(q: te.Tensor, k: te.Tensor, v: te.Tensor, attrs: AttentionAttrs) -> te.Tensor:
    """softmax(scale * q kT) v over the last two axes.

    ``q``: (…, heads, L, D), ``k``: (…, shared heads, S, D), ``v``: (…, shared heads, S, E);
    the heads of ``q`` divide into groups, each of which shares a head of ``k`` and ``v``.
    """
    return _compute(q, k, v, None, attrs)


@define_op("nn.masked_attention", attrs=AttentionAttrs, relation=_masked_relation,
           pattern=OpPattern.OPAQUE, level=10)
def masked_attention(q: te.Tensor, k: te.Tensor, v: te.Tensor, mask: te.Tensor,
                     attrs: AttentionAttrs) -> te.Tensor:
    """``nn.attention`` with a mask that broadcasts to the scores, (…, heads, L, S).

    A boolean mask is true for visible keys; numbers are added to the scores.
    """
    return _compute(q, k, v, mask, attrs)


def reference_weights(
    q: np.ndarray, k: np.ndarray, mask: np.ndarray | None = None, *, scale: float = 1.0,
    causal: bool = False, offset: int = 0, fill: float | None = None, undefined: str = "nan",
) -> tuple[np.ndarray, np.ndarray]:
    """The weights in float64, (…, heads, L, S), and which scores belong to visible keys."""
    q, k = q.astype(np.float64), repeated_heads(k.astype(np.float64), q)
    with np.errstate(invalid="ignore"):
        scores = scale * (q @ k.swapaxes(-1, -2))
    visible = np.ones(scores.shape, bool)
    if mask is not None and mask.dtype == bool:
        visible &= mask
    elif mask is not None:
        scores = scores + mask.astype(np.float64)
    if causal:
        rows, keys = scores.shape[-2:]
        visible &= np.tri(rows, keys, offset, dtype=bool)
    scores = np.where(visible, scores, -np.inf if fill is None else fill)
    top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    with np.errstate(invalid="ignore"):
        powers = np.exp(scores - top)
        weights = powers / powers.sum(axis=-1, keepdims=True)
    if undefined != "nan":
        weights = np.where(top == -np.inf if undefined != "zero" else np.isnan(weights), 0.0,
                           weights)
    return weights, visible


def repeated_heads(x: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Keys or values, repeated for each query head that shares them."""
    return np.repeat(x, q.shape[-3] // max(x.shape[-3], 1), axis=-3) if q.ndim > 2 else x


def _reference(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | None = None, **values: Any,
) -> np.ndarray:
    weights, _ = reference_weights(q, k, mask, **values)
    return (weights @ repeated_heads(v.astype(np.float64), q)).astype(q.dtype)


@dataclass(frozen=True, slots=True)
class ScoreParts:
    """The weights of attention, (…, heads, L, S), and the sizes of its batched matmuls.

    ``stack`` products of ``together`` rows (the queries of all heads that share keys) with ``keys``
    columns. ``visible`` is true for visible keys, and broadcasts to ``shape``.
    """

    weights: Expr
    visible: Expr | None
    shape: tuple[Dim, ...]
    stack: Dim
    together: Dim
    keys: Dim


def score_parts(
    q: Expr, k: Expr, mask: Expr | None, attrs: AttentionAttrs
) -> ScoreParts | None:
    """The weights in operators; ``None`` for sizes that are not known.

    Of 16-bit floats, scores and weights are computed in float32.
    """
    types = [tensor_type(x) for x in (q, k)]
    if any(isinstance(dim, AnyDim) for type_ in types for dim in type_.shape):
        return None
    (*lead, rows, depth), (*shared, keys, _) = (type_.shape for type_ in types)
    group, dtype = group_of(lead, shared), types[0].dtype
    if group is None:
        return None
    wide = dtype if dtype.bits > 16 else float32
    stack, together = dim_product(tuple(shared)), dim_mul(group, rows)
    q = get_op("multiply")(_reshape(_cast(q, dtype, wide), stack, together, depth),
                           const(attrs.scale, wide))
    scores = get_op("nn.batch_matmul")(q, _reshape(_cast(k, dtype, wide), stack, keys, depth))
    shape = (*lead, rows, keys)
    visible = _visible(mask, attrs, (rows, keys))
    scores = _masked(_reshape(scores, *shape), mask, attrs, wide, visible)
    weights = _defined(scores, get_op("nn.softmax")(scores), mask, attrs, wide)
    return ScoreParts(weights, visible, shape, stack, together, keys)


def expand_attention(call: Call) -> Expr | None:
    """Two batched matmuls around a softmax; the heads of a group become rows of one matmul."""
    attrs, (q, k, v, *masks) = attrs_of(call, AttentionAttrs), call.args
    if attrs.causal and not all(isinstance(tensor_type(x).shape[-2], int) for x in (q, k)):
        return None  # streamed attention skips what the mask hides
    parts = score_parts(q, k, masks[0] if masks else None, attrs)
    if parts is None or any(isinstance(dim, AnyDim) for dim in tensor_type(v).shape):
        return None
    dtype, width = tensor_type(q).dtype, tensor_type(v).shape[-1]
    wide = dtype if dtype.bits > 16 else float32
    # Only the result is rounded.
    result = get_op("nn.batch_matmul")(
        _reshape(parts.weights, parts.stack, parts.together, parts.keys),
        _reshape(_cast(v, dtype, wide), parts.stack, parts.keys, width), transpose_b=False)
    return _cast(_reshape(result, *parts.shape[:-1], width), wide, dtype)


def group_of(lead: Sequence[Dim], shared: Sequence[Dim]) -> int | None:
    """The query heads that share keys; ``None`` if that is not a fixed number."""
    if not lead or dims_equal(lead[-1], shared[-1]) is True:
        return 1
    heads, fewer = lead[-1], shared[-1]
    return heads // max(fewer, 1) if isinstance(heads, int) and isinstance(fewer, int) else None


def _reshape(x: Expr, *shape: Dim) -> Expr:
    return get_op("reshape")(x, newshape=shape, allowzero=True)


def _cast(x: Expr, dtype: DType, wanted: DType) -> Expr:
    return x if dtype == wanted else get_op("cast")(x, dtype=wanted)


def _visible(
    mask: Expr | None, attrs: AttentionAttrs, size: tuple[Dim, Dim]
) -> Expr | None:
    """True for visible keys; ``None`` if all are."""
    found = mask if mask is not None and tensor_type(mask).dtype.is_bool else None
    rows, keys = size
    if attrs.causal:
        seen = _seen(rows, keys, attrs.offset)
        found = seen if found is None else get_op("logical_and")(found, seen)
    return found


def _seen(rows: Dim, keys: Dim, offset: int) -> Expr:
    """The keys (rows, keys) that a causal mask leaves visible."""
    if isinstance(rows, int) and isinstance(keys, int):
        return Constant(np.tri(rows, keys, offset, dtype=bool))
    if isinstance(rows, AnyDim) or isinstance(keys, AnyDim):
        raise InternalError("a causal mask of unknown sizes", got=f"({rows}, {keys})")
    last = get_op("add")(numbered((rows, 1)), const(offset, int64))
    return infer_expr(get_op("less_equal")(numbered((1, keys)), last), trust=True)


def _masked(scores: Expr, mask: Expr | None, attrs: AttentionAttrs, dtype: DType,
            visible: Expr | None) -> Expr:
    if mask is not None and not tensor_type(mask).dtype.is_bool:
        scores = get_op("add")(scores, _cast(mask, tensor_type(mask).dtype, dtype))
    if visible is None:
        return scores
    return get_op("where")(visible, scores, const(attrs.unseen, dtype))


def _defined(scores: Expr, weights: Expr, mask: Expr | None, attrs: AttentionAttrs,
             dtype: DType) -> Expr:
    """Zero weights for queries without a softmax, as the attributes demand."""
    zero, sees_always = const(0.0, dtype), not attrs.causal or attrs.offset >= 0
    if attrs.undefined == "zero":
        return get_op("where")(get_op("isnan")(weights), zero, weights)
    # Without a mask, each query sees at least the first key, so no row is hidden as a whole.
    if attrs.undefined == "nan" or (mask is None and sees_always):
        return weights
    top = get_op("max")(scores, axis=(-1,), keepdims=True)
    return get_op("where")(get_op("greater")(top, const(-math.inf, dtype)), weights, zero)


_HALF: dict[str, Any] = {"dtypes": "float16"}
attention.spec(
    _reference,
    op_case((2, 5, 4), (2, 7, 4), (2, 7, 3), scale=0.5),
    op_case((5, 4), (7, 4), (7, 3)),
    op_case((1, 4, 5, 8), (1, 2, 6, 8), (1, 2, 6, 8), scale=0.35),
    op_case((2, 6, 4), (2, 6, 4), (2, 6, 4), causal=True),
    op_case((2, 3, 4), (2, 6, 4), (2, 6, 5), causal=True, offset=3),
    op_case((2, 3, 4), (2, 6, 4), (2, 6, 5), causal=True, offset=-1, undefined="zero_if_hidden"),
    op_case((2, 1, 16), (2, 33, 16), (2, 33, 16)),
    op_case((2, 5, 8), (2, 7, 8), (2, 7, 8), **_HALF),
    op_case((2, 0, 4), (2, 3, 4), (2, 3, 4)),
)
_SEEN = np.array([[1, 1, 0, 1, 0], [1, 0, 0, 1, 1], [0, 1, 1, 1, 1]], bool)
_SOME = np.array([[True, True, False, False, False], [False] * 5, [True] * 5])
_ADDED = np.where(_SEEN, np.linspace(-1, 1, 15).reshape(3, 5), -np.inf).astype(np.float32)
masked_attention.spec(
    _reference,
    op_case((2, 3, 4), (2, 5, 4), (2, 5, 3), _SEEN, scale=0.5),
    op_case((2, 3, 4), (2, 5, 4), (2, 5, 3), _ADDED),
    op_case((2, 3, 4), (2, 5, 4), (2, 5, 3), _SOME, undefined="zero"),
    op_case((2, 3, 4), (2, 5, 4), (2, 5, 3), _SOME, fill=-1e4),
    op_case((2, 4, 3, 4), (2, 2, 5, 4), (2, 2, 5, 3), np.arange(20).reshape(4, 1, 5) % 3 > 0),
    op_case((2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 3),
            np.linspace(-3, 3, 10, dtype=np.float32).reshape(2, 1, 1, 5)),
    op_case((2, 3, 4), (2, 5, 4), (2, 5, 3), (5,), causal=True, offset=2),
)


_BACKWARD = "weft.op.nn.attention_backward"
for _record in (attention, masked_attention):
    _record.refer(gradient=f"{_BACKWARD}:attention_gradient", jvp=f"{_BACKWARD}:attention_tangent")
attention.batching(leading)


@masked_attention.batching
def _masked_each(
    call: Call, args: Sequence[Expr], is_batched: Sequence[bool], size: Dim
) -> Expr:
    """The mask broadcasts to the scores, also without a batch."""
    qkv = all_repeated(call, args, (*is_batched[:3], True), size)[:3]
    rank = tensor_type(call.args[0]).ndim
    mask = aligned(args[3], call.args[3], rank) if is_batched[3] else args[3]
    return with_attrs(call, (*qkv, mask))
