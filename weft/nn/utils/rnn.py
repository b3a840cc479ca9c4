"""Sequences of different lengths: padded to one tensor, or packed without padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.eager.emitter import call
from weft.eager.tensor import Tensor
from weft.support.errors import InvalidInputError


class PackedSequence(NamedTuple):
    """Sequences sorted by falling length, step by step: ``data`` (sum of lengths, …).

    ``batch_sizes`` counts the sequences of each step. ``sorted_indices`` sort the batch, and
    ``unsorted_indices`` restore its order; both are ``None`` for a batch that was sorted already.
    """

    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None = None
    unsorted_indices: Tensor | None = None

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same sequences with ``data.to(...)``."""
        return self._replace(data=self.data.to(*args, **kwargs))

    def float(self) -> PackedSequence:
        return self.to("float32")

    def double(self) -> PackedSequence:
        return self.to("float64")

    def half(self) -> PackedSequence:
        return self.to("float16")

    def cpu(self) -> PackedSequence:
        return self.to("cpu")


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The permutation that undoes ``permutation``."""
    if permutation is None:
        return None
    return Tensor(np.argsort(permutation.numpy()).astype(np.int64))


def _swapped(x: Tensor) -> Tensor:
    """``x`` with the first two axes exchanged."""
    return call("transpose", x, axes=(1, 0, *range(2, x.ndim)))


def _rows(x: Tensor, places: np.ndarray) -> Tensor:
    return call("take", x, np.asarray(places, np.int64), axis=0)


def _places(batch_sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The step and the sequence of each row of packed data."""
    steps = np.repeat(np.arange(len(batch_sizes)), batch_sizes)
    sequences = np.concatenate([np.arange(size) for size in batch_sizes])
    return steps, sequences


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Pack ``input`` (L, N, …), or (N, L, …) if ``batch_first``, of sequences of ``lengths``.

    With ``enforce_sorted`` the lengths must fall; otherwise the batch is sorted.
    """
    sizes = np.asarray(lengths.numpy() if isinstance(lengths, Tensor) else lengths, np.int64)
    x = _swapped(input) if batch_first else input
    if sizes.ndim != 1 or len(sizes) != x.shape[1]:
        raise InvalidInputError("pack_padded_sequence: one length for each sequence",
                                expected=f"shape ({x.shape[1]},)", got=f"shape {sizes.shape}")
    if not len(sizes) or sizes.min() < 1 or sizes.max() > x.shape[0]:
        raise InvalidInputError("pack_padded_sequence: a length is out of range",
                                expected=f"1 to {x.shape[0]}", got=sizes.tolist())
    order = None
    if not enforce_sorted:
        order = np.argsort(-sizes, kind="stable")
        sizes = sizes[order]
        x = call("take", x, order.astype(np.int64), axis=1)
    elif (np.diff(sizes) > 0).any():
        raise InvalidInputError("pack_padded_sequence: the lengths do not fall",
                                got=sizes.tolist(),
                                help="enforce_sorted=False sorts the batch")
    counts = (sizes[None] > np.arange(sizes.max())[:, None]).sum(1)
    steps, sequences = _places(counts)
    flat = x.reshape((-1, *x.shape[2:]))
    data = _rows(flat, steps * x.shape[1] + sequences)
    sorting = None if order is None else Tensor(order.astype(np.int64))
    return PackedSequence(data, Tensor(counts.astype(np.int64)), sorting,
                          invert_permutation(sorting))


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """The sequences (L, N, …), or (N, L, …) if ``batch_first``, and their lengths."""
    counts = sequence.batch_sizes.numpy()
    length, batch = len(counts), int(counts[0])
    if total_length is not None and total_length < length:
        raise InvalidInputError("pad_packed_sequence: total_length is too short",
                                expected=f"at least {length}", got=total_length)
    length = length if total_length is None else total_length
    steps, sequences = _places(counts)
    rows = len(steps)
    places = np.full((length, batch), rows, np.int64)  # the padding is a row behind the others
    places[steps, sequences] = np.arange(rows)
    lengths = (places < rows).sum(0)
    if sequence.unsorted_indices is not None:
        order = sequence.unsorted_indices.numpy()
        places, lengths = places[:, order], lengths[order]
    width = [(0, 1)] + [(0, 0)] * (sequence.data.ndim - 1)
    padded = call("nn.pad", sequence.data, float(padding_value), pad_width=tuple(width))
    return (call("take", padded, places.T.copy() if batch_first else places, axis=0),
            Tensor(lengths.astype(np.int64)))


def pad_sequence(
    sequences: Sequence[Tensor], batch_first: bool = False, padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Sequences (L, …) of different L as one tensor (L, N, …), or (N, L, …)."""
    given = list(sequences)
    if not given or padding_side not in ("left", "right"):
        raise InvalidInputError("pad_sequence takes tensors, and pads left or right",
                                got=f"{len(given)} tensors, {padding_side!r}")
    length = max(t.shape[0] for t in given)
    padded = []
    for tensor in given:
        missing = length - tensor.shape[0]
        first = (missing, 0) if padding_side == "left" else (0, missing)
        padded.append(call("nn.pad", tensor, float(padding_value),
                           pad_width=(first, *[(0, 0)] * (tensor.ndim - 1))))
    return call("stack", *padded, axis=0 if batch_first else 1)


def unpad_sequence(
    padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False
) -> list[Tensor]:
    """The sequences (length, …) of a padded batch."""
    x = padded_sequences if batch_first else _swapped(padded_sequences)
    return [x[i][: int(length)] for i, length in enumerate(lengths.numpy())]


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack a list of sequences (L, …)."""
    lengths = [t.shape[0] for t in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences (length, …) of a packed batch."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
