"""The loss of connectionist temporal classification (Graves et al. 2006)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.amp.autocast import upcast
from weft.eager.emitter import call
from weft.eager.record import as_node, wrap
from weft.eager.signature import checked
from weft.eager.tensor import Tensor
from weft.nn.functional.sizes import reduction_of
from weft.support.errors import InvalidInputError

# The logarithm of a probability of 0. Unlike with minus infinity, differences stay numbers.
_NEVER = -1e30
Lengths = Tensor | Sequence[int]


@checked
def ctc_loss(
    log_probs: Tensor, targets: Tensor, input_lengths: Lengths, target_lengths: Lengths,
    blank: int = 0, reduction: str = "mean", zero_infinity: bool = False,
) -> Tensor:
    """-log of the probability of all alignments of ``targets`` with ``log_probs`` (T, N, C).

    ``targets`` is (N, S), or all targets one after the other, whose lengths are then looked at.
    "mean" divides by the lengths of the targets before it averages. The gradient is torch's, of
    log-probabilities that a softmax made. The steps in time are recorded one by one.
    """
    reduction = reduction_of(reduction)
    (log_probs,) = upcast(log_probs)
    has_batch = log_probs.ndim == 3
    if not has_batch:
        log_probs = call("expand_dims", log_probs, axis=1)
    steps, batch, classes = log_probs.shape
    if not 0 <= blank < classes:
        raise InvalidInputError("ctc_loss: blank is not a class", got=blank,
                                expected=f"0 to {classes - 1}")
    where = log_probs.device
    spans, sizes = (_lengths(v, batch).to(where) for v in (input_lengths, target_lengths))
    labels = _padded(targets.to(where), sizes, batch)
    extended = _with_blanks(labels, blank)
    last = _forward(log_probs, extended, spans, blank)
    losses = -_final(last, sizes)
    active = np.arange(steps).reshape(-1, 1, 1) < spans.reshape((1, batch, 1))
    # Torch differentiates the softmax with the loss: this term is 0, and its slope is exp(x).
    slope = call("where", active, call("exp", log_probs.detach()), 0.0)
    losses = losses + call("sum", (log_probs - log_probs.detach()) * slope, axis=(0, 2))
    impossible = losses > -_NEVER / 2
    losses = call("where", impossible, 0.0 if zero_infinity else np.inf, losses)
    if reduction == "none":
        return losses if has_batch else losses.reshape(())
    if reduction == "sum":
        return losses.sum()
    return (losses / call("cast", call("maximum", sizes, 1), dtype=losses.dtype.name)).mean()


def _lengths(values: Any, batch: int) -> Tensor:
    found = wrap(as_node(values if isinstance(values, Tensor) else np.asarray(values, np.int64)))
    if found.numel() != batch:
        raise InvalidInputError("ctc_loss: expected one length for each sequence", expected=batch,
                                got=found.numel())
    return call("cast", found, dtype="int64").reshape((batch,))


def _padded(targets: Tensor, sizes: Tensor, batch: int) -> Tensor:
    """Targets as (N, S), int64."""
    targets = call("cast", targets, dtype="int64")
    if targets.ndim == 2:
        return targets
    if batch == 1:
        return targets.reshape((1, -1))
    longest = int(sizes.detach().max().item())
    starts = call("cumsum", sizes, axis=0) - sizes
    at = starts.reshape((batch, 1)) + np.arange(longest)
    return call("take", targets, call("minimum", at, max(targets.numel() - 1, 0)), axis=0) \
        if targets.numel() else call("zeros", shape=(batch, longest), dtype="int64")


def _with_blanks(labels: Tensor, blank: int) -> Tensor:
    """(N, 2 S + 1): blanks before, between and after the labels."""
    batch, count = labels.shape
    blanks = call("full", blank, shape=(batch, count, 1), dtype="int64")
    pairs = call("concatenate", blanks, call("expand_dims", labels, axis=2), axis=2)
    end = call("full", blank, shape=(batch, 1), dtype="int64")
    return call("concatenate", pairs.reshape((batch, 2 * count)), end, axis=1)


def _forward(log_probs: Tensor, extended: Tensor, spans: Tensor, blank: int) -> Tensor:
    """The log-probability of each prefix of the labels after the last step of each sequence."""
    steps, batch, _ = log_probs.shape
    width = extended.shape[1]
    where = call("broadcast_to", call("expand_dims", extended, axis=0),
                 shape=(steps, batch, width))
    scores = call("gather", log_probs, where, axis=2)
    before = _shifted(extended, 2, blank)
    skips = call("logical_and", call("not_equal", extended, blank),
                 call("not_equal", extended, before))
    alpha = call("where", np.arange(width).reshape(1, -1) == 0, 0.0,
                 call("full", _NEVER, shape=(batch, width), dtype=scores.dtype.name))
    for step in range(steps):
        line = call("strided_slice", scores, begin=(step,), end=(step + 1,), axes=(0,))
        ways = [alpha, _shifted(alpha, 1, _NEVER)]
        if step:
            ways.append(call("where", skips, _shifted(alpha, 2, _NEVER), _NEVER))
        moved = call("maximum", _log_sum(ways) + line.reshape((batch, width)), _NEVER)
        alpha = call("where", call("greater", spans.reshape((batch, 1)), step), moved, alpha)
    return alpha


def _shifted(x: Tensor, count: int, value: float) -> Tensor:
    """The columns moved to the right, ``value`` in the first ones."""
    width = x.shape[1]
    if width <= count:
        return call("full_like", x, value)
    kept = call("strided_slice", x, begin=(0,), end=(width - count,), axes=(1,))
    number = call("full", value, shape=(), dtype=x.dtype.name)
    return call("nn.pad", kept, number, pad_width=((0, 0), (count, 0)))


def _log_sum(values: list[Tensor]) -> Tensor:
    """log(sum(exp(values)))."""
    top = values[0]
    for value in values[1:]:
        top = call("maximum", top, value)
    top = top.detach()
    total = call("exp", values[0] - top)
    for value in values[1:]:
        total = total + call("exp", value - top)
    return call("log", total) + top


def _final(alpha: Tensor, sizes: Tensor) -> Tensor:
    """The log-probability of whole targets: after the last label, or the blank behind it."""
    column = sizes.reshape((-1, 1)) * 2
    ends = call("gather", alpha, column, axis=1)
    label = call("gather", alpha, call("maximum", column - 1, 0), axis=1)
    label = call("where", column > 0, label, _NEVER)
    return _log_sum([ends, label]).reshape((alpha.shape[0],))
