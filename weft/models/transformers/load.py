"""``decoder_from_transformers``: the decoder of a transformers model."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from weft.models.architecture import Architecture, EncoderDecoderArchitecture, Weights
from weft.models.compiled_decoder import BLOCK_SIZE, CompiledDecoder
from weft.models.compiled_encoder_decoder import CompiledEncoderDecoder
from weft.models.transformers.configuration import Configuration
from weft.models.transformers.encoder_decoders import t5, whisper
from weft.models.transformers.families import FAMILIES
from weft.models.transformers.source import Source
from weft.models.transformers.translate import translate
from weft.support.errors import InvalidModelError, UnsupportedModelError

ENCODER_DECODERS: dict[str, Callable[[Source], EncoderDecoderArchitecture]] = {
    "t5": t5, "whisper": whisper,
}


def architecture_of(model: Any) -> tuple[Architecture, Weights]:
    """Architecture and weights of a transformers model for causal language modelling.

    Weights keep their dtype and are shared with the model, not copied. Raises
    ``UnsupportedModelError`` for a model whose type or configuration weft does not know.
    """
    kind = _kind(model, FAMILIES, "decoders")
    family = FAMILIES[kind]
    return translate(Configuration(model.config, kind, family.defaults), Source.of_module(model),
                     family)


def encoder_decoder_architecture_of(model: Any) -> tuple[EncoderDecoderArchitecture, Weights]:
    """``architecture_of`` for a transformers model for conditional generation: T5 or Whisper."""
    kind = _kind(model, ENCODER_DECODERS, "encoder-decoders")
    source = Source.of_module(model)
    architecture = ENCODER_DECODERS[kind](source)
    return architecture, Weights(source.arrays)


def _kind(model: Any, families: Collection[str], what: str) -> str:
    """The type of a transformers model, which is one of ``families``."""
    kind = getattr(getattr(model, "config", None), "model_type", None)
    if kind is None or not hasattr(model, "state_dict"):
        raise InvalidModelError("not a model of the transformers library",
                                got=type(model).__name__,
                                help="pass a model such as transformers.LlamaForCausalLM(config)")
    if kind not in families:
        raise UnsupportedModelError(f"{what} of the type {kind!r} are not supported",
                                    expected=", ".join(sorted(families)))
    return str(kind)


def encoder_decoder_from_transformers(
    model: Any, *, capacity: int = 512, source_capacity: int | None = None, batch: int = 1,
    dtype: str = "float32", block_size: int = BLOCK_SIZE, **knobs: Any,
) -> CompiledEncoderDecoder:
    """An encoder-decoder with the configuration and the weights of a transformers model.

    ``source_capacity`` is the largest number of tokens of a source (512 by default); the encoder of
    Whisper fixes the number of frames. The other arguments are those of
    ``decoder_from_transformers``. T5 and Whisper are known; other models raise
    ``UnsupportedModelError``.
    """
    architecture, weights = encoder_decoder_architecture_of(model)
    return CompiledEncoderDecoder(architecture, weights, capacity=capacity, batch=batch,
                                  source_capacity=source_capacity, dtype=dtype,
                                  block_size=block_size, **knobs)


def decoder_from_transformers(
    model: Any, *, capacity: int = 1024, batch: int = 1, dtype: str | None = None,
    block_size: int = BLOCK_SIZE, **knobs: Any,
) -> CompiledDecoder:
    """A decoder with the configuration and the weights of a transformers model.

    ``capacity`` is the largest number of tokens of a sequence, ``batch`` the number of sequences at
    a time, ``dtype`` (float32, bfloat16 or float16) that of weights, activations and caches: that
    of the model's weights by default. ``knobs`` are settings of ``weft.compile``.

    ``weft.models.transformers.families`` lists the types of models; others raise
    ``UnsupportedModelError``.
    """
    architecture, weights = architecture_of(model)
    return CompiledDecoder(architecture, weights, capacity=capacity, batch=batch,
                           dtype=dtype or weights.dtype, block_size=block_size, **knobs)
