"""``CompiledEncoderDecoder``: an encoder-decoder with compiled programs."""

from __future__ import annotations

import os
from typing import Any

from weft.compiler.interchange import export_entries
from weft.models.architecture import EncoderDecoderArchitecture, Weights
from weft.models.compiled_decoder import BLOCK_SIZE, compiled, decoder_executable
from weft.models.decoder import check_count
from weft.models.decoder_program import SourceShape
from weft.models.encoder_program import encoder_program
from weft.models.paged_decoder import DECODE, ENCODE
from weft.models.paged_encoder_decoder import PagedEncoderDecoder, SourceForm
from weft.support.errors import OptionError


class CompiledEncoderDecoder(PagedEncoderDecoder):
    """An encoder-decoder, compiled for this machine.

    The encoder runs once per source, and computes the keys and values that the cross-attention of
    each layer reads. ``source_capacity`` is the largest number of positions of a source; an encoder
    of spectrograms fixes it. The other arguments are those of ``CompiledDecoder``.
    """

    def __init__(self, architecture: EncoderDecoderArchitecture, weights: Weights, *,
                 capacity: int = 512, source_capacity: int | None = None, batch: int = 1,
                 dtype: str = "float32", block_size: int = BLOCK_SIZE, **knobs: Any) -> None:
        self.architecture = decoder = architecture.decoder
        encoder = architecture.encoder
        most = _source_capacity(architecture, source_capacity)
        shape = SourceShape(batch, most)
        program = decoder_executable(decoder, weights, shape, capacity=capacity, batch=batch,
                                     dtype=dtype, block_size=block_size, **knobs)
        read = compiled(encoder_program(architecture, weights, most, dtype), **knobs)
        form = SourceForm(architecture.start_token, most, encoder.bins, encoder.frames,
                          encoder.blocks.vocab_size, 2 * len(decoder.layers), shape.of(decoder),
                          dtype)
        super().__init__(program, read, form, vocab_size=decoder.vocab_size, capacity=capacity,
                         batch=batch, block_size=block_size)

    def export(self, path: str | os.PathLike[str], **options: Any) -> None:
        """See ``CompiledDecoder.export``."""
        export_entries({DECODE: self.executable, ENCODE: self.encoder}, path,
                       kind="encoder-decoder", facts=self.facts(), **options)


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
