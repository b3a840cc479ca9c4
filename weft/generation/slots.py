"""Which slot of a decoder a request gets, and which cached tokens it can start from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from weft.models.decoder import Decoder

EMPTY = np.empty(0, np.int64)


def shared_prefix(x: np.ndarray, y: np.ndarray) -> int:
    """Number of equal tokens at the start of two sequences."""
    n = min(len(x), len(y))
    different = x[:n] != y[:n]
    return int(different.argmax()) if different.any() else n


@dataclass(frozen=True)
class Start:
    """The slot with the longest cached prefix of a prompt."""

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
        self._idle: dict[int, np.ndarray] = dict.fromkeys(range(decoder.slots), EMPTY)

    def __len__(self) -> int:
        """Number of idle slots."""
        return len(self._idle)

    def best_start(self, prompt: np.ndarray, running: Iterable[tuple[int, np.ndarray]]) -> Start:
        """The slot, idle or running, whose cached tokens share most with ``prompt``.

        The last token of the prompt is never shared: its logits are needed. ``length`` is 0 if no
        slot shares a token; idle slots win ties, as their cache need not be copied.
        """
        best = Start(-1, 0)
        for slot, tokens in (*self._idle.items(), *running) if self._share else ():
            length = shared_prefix(prompt[:-1], tokens)
            if length > best.length:
                best = Start(slot, length)
        return best

    def acquire(self, start: Start) -> int:
        """An idle slot whose cache holds the first ``start.length`` tokens of the prompt."""
        if start.slot in self._idle:
            slot = start.slot
            self._decoder.truncate(slot, start.length)
        else:
            slot = next((s for s, kept in self._idle.items() if not len(kept)),
                        next(iter(self._idle)))
            self._decoder.free(slot)
            if start.length:
                self._decoder.copy(start.slot, slot, start.length)
        del self._idle[slot]
        return slot

    def release(self, slot: int, tokens: np.ndarray) -> None:
        """Take a slot back; ``tokens`` are those of its cache."""
        if self._share:
            self._idle[slot] = tokens.copy()
        else:
            self._decoder.free(slot)
            self._idle[slot] = EMPTY

    def clear(self) -> None:
        """Empty all idle slots."""
        for slot in self._idle:
            self._decoder.free(slot)
        self._idle = dict.fromkeys(self._idle, EMPTY)
