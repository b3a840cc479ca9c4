"""Language models as decoders: programs of the weft IR with key and value caches."""

from weft.models.architecture import Architecture, Layer, Rotary, Weights
from weft.models.compiled_decoder import CompiledDecoder
from weft.models.decoder import Decoder
from weft.models.transformers import architecture_of, decoder_from_transformers

__all__ = ["Architecture", "CompiledDecoder", "Decoder", "Layer", "Rotary", "Weights",
           "architecture_of", "decoder_from_transformers"]
