"""Which slot of a decoder a request gets, and which cached tokens it can start from."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from weft.generation.request import encode
from weft.models.decoder import Decoder
from weft.support.dataclass import dataclass


@dataclass(frozen=True, eq=False)
class Cached:
    """The tokens in the cache of a slot, and the source that its sequence attends to."""

    tokens: np.ndarray
    source: np.ndarray | None = None


EMPTY = Cached(np.empty(0, np.int64))


def shared_prefix(x: np.ndarray, y: np.ndarray) -> int:
    """Number of equal tokens at the start of two sequences."""
    n = min(len(x), len(y))
    different = x[:n] != y[:n]
    return int(different.argmax()) if different.any() else n


@dataclass(frozen=True)
class Start:
    """The slot with the longest cached prefix of a prompt; -1 if the cache begins empty."""

    slot: int
    length: int


class SlotTable:
    """The idle slots of a decoder, with the tokens that their caches still hold.

    The cache of a finished request is kept until its slot is needed, so that a later prompt with
    the same beginning (a system prompt, an earlier turn of a chat) starts from it.
    """

    def __init__(self, decoder: Decoder, *, share_prefixes: bool) -> None:
        self._decoder = decoder
        self._share = share_prefixes
        # Oldest first: the first idle slot is the one to reuse.
        self._idle: dict[int, Cached] = dict.fromkeys(range(decoder.slots), EMPTY)

    def __len__(self) -> int:
        """Number of idle slots."""
        return len(self._idle)

    def best_start(self, prompt: Cached, running: Iterable[tuple[int, Cached]]) -> Start:
        """The slot, idle or running, whose cached tokens share most with ``prompt``.

        The last token of the prompt is never shared: its logits are needed. Sequences with
        different sources share nothing; those with one source share at least what the encoder made
        of it. Idle slots win ties, as their cache need not be copied.
        """
        best = Start(-1, 0 if prompt.source is None else -1)
        for slot, cached in (*self._idle.items(), *running) if self._share else ():
            if cached.source is not prompt.source:
                continue
            length = shared_prefix(prompt.tokens[:-1], cached.tokens)
            if length > best.length:
                best = Start(slot, length)
        return best if best.slot >= 0 else Start(-1, 0)

    def acquire(self, start: Start, source: np.ndarray | None = None) -> int:
        """An idle slot whose cache holds the first ``start.length`` tokens of the prompt."""
        if start.slot in self._idle:
            slot = start.slot
            self._decoder.truncate(slot, start.length)
        else:
            slot = next((s for s, kept in self._idle.items()
                         if not len(kept.tokens) and kept.source is None),
                        next(iter(self._idle)))
            self._idle[slot] = EMPTY
            if start.slot >= 0:
                self._decoder.copy(start.slot, slot, start.length)
            else:
                encode(self._decoder, slot, source)
        del self._idle[slot]
        return slot

    def release(self, slot: int, cached: Cached) -> None:
        """Take a slot back; ``cached`` is what its cache holds."""
        if self._share:
            self._idle[slot] = Cached(cached.tokens.copy(), cached.source)
        else:
            self._decoder.free(slot)
            self._idle[slot] = EMPTY

    def adopt(self, slot: int, tokens: np.ndarray) -> None:
        """Note that the cache of an idle slot holds ``tokens``, which no request of it has read."""
        self._idle[slot] = Cached(tokens)

    def clear(self) -> None:
        """Empty all idle slots."""
        for slot in self._idle:
            self._decoder.free(slot)
        self._idle = dict.fromkeys(self._idle, EMPTY)
