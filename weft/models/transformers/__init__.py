"""Decoders from models of the transformers library: configuration and weights, without tracing."""

from weft.models.transformers.load import (
    architecture_of,
    decoder_from_transformers,
    encoder_decoder_architecture_of,
    encoder_decoder_from_transformers,
)

__all__ = ["architecture_of", "decoder_from_transformers", "encoder_decoder_architecture_of",
           "encoder_decoder_from_transformers"]
