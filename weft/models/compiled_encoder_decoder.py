"""``CompiledEncoderDecoder``: programs of an encoder and of a decoder, as an ``EncoderDecoder``.

Copies of a sequence share its encoded source.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.ir.dtype import DType
from weft.models.architecture import EncoderDecoderArchitecture, Weights
from weft.models.compiled_decoder import BLOCK_SIZE, CompiledDecoder, compiled
from weft.models.decoder import check_count, check_slot, check_tokens
from weft.models.decoder_program import SourceShape
from weft.models.encoder_program import encoder_program
from weft.support.errors import InvalidInputError, OptionError

NONE = -1


class SourceTable:
    """``slots`` sequences, and room for as many sources, so that an allocation never fails."""

    def __init__(self, slots: int) -> None:
        # Number of the source of each slot, and the length of each source.
        self.of = np.full(slots, NONE, np.int64)
        self.lengths = np.zeros(slots, np.int64)
        self._free = list(range(slots))[::-1]

    def allocate(self, slot: int, length: int) -> int:
        """The number of a new source of ``slot``."""
        self.release(slot)
        number = self._free.pop()
        self.of[slot], self.lengths[number] = number, length
        return number

    def share(self, source: int, target: int) -> None:
        """Give the slot ``target`` the source of the slot ``source``."""
        if source != target:
            self.release(target)
            self.of[target] = self.of[source]

    def release(self, slot: int) -> None:
        """Forget the source of a slot; it is free when no slot has it."""
        number, self.of[slot] = int(self.of[slot]), NONE
        if number != NONE and number not in self.of:
            self._free.append(number)


class CompiledEncoderDecoder(CompiledDecoder):
    """An encoder-decoder, compiled for this machine.

    The encoder runs once per source, and computes the keys and values that the cross-attention of
    each layer reads. ``source_capacity`` is the largest number of positions of a source; an encoder
    of spectrograms fixes it. The other arguments are those of ``CompiledDecoder``.
    """

    def __init__(self, architecture: EncoderDecoderArchitecture, weights: Weights, *,
                 capacity: int = 512, source_capacity: int | None = None, batch: int = 1,
                 dtype: str = "float32", block_size: int = BLOCK_SIZE, **knobs: Any) -> None:
        self._encoder = architecture.encoder
        self._start_token = architecture.start_token
        self._source_capacity = _source_capacity(architecture, source_capacity)
        shape = SourceShape(batch, self._source_capacity)
        self._build(architecture.decoder, weights, shape, capacity=capacity, batch=batch,
                    dtype=dtype, block_size=block_size, **knobs)
        self.encoder = compiled(encoder_program(architecture, weights, self._source_capacity,
                                                dtype), **knobs)
        self._sources = SourceTable(batch)
        caches = 2 * len(architecture.decoder.layers)
        self._source_caches = tuple(
            np.zeros(shape.of(architecture.decoder), DType.of(dtype).numpy)
            for _ in range(caches))

    @property
    def start_token(self) -> int:
        return self._start_token

    @property
    def source_capacity(self) -> int:
        """Largest number of positions of a source."""
        return self._source_capacity

    @property
    def cache_bytes(self) -> int:
        return super().cache_bytes + sum(cache.nbytes for cache in self._source_caches)

    def check_source(self, source: np.ndarray) -> None:
        encoder = self._encoder
        if encoder.bins:
            if source.shape != (encoder.bins, encoder.frames) or source.dtype.kind != "f":
                raise InvalidInputError(
                    "the source does not have the form of a spectrogram",
                    expected=f"Tensor[({encoder.bins}, {encoder.frames}), float32]",
                    got=f"Tensor[{source.shape}, {source.dtype}]",
                    help="pad the signal with silence, or cut it, to this number of frames")
            return
        check_tokens(source, encoder.blocks.vocab_size)
        if len(source) > self._source_capacity:
            raise InvalidInputError(
                "the source is too long", expected=f"at most {self._source_capacity} tokens",
                got=f"{len(source)} tokens", help="make the decoder with a larger source_capacity=")

    def encode(self, slots: Sequence[int], sources: Sequence[np.ndarray]) -> None:
        if len(slots) != len(sources):
            raise InvalidInputError("the numbers of slots and of sources differ",
                                    expected=f"{len(slots)} sources", got=len(sources))
        for slot, source in zip(slots, sources, strict=True):
            check_slot(self, slot)
            self.check_source(source)
        for slot, source in zip(slots, sources, strict=True):
            self._encode(slot, source)

    def _encode(self, slot: int, source: np.ndarray) -> None:
        """Run the encoder for one source: sources differ in length, and are long."""
        if self._encoder.bins:
            found = self.encoder(np.ascontiguousarray(source[None], np.float32))
        else:
            ids = np.ascontiguousarray(source[None], np.int64)
            found = self.encoder(ids, np.arange(len(source), dtype=np.int64))
        self.free(slot)
        number = self._sources.allocate(slot, found[0].shape[2])
        for cache, new in zip(self._source_caches, found, strict=True):
            cache[number, :, :new.shape[2]] = new[0]

    def copy(self, source: int, target: int, length: int) -> None:
        super().copy(source, target, length)
        self._sources.share(source, target)

    def free(self, slot: int) -> None:
        super().free(slot)
        self._sources.release(slot)

    def _check_append(self, slots: Sequence[int], ids: Sequence[np.ndarray]) -> None:
        super()._check_append(slots, ids)
        for slot in slots:
            if self._sources.of[slot] == NONE:
                raise InvalidInputError("a slot has no source", where=f"slot {slot}",
                                        help="call encode() before the first tokens")

    def _may_step(self, slots: Sequence[int], ids: np.ndarray) -> bool:
        return super()._may_step(slots, ids) and all(self._sources.of[slot] != NONE
                                                     for slot in slots)

    def _cross_inputs(self, index: np.ndarray) -> tuple[np.ndarray, ...]:
        sources = self._sources.of[index]
        return sources[:, None], self._sources.lengths[sources], *self._source_caches


def _source_capacity(architecture: EncoderDecoderArchitecture, given: int | None) -> int:
    encoder = architecture.encoder
    if encoder.bins:
        fixed = encoder.frames // 2
        if given not in (None, fixed):
            raise OptionError("the encoder fixes the number of positions of a source",
                              expected=fixed, got=given)
        return fixed
    if given is None:
        return 512
    check_count("source_capacity", given)
    return given
