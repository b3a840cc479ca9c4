"""Decoders from transformers models: 200 greedy tokens equal those of eager torch in float32."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import weft
from tests.seeded_models import seeded
from weft.generation import Sampling, beam_search, candidates
from weft.generation.beam import BeamSearch
from weft.generation.request import new_request
from weft.generation.sampling import GREEDY, RandomStream
from weft.generation.stopping import Stopping
from weft.models import CompiledDecoder, decoder_from_transformers
from weft.support.errors import InvalidModelError, UnsupportedModelError

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

TOKENS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
_SIZES = {"vocab_size": 211, "hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2,
          "num_attention_heads": 4, "max_position_embeddings": 512, **TOKENS}
_GROUPED = {**_SIZES, "num_key_value_heads": 2}
_GPT2 = {"vocab_size": 211, "n_embd": 48, "n_layer": 2, "n_head": 4, "n_positions": 256, **TOKENS}
_SOME_LOCAL = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 9}
# Name -> class of the model, class of the configuration, sizes.
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bloom": ("BloomForCausalLM", "BloomConfig",
              {"vocab_size": 211, "hidden_size": 48, "n_layer": 2, "n_head": 6, **TOKENS}),
    "gemma": ("GemmaForCausalLM", "GemmaConfig",
              {**_GROUPED, "num_key_value_heads": 1, "head_dim": 16}),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config",
               {**_GROUPED, **_SOME_LOCAL, "head_dim": 16, "query_pre_attn_scalar": 24}),
    "gemma3": ("Gemma3ForCausalLM", "Gemma3TextConfig", {**_GROUPED, **_SOME_LOCAL,
                                                         "head_dim": 16}),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", _GPT2),
    "llama": ("LlamaForCausalLM", "LlamaConfig", _GROUPED),
    "llama3": ("LlamaForCausalLM", "LlamaConfig",
               {**_GROUPED, "attention_bias": True, "rope_parameters": {
                   "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0,
                   "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                   "original_max_position_embeddings": 64}}),
    "mistral": ("MistralForCausalLM", "MistralConfig", {**_GROUPED, "sliding_window": 9}),
    "mixtral": ("MixtralForCausalLM", "MixtralConfig",
                {**_GROUPED, "num_local_experts": 4, "head_dim": 12}),
    "phi": ("PhiForCausalLM", "PhiConfig", _SIZES),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", _GROUPED),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", {**_GROUPED, "head_dim": 16}),
}


@functools.cache
def model_of(name: str) -> Any:
    return seeded(*MODELS[name])


def decoder_of(name: str, **sizes: Any) -> CompiledDecoder:
    return decoder_from_transformers(model_of(name), **{"capacity": 256, **sizes})


def eager_tokens(name: str, prompt: list[int], count: int, **options: Any) -> list[int]:
    return eager_tokens_of(model_of(name), prompt, count, **options)


def eager_tokens_of(model: Any, prompt: list[int], count: int, **options: Any) -> list[int]:
    with torch.no_grad():
        found = model.generate(
            torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
            max_new_tokens=count, do_sample=False, **options)
    return found[0, len(prompt):].tolist()


def check_greedy(name: str, count: int) -> None:
    prompt = [5, 17, 3, 101, 44, 8, 9]
    found = weft.generate(decoder_of(name, batch=1), prompt, max_new_tokens=count)
    assert found.tokens.tolist() == eager_tokens(name, prompt, count)


@pytest.mark.sample(0.2, 2)
@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_200_greedy_tokens_are_those_of_eager_torch(name: str) -> None:
    check_greedy(name, 200)


@pytest.mark.slow
def test_a_batch_of_different_lengths_gives_the_tokens_of_single_runs() -> None:
    prompts = [[5, 17, 3], [9] * 12, [1, 2], [5, 17, 3, 8]]
    found = weft.generate(decoder_of("llama", batch=3), prompts, max_new_tokens=30)
    for generation, prompt in zip(found, prompts, strict=True):
        assert generation.tokens.tolist() == eager_tokens("llama", prompt, 30)


@pytest.mark.slow
def test_a_draft_model_does_not_change_the_tokens() -> None:
    draft = decoder_of("llama", batch=1)
    found = weft.generate(decoder_of("qwen3", batch=1), [5, 17, 3], max_new_tokens=60,
                          assistant_model=draft)
    assert found.tokens.tolist() == eager_tokens("qwen3", [5, 17, 3], 60)


@pytest.mark.slow
@pytest.mark.parametrize(("beams", "penalty", "eos"), [(3, 1.0, None), (4, 0.5, 7), (2, 2.0, 19)])
def test_beams_are_those_of_transformers(beams: int, penalty: float, eos: int | None) -> None:
    decoder, prompt = decoder_of("gpt2", batch=4, capacity=64), [5, 17, 3]
    found = weft.generate(decoder, prompt, max_new_tokens=16, num_beams=beams,
                          length_penalty=penalty,
                          eos_token_id=eos)
    options = {"num_beams": beams, "length_penalty": penalty, "early_stopping": False}
    wanted = eager_tokens("gpt2", prompt, 16, eos_token_id=eos, pad_token_id=0, **options)
    assert found.tokens.tolist() == wanted
    request = new_request(decoder, prompt, sampling=GREEDY, stream=RandomStream(0),
                          stopping=Stopping(max_new_tokens=16, eos_token_id=eos))
    every = beam_search(decoder, request, BeamSearch(num_beams=beams, length_penalty=penalty))
    scores = [generation.score for generation in every]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.slow
def test_a_repetition_penalty_is_that_of_transformers() -> None:
    found = weft.generate(decoder_of("gpt2"), [5, 17, 3], max_new_tokens=40,
                          repetition_penalty=1.4)
    assert found.tokens.tolist() == eager_tokens("gpt2", [5, 17, 3], 40, repetition_penalty=1.4)


@pytest.mark.parametrize(("options", "warpers"), [
    ({"top_k": 7}, [("TopKLogitsWarper", 7)]),
    ({"top_p": 0.8}, [("TopPLogitsWarper", 0.8)]),
    ({"min_p": 0.1}, [("MinPLogitsWarper", 0.1)]),
    ({"top_k": 30, "top_p": 0.9, "min_p": 0.05},
     [("TopKLogitsWarper", 30), ("TopPLogitsWarper", 0.9), ("MinPLogitsWarper", 0.05)]),
])
def test_filters_are_those_of_transformers(
    options: dict[str, Any], warpers: list[tuple[str, float]],
) -> None:
    logits = np.random.default_rng(0).normal(0, 2, (4, 200)).astype(np.float32)
    scores = torch.from_numpy(logits) / 0.7
    for name, value in warpers:
        scores = getattr(transformers, name)(value)(None, scores)
    found = candidates(logits, Sampling(temperature=0.7, **options)).dense(200)
    np.testing.assert_allclose(found, torch.softmax(scores, -1).numpy(), atol=1e-5)


def test_unknown_models_are_refused() -> None:
    with pytest.raises(InvalidModelError, match="not a model of the transformers library"):
        decoder_from_transformers(torch.nn.Linear(2, 2))
    opt = transformers.OPTForCausalLM(transformers.OPTConfig(
        vocab_size=32, hidden_size=16, ffn_dim=16, num_hidden_layers=1, num_attention_heads=2,
        word_embed_proj_dim=16))
    with pytest.raises(UnsupportedModelError, match="'opt' are not supported"):
        decoder_from_transformers(opt)
    with pytest.raises(weft.errors.OptionError, match="exceeds the positions of the model"):
        decoder_of("gpt2", capacity=300)
    config = transformers.LlamaConfig(**_GROUPED, rope_parameters={
        "rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0})
    with pytest.raises(UnsupportedModelError, match="rotary embedding 'dynamic'"):
        decoder_from_transformers(transformers.LlamaForCausalLM(config))
