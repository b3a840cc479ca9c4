"""Language models as decoders: programs of the weft IR with key and value caches."""

from weft.models.architecture import (
    Architecture,
    Encoder,
    EncoderDecoderArchitecture,
    Layer,
    RelativePositions,
    Rotary,
    Weights,
)
from weft.models.compiled_decoder import CompiledDecoder
from weft.models.compiled_encoder_decoder import CompiledEncoderDecoder
from weft.models.decoder import Decoder, EncoderDecoder
from weft.models.transformers import (
    architecture_of,
    decoder_from_transformers,
    encoder_decoder_architecture_of,
    encoder_decoder_from_transformers,
)

__all__ = ["Architecture", "CompiledDecoder", "CompiledEncoderDecoder", "Decoder", "Encoder",
           "EncoderDecoder", "EncoderDecoderArchitecture", "Layer", "RelativePositions", "Rotary",
           "Weights", "architecture_of", "decoder_from_transformers",
           "encoder_decoder_architecture_of", "encoder_decoder_from_transformers"]
