"""Distances and similarities of rows."""

from __future__ import annotations

import numpy as np

from weft.eager.emitter import TENSORS, call
from weft.eager.signature import checked
from weft.eager.tensor import Tensor
from weft.nn.functional.sizes import axis_of, promoted
from weft.op.composites import losses, norms
from weft.support.errors import InvalidInputError


@checked
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """x₁·x₂ / (max(|x₁|, eps) max(|x₂|, eps)) along ``dim`` of the operands, which broadcast."""
    x, y = promoted(x1, x2)
    if not x.dtype.is_floating_point:
        raise InvalidInputError("cosine_similarity of tensors that are not floating point",
                                got=repr(x.dtype), help="convert them with .float()")
    common = np.broadcast_shapes(tuple(x.shape), tuple(y.shape))
    x, y = (t.expand(common) if tuple(t.shape) != common else t for t in (x, y))
    axis = axis_of(dim, len(common))
    if common:
        return norms.cosine_similarity(TENSORS, x, y, axis, eps)
    line = norms.cosine_similarity(TENSORS, x.reshape((1,)), y.reshape((1,)), 0, eps)
    return line.reshape(())


@checked
def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """The p-norm of ``x1 - x2 + eps`` along the last axis."""
    x, y = promoted(x1, x2, to_float=True)
    if x.dtype.is_complex:
        return norms.p_norm(TENSORS, (x - y + eps).abs(), p, (-1,), keepdim)
    return losses.pairwise_distance(TENSORS, x, y, p, eps, keepdim)


@checked
def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """The p-norms of the differences of all pairs of rows i < j, in row-major order."""
    if input.ndim != 2:
        raise InvalidInputError("pdist takes a matrix", got=f"shape {tuple(input.shape)}")
    if p < 0:
        raise InvalidInputError("pdist: p is negative", got=p)
    first, second = np.triu_indices(input.shape[0], 1)
    gaps = call("take", input, first, axis=0) - call("take", input, second, axis=0)
    if not gaps.numel():
        return call("sum", gaps, axis=(1,))
    return norms.p_norm(TENSORS, gaps.abs() if gaps.dtype.is_complex else gaps, p, (1,))
