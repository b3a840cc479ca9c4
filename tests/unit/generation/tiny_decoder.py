"""A language model of a few NumPy lines, whose logits depend on all tokens and their order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.models.decoder import check_append, check_copy, check_slot, check_truncate


class TinyDecoder:
    """Logits of a random linear recurrence over embeddings; the cache of a slot is its tokens.

    ``fail_after`` makes the call with that number raise, after the caches have changed.
    """

    def __init__(self, vocab_size: int = 11, capacity: int = 64, slots: int = 4, *, seed: int = 0,
                 noise: float = 0.0, fail_after: int | None = None) -> None:
        rng = np.random.default_rng(seed)
        self.vocab_size, self.capacity, self.slots = vocab_size, capacity, slots
        self._embedding = rng.normal(size=(vocab_size, 8))
        self._output = rng.normal(size=(8, vocab_size)) * 1.5
        self._output += noise * np.random.default_rng(seed + 1).normal(size=self._output.shape)
        self._cached: list[list[int]] = [[] for _ in range(slots)]
        self.calls: list[tuple[str, int]] = []  # the kind of each call, and the tokens it read
        self.copies: list[tuple[int, int, int]] = []
        self.fail_after = fail_after

    def logits(self, tokens: Sequence[int]) -> np.ndarray:
        state = np.zeros(8)
        for token in tokens:
            state = np.tanh(0.9 * np.roll(state, 1) + self._embedding[token])
        return (state @ self._output).astype(np.float32)

    def length(self, slot: int) -> int:
        check_slot(self, slot)
        return len(self._cached[slot])

    def prefill(self, slots: Sequence[int], ids: Sequence[np.ndarray]) -> np.ndarray:
        return np.stack([rows[-1] for rows in self._read("prefill", slots, ids)])

    def score(self, slots: Sequence[int], ids: Sequence[np.ndarray]) -> list[np.ndarray]:
        return self._read("score", slots, ids)

    def step(self, slots: Sequence[int], ids: np.ndarray) -> np.ndarray:
        return np.stack([rows[-1] for rows in self._read("step", slots, ids[:, None])])

    def _read(self, kind: str, slots: Sequence[int], ids: Sequence[np.ndarray]
              ) -> list[np.ndarray]:
        check_append(self, slots, ids)
        self.calls.append((kind, sum(map(len, ids))))
        found = []
        for slot, tokens in zip(slots, ids, strict=True):
            rows = []
            for token in tokens:
                self._cached[slot].append(int(token))
                rows.append(self.logits(self._cached[slot]))
            found.append(np.stack(rows))
        if self.fail_after is not None and len(self.calls) == self.fail_after:
            raise RuntimeError("the machine is on fire")
        return found

    def copy(self, source: int, target: int, length: int) -> None:
        check_copy(self, source, target, length)
        self.copies.append((source, target, length))
        self._cached[target] = self._cached[source][:length]

    def truncate(self, slot: int, length: int) -> None:
        check_truncate(self, slot, length)
        del self._cached[slot][length:]

    def free(self, slot: int) -> None:
        self.truncate(slot, 0)


def greedy(decoder: TinyDecoder, prompt: Sequence[int], count: int) -> list[int]:
    """The greedy continuation without caches."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(decoder.logits(tokens).argmax()))
    return tokens[len(prompt):]
