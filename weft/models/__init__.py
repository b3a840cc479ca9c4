"""Language models as decoders: programs of the weft IR with key and value caches."""

from weft.support.lazy_package import load_names_lazily

NAMES = {  # module -> the public names it defines
    "weft.generation.text.language_model": "LanguageModel",
    "weft.generation.text.load": "load",
    "weft.generation.text.text_encoder": "TextEncoder load_encoder",
    "weft.models.architecture": (
        "Architecture Encoder EncoderDecoderArchitecture Layer RelativePositions Rotary Weights"
    ),
    "weft.models.compiled_decoder": "CompiledDecoder",
    "weft.models.compiled_encoder_decoder": "CompiledEncoderDecoder",
    "weft.models.decoder": "Decoder EncoderDecoder",
    "weft.models.transformers": (
        "architecture_of decoder_from_transformers encoder_decoder_architecture_of "
        "encoder_decoder_from_transformers"
    ),
}
load_names_lazily(__name__, NAMES)
