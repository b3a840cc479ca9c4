"""``decoder_from_transformers``: the decoder of a transformers model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.models.architecture import Architecture, Weights
from weft.models.compiled_decoder import BLOCK_SIZE, CompiledDecoder
from weft.models.transformers.gpt import bloom, gpt2, phi
from weft.models.transformers.llama import llama_like
from weft.models.transformers.source import Source
from weft.support.errors import InvalidModelError, UnsupportedModelError

# Configuration's model_type -> the translation.
FAMILIES: dict[str, Callable[[Source], Architecture]] = {
    "bloom": bloom, "gpt2": gpt2, "phi": phi,
    **dict.fromkeys(("gemma", "gemma2", "gemma3_text", "llama", "mistral", "mixtral", "qwen2",
                     "qwen3"), llama_like),
}


def architecture_of(model: Any) -> tuple[Architecture, Weights]:
    """Architecture and weights of a transformers model for causal language modelling.

    Weights in float32 are shared with the model, not copied. Raises ``UnsupportedModelError`` for a
    model whose type or configuration weft does not know.
    """
    config = getattr(model, "config", None)
    kind = getattr(config, "model_type", None)
    if kind is None or not hasattr(model, "state_dict"):
        raise InvalidModelError("not a model of the transformers library",
                                got=type(model).__name__,
                                help="pass a model such as transformers.LlamaForCausalLM(config)")
    if kind not in FAMILIES:
        raise UnsupportedModelError(f"decoders of the type {kind!r} are not supported",
                                    expected=", ".join(sorted(FAMILIES)))
    source = Source(model)
    architecture = FAMILIES[kind](source)
    return architecture, Weights(source.arrays)


def decoder_from_transformers(
    model: Any, *, capacity: int = 1024, batch: int = 1, dtype: str = "float32",
    block_size: int = BLOCK_SIZE, **knobs: Any,
) -> CompiledDecoder:
    """A decoder with the configuration and the weights of a transformers model.

    ``capacity`` is the largest number of tokens of a sequence, ``batch`` the number of sequences at
    a time, ``dtype`` (float32, bfloat16 or float16) that of weights, activations and caches;
    ``knobs`` are settings of ``weft.compile``.

    Bloom, Gemma 1 to 3, GPT-2, Llama, Mistral, Mixtral, Phi 1 and 2, Qwen 2 and 3 are known; other
    models raise ``UnsupportedModelError``.
    """
    architecture, weights = architecture_of(model)
    return CompiledDecoder(architecture, weights, capacity=capacity, batch=batch, dtype=dtype,
                           block_size=block_size, **knobs)
