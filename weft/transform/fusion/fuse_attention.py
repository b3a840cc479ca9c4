"""Fuse attention that is written in basic operators into one operator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from weft import ir, op
from weft.support.dataclass import dataclass
from weft.transform.analysis.graph import known_type, op_name, rewrite_function, tensor_type_of
from weft.transform.fusion import attention_pattern

if TYPE_CHECKING:
    from weft.op.nn.attention import AttentionAttrs

OPERATORS = ("nn.attention", "nn.masked_attention")


@ir.register_pass
@dataclass(frozen=True)
class FuseAttention(ir.FunctionPass):
    """Replace two matmuls with a softmax between them by ``nn.attention``.

    Scale, masks, and the guards that exporters put after the softmax become attributes or the
    mask; a constant causal mask becomes ``causal``; keys and values that are repeated for a group
    of heads are used unrepeated. The program stays as it is if scores or weights have other uses.

    def @main(%q: Tensor[(2, 5, 4), float32], %k: Tensor[(2, 7, 4), float32],
              %v: Tensor[(2, 7, 3), float32]) {
      %0 = nn.batch_matmul(%q, %k);
      nn.batch_matmul(nn.softmax(multiply(%0, 0.5f)), %v, transpose_b=False)
    }
    =>
    def @main(%q: Tensor[(2, 5, 4), float32], %k: Tensor[(2, 7, 4), float32],
              %v: Tensor[(2, 7, 3), float32]) {
      nn.attention(%q, %k, %v, scale=0.5)
    }
    """

    name: ClassVar[str] = "fuse_attention"
    opt_level: ClassVar[int] = 2
    seeks: ClassVar[ir.Seeks] = ir.Seeks(operators=(*attention_pattern.MATMULS, *OPERATORS))

    def run(self, fn: ir.Function, ctx: ir.PassContext) -> ir.Function:  # noqa: ARG002
        return rewrite_function(fn, _Fusion(ir.count_uses(fn)).step)


@dataclass(frozen=True, slots=True)
class _Fusion:
    """``uses`` counts uses in the original program; ``origin`` maps rewritten nodes to it."""

    uses: dict[ir.Expr, int]
    origin: dict[ir.Expr, ir.Expr] = field(default_factory=dict)

    def step(self, original: ir.Expr, node: ir.Expr) -> ir.Expr:
        self.origin[node] = original
        if op_name(node) in OPERATORS and isinstance(node, ir.Call):
            return simplified(node)
        found = attention_pattern.find_attention(node)
        # The fused operator returns no intermediate values: for other uses, they would be computed
        # a second time.
        if found is None or not self._has_no_other_uses(found, original):
            return node
        written = _as_operator(found, node)
        return node if written is None else written

    def _has_no_other_uses(self, found: attention_pattern.AttentionMatch, root: ir.Expr) -> bool:
        """Whether only the result of the match is used elsewhere."""
        from weft.transform.external.merge_composite import is_closed

        calls = [self.origin[c] for c in found.calls if c in self.origin]
        return len(calls) == len(found.calls) and is_closed(root, calls, self.uses)


def _as_operator(found: attention_pattern.AttentionMatch, root: ir.Expr) -> ir.Expr | None:
    combined = _combined_mask(found.masks, found.rows, found.keys)
    if combined is None:
        return None
    attrs = op.nn.AttentionAttrs(scale=found.scale, undefined=found.undefined, fill=combined.fill,
                                 causal=combined.causal, offset=combined.offset)
    query = _reshaped(found.query, (*found.lead, found.rows, found.depth))
    key = _reshaped(found.key, (*found.lead, found.keys, found.depth))
    value = _reshaped(found.value, (*found.lead, found.keys, found.width))
    type_ = tensor_type_of(root)
    call = _call((query, key, value), combined.mask, attrs, root)
    shape = (*found.lead, found.rows, found.width)
    return _reshaped(call.with_type(ir.TensorType(shape, type_.dtype)), type_.shape)


def _call(
    operands: Sequence[ir.Expr], mask: ir.Expr | None, attrs: AttentionAttrs, like: ir.Expr
) -> ir.Call:
    key, value = _once_per_group(operands[1], operands[2])
    given = (operands[0], key, value)
    if mask is None:
        return ir.Call(ir.get_op("nn.attention"), given, attrs, span=like.span)
    return ir.Call(ir.get_op("nn.masked_attention"), (*given, mask), attrs, span=like.span)


def _reshaped(x: ir.Expr, shape: ir.Shape) -> ir.Expr:
    if attention_pattern.known_shape(x) == shape:
        return x
    # Without ``allowzero``, a size of 0 means the old size.
    made = op.reshape(x, newshape=shape, allowzero=0 in shape, span=x.span)
    dtype = getattr(known_type(x), "dtype", None)
    return made if dtype is None else made.with_type(ir.TensorType(shape, dtype))


def simplified(call: ir.Call) -> ir.Call:
    """The call with a constant mask as attributes, and without repeated heads."""
    attrs = call.attrs
    shapes = [attention_pattern.known_shape(x) for x in call.args[:2]]
    if not isinstance(attrs, op.nn.AttentionAttrs) or None in shapes:
        return call
    query, key = (s for s in shapes if s is not None)
    mask = call.args[3] if len(call.args) > 3 else None
    if mask is not None:
        combined = _combined_mask([_as_mask(mask, attrs)], query[-2], key[-2])
        if combined is not None and combined.mask is None and (
                not (combined.causal and attrs.causal)):
            mask = None
            if combined.causal:
                attrs = attrs.replace(causal=True, offset=combined.offset, fill=combined.fill)
    made = _call(call.args[:3], mask, attrs, call)
    same = len(made.args) == len(call.args) and all(
        a is b for a, b in zip(made.args, call.args, strict=True))
    return call if same else made


def _as_mask(mask: ir.Expr, attrs: AttentionAttrs) -> attention_pattern.Mask:
    type_ = known_type(mask)
    is_bool = isinstance(type_, ir.TensorType) and type_.dtype.is_bool
    return attention_pattern.Mask(mask, attrs.unseen if is_bool else None)


@dataclass(frozen=True, slots=True)
class _CombinedMask:
    """Masks combined into one, in terms of the operator's operands and attributes."""

    mask: ir.Expr | None = None
    causal: bool = False
    offset: int = 0
    fill: float | None = None


def _combined_mask(masks: Sequence[attention_pattern.Mask], rows: ir.Dim,
                   keys: ir.Dim) -> _CombinedMask | None:
    """``masks``, outermost first, as one mask and attributes; ``None`` if that is impossible.

    The operator applies the mask first and then hides the future, with one score for both.
    """
    combined = _CombinedMask()
    for mask in masks:
        visible = _visible(mask)
        if visible is not None and visible.all():
            continue
        past = None if visible is None else _past(visible, rows, keys)
        if combined.mask is not None or (
                combined.causal and mask.fill not in (None, _masked_score(combined))):
            return None
        fill = _hidden_score(mask)
        if past is not None and not combined.causal:
            combined = replace(combined, causal=True, offset=past, fill=fill)
        elif mask.fill is None:
            combined = replace(combined, mask=mask.expr)
        else:
            combined = replace(combined, mask=mask.expr, fill=fill)
    return combined


def _masked_score(combined: _CombinedMask) -> float:
    """The score of a key that ``combined`` masks out."""
    return -math.inf if combined.fill is None else combined.fill


def _hidden_score(mask: attention_pattern.Mask) -> float | None:
    """The attribute ``fill``: the score that replaces a hidden one, or that is added to it."""
    score = mask.fill
    if score is None and isinstance(mask.expr, ir.Constant):
        score = float(mask.expr.data.min())
    return None if score is None or score == -math.inf else score


def _visible(mask: attention_pattern.Mask) -> np.ndarray | None:
    """Where a constant mask leaves keys visible; ``None`` for other masks.

    Additive masks hide a key where they are small enough to act as minus infinity.
    """
    from weft.op.nn.attention import AS_GOOD_AS_INFINITE

    if not isinstance(mask.expr, ir.Constant):
        return None
    data = mask.expr.data
    if mask.fill is not None:
        return data
    hidden = data.min(initial=0.0)
    if not ((data == 0) | ((data == hidden) & (hidden <= AS_GOOD_AS_INFINITE))).all():
        return None
    return np.asarray(data == 0)


def _past(data: np.ndarray, rows: ir.Dim, keys: ir.Dim) -> int | None:
    """The offset of a causal mask: query i sees the keys up to number i + offset."""
    if data.shape[-2:] != (rows, keys) or not (isinstance(rows, int) and isinstance(keys, int)):
        return None
    # The first row gives the offset, and all rows must agree with it.
    offset = int(data.reshape(-1, keys)[0].sum()) - 1
    is_past = offset >= 0 and (data == np.tri(rows, keys, offset, dtype=bool)).all()
    return offset if is_past else None


def _once_per_group(key: ir.Expr, value: ir.Expr) -> tuple[ir.Expr, ir.Expr]:
    """Keys and values before their heads were repeated for the queries that share them."""
    keys, values = _repeated(key), _repeated(value)
    if keys is None or values is None or keys[1] != values[1]:
        return key, value
    return keys[0], values[0]


def _repeated(x: ir.Expr) -> tuple[ir.Expr, int] | None:
    """The heads before a repetition, and how often each is repeated in a row."""
    shape, inner = attention_pattern.known_shape(x), x
    while attention_pattern.keeps_matrices(inner) and isinstance(inner, ir.Call):
        inner = inner.args[0]
    if shape is None or len(shape) < 3 or not isinstance(inner, ir.Call):
        return None
    before = attention_pattern.known_shape(inner.args[0]) if inner.args else None
    after = attention_pattern.known_shape(inner)
    if before is None or after is None or len(before) < 3:
        return None
    if op_name(inner) == "broadcast_to" and len(before) == len(after):
        count = after[-3] if before == (*after[:-3], 1, *after[-2:]) else 1
    elif op_name(inner) == "repeat" and getattr(inner.attrs, "axis", None) in (
            -3, len(before) - 3):
        heads, repeated = before[-3], after[-3]
        if not isinstance(heads, int) or not isinstance(repeated, int):
            return None
        count = repeated // max(heads, 1)
    else:
        return None
    heads = shape[-3]
    if not isinstance(count, int) or not isinstance(heads, int) or count < 2 or heads % count:
        return None
    return _reshaped(inner.args[0], (*shape[:-3], heads // count, *shape[-2:])), count
