"""The te definitions of fused and decode attention: hand-written loops over whole operands."""

from __future__ import annotations

from collections.abc import Sequence

from weft import te
from weft.ir.dtype import float32
from weft.op.nn.attention import AttentionAttrs
from weft.strategy.common.attention import SourceOf
from weft.strategy.cpu.attention.backward_loops import BackwardLoops
from weft.strategy.cpu.attention.cost import AttentionShape, TilePlan
from weft.strategy.cpu.attention.decode_loops import DecodeLoops
from weft.strategy.cpu.attention.fused_loops import FusedLoops
from weft.strategy.cpu.attention.small_gemm import SmallGemm
from weft.strategy.cpu.attention.streamed_loops import StreamedLoops
from weft.target import CpuTarget
from weft.te.tensor import ExternBody
from weft.tir.expr import const, select


def fused_attention(
    q: te.Tensor, k: te.Tensor, v: te.Tensor, *rest: te.Tensor | AttentionAttrs, plan: TilePlan,
) -> te.Tensor:
    """Tiles of queries by blocks of keys; keys and values are converted to float32 first.

    ``rest`` is the mask, if any, and the attributes. The result has the shape of ``q`` with the
    last axis of ``v``.
    """
    attrs, masks, hides = _split_arguments(rest)
    loops = FusedLoops(plan, attrs, hides)
    return _extern((q, _to_float32(k), _to_float32(v), *masks), loops, plan.shape)


def decode_attention(
    q: te.Tensor, k: te.Tensor, v: te.Tensor, *rest: te.Tensor | AttentionAttrs,
    shape: AttentionShape, lanes: int,
) -> te.Tensor:
    """Few queries; all keys and values are read once, in their own dtype."""
    attrs, masks, hides = _split_arguments(rest)
    return _extern((q, k, v, *masks), DecodeLoops(shape, attrs, lanes, hides), shape)


def streamed_loops(source: SourceOf, *, target: CpuTarget) -> StreamedLoops:
    """The loops for a target: the values of a block fill two thirds of L1."""
    return StreamedLoops(target.lanes("float32"), target.l1_bytes * 2 // 3, source)


def blocked_backward(
    dy: te.Tensor, y: te.Tensor, q: te.Tensor, k: te.Tensor, v: te.Tensor,
    *rest: te.Tensor | AttentionAttrs, offset: int | None, gemm: SmallGemm,
) -> tuple[te.Tensor, ...]:
    """The gradients of ``q``, ``k`` and ``v`` in blocks; ``offset`` as in ``BackwardLoops``."""
    attrs = next(x for x in rest if isinstance(x, AttentionAttrs))
    masks = [x if x.dtype.is_bool else _to_float32(x) for x in rest if isinstance(x, te.Tensor)]
    return te.extern([q.shape, k.shape, v.shape], (dy, y, q, k, v, *masks),
                     BackwardLoops(attrs, offset, gemm), [float32] * 3, "attention_backward")


def _split_arguments(
    rest: Sequence[te.Tensor | AttentionAttrs],
) -> tuple[AttentionAttrs, list[te.Tensor], bool]:
    """The attributes; the mask as numbers, if any; whether the mask hides instead of adding."""
    attrs = next(x for x in rest if isinstance(x, AttentionAttrs))
    masks = [x for x in rest if isinstance(x, te.Tensor)]
    return attrs, [_mask_numbers(x) for x in masks], any(x.dtype.is_bool for x in masks)


def _extern(inputs: Sequence[te.Tensor], loops: ExternBody, shape: AttentionShape) -> te.Tensor:
    q, _, v, *_ = inputs
    result = (*q.shape[:-1], v.shape[-1])
    return te.extern([result], inputs, loops, [q.dtype], "attention", flops=shape.flops)[0]


def _to_float32(x: te.Tensor) -> te.Tensor:
    if x.dtype is float32:
        return x
    return te.compute(x.shape, lambda *i: x[i].astype(float32), name="wide")


def _mask_numbers(mask: te.Tensor) -> te.Tensor:
    """An additive mask as float32; a boolean one as -1 for hidden and 0 for visible keys."""
    if not mask.dtype.is_bool:
        return _to_float32(mask)
    visible, hidden = const(0, float32), const(-1, float32)
    return te.compute(mask.shape, lambda *i: select(mask[i], visible, hidden), name="hidden")
