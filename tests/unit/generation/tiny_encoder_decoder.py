"""A ``TinyDecoder`` with an encoder: a sequence begins with the tokens of its source."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.unit.generation.tiny_decoder import TinyDecoder
from weft.models.decoder import check_slot, check_tokens


class TinyEncoderDecoder(TinyDecoder):
    """``encoded`` lists the sources in the order in which the encoder read them."""

    start_token = 1

    def __init__(self, slots: int = 4) -> None:
        super().__init__(slots=slots)
        self.sources: list[tuple[int, ...] | None] = [None] * slots
        self.encoded: list[tuple[int, ...]] = []

    def check_source(self, source: np.ndarray) -> None:
        check_tokens(source, self.vocab_size)

    def encode(self, slots: Sequence[int], sources: Sequence[np.ndarray]) -> None:
        for slot, source in zip(slots, sources, strict=True):
            check_slot(self, slot)
            self.free(slot)
            self.sources[slot] = tuple(source.tolist())
            self.encoded.append(tuple(source.tolist()))

    def _read(self, kind: str, slots: Sequence[int], ids: Sequence[np.ndarray]
              ) -> list[np.ndarray]:
        found = super()._read(kind, slots, ids)
        for number, (slot, tokens) in enumerate(zip(slots, ids, strict=True)):
            source, cached = self.sources[slot], self._cached[slot]
            assert source is not None
            first = len(cached) - len(tokens)
            found[number] = np.stack([self.logits([*source, *cached[:end]])
                                      for end in range(first + 1, len(cached) + 1)])
        return found

    def copy(self, source: int, target: int, length: int) -> None:
        super().copy(source, target, length)
        self.sources[target] = self.sources[source]

    def free(self, slot: int) -> None:
        super().free(slot)
        self.sources[slot] = None
