"""Which attention algorithms can run a call, and the shape that their estimates need."""

from __future__ import annotations

import math

from weft.ir import Call, TensorType, is_static, typical_size
from weft.strategy.common.attention import causal_offset, has_fixed_groups, operand_types
from weft.strategy.cpu.attention.cost import AttentionShape
from weft.support.errors import InternalError
from weft.target import CpuTarget

SCORES_IN_L2 = 4  # the scores of one head in decode attention may fill this many times L2
MAX_DECODE_ROWS = 8  # queries that share keys; more of them fill the lanes of a tile


def why_only_generic(call: Call) -> str | None:
    """Why neither the kernels nor the rewrite to matmuls apply; ``None`` if they do."""
    types = [arg.checked_type for arg in call.args]
    if not all(isinstance(t, TensorType) and is_static(t) for t in types):
        return "dynamic shapes"
    tensors = [t for t in types[:3] if isinstance(t, TensorType)]
    bits = tensors[0].dtype.bits
    if bits < 16 or bits > 32:
        return f"scores are computed in float32, the dtype is {tensors[0].dtype}"
    if any(0 in t.concrete_shape for t in tensors):
        return "an operand is empty"
    return None


def why_not_streamed(call: Call) -> str | None:
    """Why streamed attention cannot run a call of any attention operator; ``None`` if it can.

    It serves symbolic sizes and caches; other kernels are faster for fixed sizes.
    """
    types = operand_types(call)
    if isinstance(types, str):
        return types
    for tensor in types:
        if not 16 <= tensor.dtype.bits <= 32:
            return f"scores are computed in float32, the dtype is {tensor.dtype}"
        depth = tensor.shape[-1]
        if not isinstance(depth, int) or depth == 0:
            return "the last sizes must be fixed and positive"
    if not has_fixed_groups(*types[:2]):
        return "the number of heads that share keys is not fixed"
    return None


def typical_shape(call: Call) -> AttentionShape:
    """The sizes that estimates assume for a call to which ``why_not_streamed`` does not object."""
    q, k, v = (arg.checked_type for arg in call.args[:3])
    if not (isinstance(q, TensorType) and isinstance(k, TensorType) and isinstance(v, TensorType)):
        raise InternalError("attention of operands that are not tensors", where=call.span)
    sizes = [[max(typical_size(dim), 1) for dim in t.shape] for t in (q, k, v)]
    *heads, queries, depth = sizes[0]
    group = heads[-1] // sizes[1][-3] if heads else 1
    return AttentionShape(math.prod(heads), queries, sizes[1][-2], depth, sizes[2][-1],
                          group=max(group, 1))


def attention_shape(call: Call) -> AttentionShape:
    """The sizes of a call to which ``why_only_generic`` finds no objection."""
    q, k, v = (arg.checked_type for arg in call.args[:3])
    if not (isinstance(q, TensorType) and isinstance(k, TensorType) and isinstance(v, TensorType)):
        raise InternalError("attention of operands that are not tensors", where=call.span)
    *heads, queries, depth = q.concrete_shape
    group = heads[-1] // k.concrete_shape[-3] if heads else 1
    return AttentionShape(math.prod(heads), queries, k.concrete_shape[-2], depth,
                          v.concrete_shape[-1], causal_offset(call), group)


def underfills_lanes(shape: AttentionShape, target: CpuTarget) -> bool:
    """Whether a head has too few queries for a vector, but a group of heads fills a tile."""
    return (shape.queries < target.lanes("float32")
            and shape.group * shape.queries > MAX_DECODE_ROWS)


def why_not_decode(shape: AttentionShape, target: CpuTarget) -> str | None:
    """Why decode attention does not apply; ``None`` if it does."""
    rows = shape.group * shape.queries
    if rows > MAX_DECODE_ROWS:
        return f"{rows} queries share keys: more than {MAX_DECODE_ROWS} fill tiles"
    most = SCORES_IN_L2 * target.l2_bytes
    if 4 * rows * shape.keys > most:
        return f"the scores of one head exceed {most >> 10} KiB"
    return None


def why_not_unfused(shape: AttentionShape, *, is_float32: bool, target: CpuTarget) -> str | None:
    """Why matmuls around a softmax are out of the question; ``None`` if they are not."""
    if not is_float32:
        return "the scores would be rounded to a narrow float"
    if shape.queries <= target.lanes("float32"):
        return "matmuls with so few rows underfill their register tiles"
    return None
