"""Embedding tables: embedding, embedding_bag."""

from __future__ import annotations

import numpy as np

from weft.eager.cell import node_of
from weft.eager.checks import require_classes
from weft.eager.emitter import TENSORS, call
from weft.eager.grad_mode import no_grad
from weft.eager.signature import checked
from weft.eager.tensor import Tensor
from weft.op.composites import norms
from weft.support.errors import InvalidInputError


@checked
def embedding(
    input: Tensor, weight: Tensor, padding_idx: int | None = None, max_norm: float | None = None,
    norm_type: float = 2.0, scale_grad_by_freq: bool = False,
    sparse: bool = False,  # noqa: ARG001 - torch's
) -> Tensor:
    """Rows of ``weight`` (entries, size) at the indices ``input`` (…): (…, size).

    The row ``padding_idx`` gets no gradient. ``max_norm`` first shortens the rows in ``weight``
    that are used. ``scale_grad_by_freq`` divides the gradient of a row by how often it is used.
    Gradients are dense: ``sparse`` is accepted and has no effect. Raises ``IndexRangeError`` for an
    index below 0 or not below the entries.
    """
    entries = weight.shape[0]
    if max_norm is not None:
        _shorten_rows(input, weight, max_norm, norm_type)
    rows = _rows(weight, input)
    if scale_grad_by_freq:
        share = 1.0 / call("take", _counts(input, entries, rows), input, axis=0)
        rows = _with_slope(rows, call("expand_dims", share, axis=input.ndim))
    if padding_idx is None:
        return rows
    if not -entries <= padding_idx < entries:
        raise InvalidInputError("embedding: padding_idx is out of range", got=padding_idx,
                                expected=f"{-entries} to {entries - 1}")
    is_padding = call("expand_dims", call("equal", input, padding_idx % entries), axis=input.ndim)
    return call("where", is_padding, rows.detach(), rows)


def _rows(weight: Tensor, indices: Tensor) -> Tensor:
    rows = call("take", weight, indices, axis=0)
    require_classes(node_of(rows), node_of(indices), weight.shape[0], what="an index")
    return rows


def _counts(indices: Tensor, entries: int, like: Tensor) -> Tensor:
    """How often each entry occurs."""
    flat = indices.reshape((-1,))
    zeros = call("zeros", shape=(entries,), dtype=like.dtype.name)
    ones = call("ones", shape=tuple(flat.shape), dtype=like.dtype.name)
    return call("scatter_elements", zeros, flat, ones, reduction="add")


def _with_slope(rows: Tensor, share: Tensor) -> Tensor:
    """``rows``, whose gradient is multiplied by ``share``."""
    return rows.detach() + (rows - rows.detach()) * share


def _shorten_rows(input: Tensor, weight: Tensor, max_norm: float, norm_type: float) -> None:
    """Scale the rows that ``input`` names down to the norm ``max_norm``, in place."""
    table = weight.detach()
    lengths = norms.p_norm(TENSORS, table, norm_type, (1,), keepdims=True)
    short = table * (max_norm / (lengths + 1e-7))
    used = _counts(input, weight.shape[0], table).reshape((-1, 1))
    is_long = call("logical_and", used > 0, lengths > max_norm)
    with no_grad():
        weight.copy_(call("where", is_long, short, table))


@checked
def embedding_bag(
    input: Tensor, weight: Tensor, offsets: Tensor | None = None, max_norm: float | None = None,
    norm_type: float = 2, scale_grad_by_freq: bool = False, mode: str = "mean",
    sparse: bool = False,  # noqa: ARG001 - torch's
    per_sample_weights: Tensor | None = None, include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Sums, means or maxima of the rows of bags; empty bags give zeros.

    ``input`` is (bags, indices per bag), or one list of indices that ``offsets`` (bags) divide;
    with ``include_last_offset`` the last offset is the end of the last bag. ``padding_idx`` counts
    in no bag.
    """
    if mode not in ("sum", "mean", "max"):
        raise InvalidInputError("embedding_bag: unknown mode", expected="sum, mean or max",
                                got=repr(mode))
    if per_sample_weights is not None and mode != "sum":
        raise InvalidInputError("embedding_bag: per_sample_weights needs mode='sum'",
                                got=repr(mode))
    if (input.ndim == 2) != (offsets is None) or input.ndim not in (1, 2):
        raise InvalidInputError("embedding_bag takes a list of indices and offsets, or bags of "
                                "equal lengths", got=f"indices of shape {tuple(input.shape)}")
    rows = embedding(input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq)
    if per_sample_weights is not None:
        rows = rows * call("expand_dims", per_sample_weights, axis=input.ndim)
    counts = None if padding_idx is None else call(
        "not_equal", input, padding_idx % weight.shape[0])
    if offsets is None:
        own = call("ones", shape=(1, input.shape[1]), dtype="bool")
        own = own if counts is None else counts
        return _reduced(call("expand_dims", own, axis=1), rows, mode).reshape(
            (input.shape[0], weight.shape[1]))
    own = _members(offsets, rows.shape[0], include_last_offset)
    if counts is not None:
        own = call("logical_and", own, call("expand_dims", counts, axis=0))
    return _reduced(own, rows, mode)


def _members(offsets: Tensor, count: int, has_end: bool) -> Tensor:
    """(bags, indices): whether an index belongs to the bag that begins at an offset."""
    starts = call("cast", offsets, dtype="int64")
    places = np.arange(count, dtype=np.int64)
    bag = call("searchsorted", starts, places, right=True) - 1
    bags = offsets.shape[0] - bool(has_end)
    return call("equal", call("expand_dims", bag, axis=0),
                np.arange(bags, dtype=np.int64).reshape(-1, 1))


def _reduced(own: Tensor, rows: Tensor, mode: str) -> Tensor:
    """Reduce ``rows`` (…, indices, size) over the members ``own`` (…, bags, indices)."""
    if mode == "max":
        spread = call("where", call("expand_dims", own, axis=own.ndim),
                      call("expand_dims", rows, axis=rows.ndim - 2), -np.inf)
        largest = call("max", spread, axis=spread.ndim - 2) if rows.shape[-2] else \
            call("zeros", shape=(*own.shape[:-1], rows.shape[-1]), dtype=rows.dtype.name)
        return call("where", call("isfinite", largest), largest, 0.0)
    share = call("cast", own, dtype=rows.dtype.name)
    total = call("nn.matmul", share, rows)
    if mode == "sum":
        return total
    sizes = call("sum", share, axis=share.ndim - 1, keepdims=True)
    return total / call("maximum", sizes, 1.0)
