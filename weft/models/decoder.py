"""``Decoder``: the interface between a language model with caches and the algorithms of decoding.

A decoder holds ``slots`` sequences at a time. Each slot has a cache of the keys and values of the
tokens that the model has read in this sequence, at most ``capacity`` of them. All algorithms of
``weft.generation`` are written against this protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from weft.support.errors import InvalidInputError, OptionError


@runtime_checkable
class Decoder(Protocol):
    """A language model that reads tokens into caches and returns logits, float32 [..., vocab_size].

    Every method checks its arguments before it changes a cache: after an ``InvalidInputError`` the
    decoder is as it was before the call.
    """

    @property
    def vocab_size(self) -> int:
        """Number of tokens; a token is an integer from 0 to ``vocab_size - 1``."""
        ...

    @property
    def capacity(self) -> int:
        """Largest number of tokens of one sequence."""
        ...

    @property
    def slots(self) -> int:
        """Number of sequences that can be decoded at the same time."""
        ...

    def length(self, slot: int) -> int:
        """Number of tokens in the cache of a slot."""
        ...

    def prefill(self, slots: Sequence[int], ids: Sequence[np.ndarray]) -> np.ndarray:
        """Append tokens, one array of any length >= 1 per slot; logits [slots, vocab_size].

        The logits of a row predict the token after the last one of the row.
        """
        ...

    def score(self, slots: Sequence[int], ids: Sequence[np.ndarray]) -> list[np.ndarray]:
        """``prefill`` that returns the logits after every token: [tokens, vocab_size] per slot."""
        ...

    def step(self, slots: Sequence[int], ids: np.ndarray) -> np.ndarray:
        """Append one token per slot, int64 [slots]; logits [slots, vocab_size]."""
        ...

    def copy(self, source: int, target: int, length: int) -> None:
        """Give ``target`` the first ``length`` tokens of ``source`` instead of its own."""
        ...

    def truncate(self, slot: int, length: int) -> None:
        """Keep the first ``length`` tokens of a slot."""
        ...

    def free(self, slot: int) -> None:
        """Empty a slot, and give back the memory of its cache where memory is shared."""
        ...


@runtime_checkable
class EncoderDecoder(Decoder, Protocol):
    """A decoder whose sequences attend to sources, which an encoder reads.

    ``copy`` gives the target the source of the other sequence too; ``free`` forgets it.
    """

    @property
    def start_token(self) -> int:
        """The token that begins a sequence."""
        ...

    def check_source(self, source: np.ndarray) -> None:
        """Raise ``InvalidInputError`` unless ``source`` is one that the encoder reads."""
        ...

    def encode(self, slots: Sequence[int], sources: Sequence[np.ndarray]) -> None:
        """Empty the slots, and give each a source of its own."""
        ...


def check_count(name: str, value: object) -> None:
    """Raise ``OptionError`` unless the option ``name`` is a number of at least one thing."""
    is_integer = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not is_integer or value < 1:
        raise OptionError(f"invalid {name}", expected="an integer >= 1", got=value)


def check_append(decoder: Decoder, slots: Sequence[int], ids: Sequence[np.ndarray]) -> None:
    """Raise ``InvalidInputError`` unless each slot can take its tokens."""
    if len(slots) != len(ids):
        raise InvalidInputError("the numbers of slots and of token arrays differ",
                                expected=f"{len(slots)} arrays", got=len(ids))
    if len(set(slots)) != len(slots):
        raise InvalidInputError("a slot is named twice", got=list(slots))
    for slot, tokens in zip(slots, ids, strict=True):
        check_slot(decoder, slot)
        check_tokens(tokens, decoder.vocab_size)
        used = decoder.length(slot)
        if used + len(tokens) > decoder.capacity:
            raise InvalidInputError(
                "the cache is full", where=f"slot {slot}",
                expected=f"at most {decoder.capacity - used} tokens after the {used} cached ones",
                got=f"{len(tokens)} tokens", help="make the decoder with a larger capacity=")


def check_slot(decoder: Decoder, slot: int) -> None:
    if not 0 <= slot < decoder.slots:
        raise InvalidInputError("unknown slot", expected=f"0 to {decoder.slots - 1}", got=slot)


def check_tokens(tokens: np.ndarray, vocab_size: int) -> None:
    """Raise ``InvalidInputError`` unless ``tokens`` is a non-empty vector of known tokens."""
    if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
        raise InvalidInputError("tokens are a vector of integers",
                                got=f"Tensor[{tokens.shape}, {tokens.dtype}]")
    if not tokens.size:
        raise InvalidInputError("the prompt is empty", expected="at least one token",
                                help="start with the model's token for the beginning of a text")
    low, high = tokens.min(), tokens.max()
    if low < 0 or high >= vocab_size:
        raise InvalidInputError("a token is outside the vocabulary",
                                expected=f"0 to {vocab_size - 1}",
                                got=int(low if low < 0 else high))


def check_copy(decoder: Decoder, source: int, target: int, length: int) -> None:
    check_slot(decoder, target)
    check_truncate(decoder, source, length)


def check_truncate(decoder: Decoder, slot: int, length: int) -> None:
    check_slot(decoder, slot)
    if not 0 <= length <= decoder.length(slot):
        raise InvalidInputError("the length is outside the cached sequence", where=f"slot {slot}",
                                expected=f"0 to {decoder.length(slot)}", got=length)
