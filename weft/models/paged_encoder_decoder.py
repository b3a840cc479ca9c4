"""``PagedEncoderDecoder``: programs of an encoder and of a decoder, as an ``EncoderDecoder``.

Copies of a sequence share its encoded source. It needs the runtime alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from weft.models.decoder import check_slot, check_tokens
from weft.models.paged_decoder import DECODE, ENCODE, PagedDecoder, sizes_of
from weft.runtime.dtypes import numpy_dtype
from weft.runtime.executable import Executable
from weft.support.dataclass import dataclass
from weft.support.errors import ArtifactError, InvalidInputError

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


@dataclass(frozen=True, slots=True)
class SourceForm:
    """What the encoder reads, and what it leaves for the decoder.

    A source has at most ``capacity`` positions: tokens below ``vocab_size``, or a spectrogram of
    ``bins`` by ``frames``. Its keys and values fill ``caches`` arrays of ``shape`` and ``dtype``.
    """

    start_token: int
    capacity: int
    bins: int
    frames: int
    vocab_size: int
    caches: int
    shape: tuple[int, ...]
    dtype: str


class PagedEncoderDecoder(PagedDecoder):
    """An encoder-decoder: the encoder runs once per source.

    It computes the keys and values that the cross-attention of each layer reads.
    """

    def __init__(self, executable: Executable, encoder: Executable, form: SourceForm,
                 **sizes: int) -> None:
        super().__init__(executable, **sizes)
        self.encoder = encoder
        self._form = form
        self._sources = SourceTable(self.slots)
        self._source_caches = tuple(np.zeros(form.shape, numpy_dtype(form.dtype))
                                    for _ in range(form.caches))

    @staticmethod
    def of_artifact(entries: Mapping[str, Executable], facts: Mapping[str, Any]
                    ) -> PagedEncoderDecoder:
        """See ``PagedDecoder.of_artifact``."""
        plain: dict[str, Any] = dict(facts.get("source", {}))
        try:
            plain["shape"] = tuple(plain["shape"])
            form = SourceForm(**plain)
        except (TypeError, KeyError) as error:
            raise ArtifactError("a damaged description of an encoder", got=error) from None
        return PagedEncoderDecoder(entries[DECODE], entries[ENCODE], form, **sizes_of(facts))

    def facts(self) -> dict[str, Any]:
        """See ``PagedDecoder.facts``."""
        return {**super().facts(), "source": {**asdict(self._form),
                                              "shape": list(self._form.shape)}}

    @property
    def start_token(self) -> int:
        return self._form.start_token

    @property
    def source_capacity(self) -> int:
        """Largest number of positions of a source."""
        return self._form.capacity

    @property
    def cache_bytes(self) -> int:
        return super().cache_bytes + sum(cache.nbytes for cache in self._source_caches)

    def check_source(self, source: np.ndarray) -> None:
        form = self._form
        if form.bins:
            if source.shape != (form.bins, form.frames) or source.dtype.kind != "f":
                raise InvalidInputError(
                    "the source does not have the form of a spectrogram",
                    expected=f"Tensor[({form.bins}, {form.frames}), float32]",
                    got=f"Tensor[{source.shape}, {source.dtype}]",
                    help="pad the signal with silence, or cut it, to this number of frames")
            return
        check_tokens(source, form.vocab_size)
        if len(source) > form.capacity:
            raise InvalidInputError(
                "the source is too long", expected=f"at most {form.capacity} tokens",
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
        if self._form.bins:
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

    def _more_inputs(self, index: np.ndarray) -> tuple[np.ndarray, ...]:
        sources = self._sources.of[index]
        return sources[:, None], self._sources.lengths[sources], *self._source_caches
