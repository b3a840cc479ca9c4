"""Encoder-decoders from transformers models: greedy tokens and beams equal those of eager torch."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from tests.seeded_models import seeded
from weft.models import (
    CompiledEncoderDecoder,
    RelativePositions,
    decoder_from_transformers,
    encoder_decoder_from_transformers,
)
from weft.support.errors import InvalidInputError, OptionError, UnsupportedModelError

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

TOKENS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}
_T5 = {"vocab_size": 211, "d_model": 48, "d_kv": 16, "d_ff": 96, "num_layers": 2, "num_heads": 4,
       "decoder_start_token_id": 0, **TOKENS}
_WHISPER = {"vocab_size": 211, "d_model": 48, "encoder_layers": 2, "decoder_layers": 2,
            "encoder_attention_heads": 4, "decoder_attention_heads": 6, "encoder_ffn_dim": 96,
            "decoder_ffn_dim": 80, "num_mel_bins": 20, "max_source_positions": 60,
            "max_target_positions": 256, "decoder_start_token_id": 3, **TOKENS}
# Name -> class, sizes, and factors of the matrices and of the embeddings: with those of the
# library's initialisation the models would repeat one token.
MODELS: dict[str, tuple[str, dict[str, Any], float, float]] = {
    "t5": ("T5", _T5, 4, 0.2),
    "t5_gated": ("T5", {**_T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False,
                        "num_decoder_layers": 1}, 6, 0.1),
    "whisper": ("Whisper", _WHISPER, 20, 2),
}


@functools.cache
def model_of(name: str) -> Any:
    kind, sizes, matrices, embeddings = MODELS[name]
    return seeded(f"{kind}ForConditionalGeneration", f"{kind}Config", sizes, matrices=matrices,
                  embeddings=embeddings)


def decoder_of(name: str, **sizes: Any) -> CompiledEncoderDecoder:
    return encoder_decoder_from_transformers(model_of(name), **{"capacity": 256, **sizes})


def sources_of(name: str) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    if name == "whisper":
        return [rng.normal(size=(20, 120)).astype(np.float32) for _ in range(3)]
    return [rng.integers(1, 211, count) for count in (7, 40, 1)]


def eager_tokens(name: str, source: np.ndarray, count: int, **options: Any) -> list[int]:
    key = "input_features" if name == "whisper" else "input_ids"
    # Whisper's own generate adds rules about timestamps.
    with torch.no_grad():
        found = transformers.GenerationMixin.generate(
            model_of(name), **{key: torch.from_numpy(source[None])}, max_new_tokens=count,
            do_sample=False, **options)
    return found[0, 1:].tolist()


@pytest.mark.sample(0.3, 2)
@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_200_greedy_tokens_are_those_of_eager_torch(name: str) -> None:
    """Three sources of different lengths at a time, in two slots."""
    sources = sources_of(name)
    found = weft.generate(decoder_of(name, batch=2), source=sources, max_new_tokens=200)
    for generation, source in zip(found, sources, strict=True):
        assert generation.tokens.tolist() == eager_tokens(name, source, 200)
    assert len({tuple(generation.tokens) for generation in found}) == 3


@pytest.mark.sample(0.2)
@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_beams_are_those_of_transformers(name: str) -> None:
    source = sources_of(name)[0]
    found = weft.generate(decoder_of(name, batch=3, capacity=32), source=source,
                          max_new_tokens=16, num_beams=3)
    wanted = eager_tokens(name, source, 16, num_beams=3, early_stopping=False)
    assert found.tokens.tolist() == wanted


@pytest.mark.sample(0.2)
@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_an_artifact_gives_the_same_tokens(name: str, tmp_path: Path) -> None:
    """Encoder and decoder are entry points of one file."""
    decoder, source = decoder_of(name, capacity=32), sources_of(name)[0]
    decoder.export(tmp_path / "model.weft", portable=False)
    loaded = weft.load(tmp_path / "model.weft")
    assert loaded.start_token == decoder.start_token
    found, wanted = (weft.generate(one, source=source, max_new_tokens=16).tokens
                     for one in (loaded, decoder))
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.slow
def test_a_draft_model_reads_the_same_source() -> None:
    source = sources_of("t5")[0]
    found = weft.generate(decoder_of("t5"), source=source, max_new_tokens=40,
                          assistant_model=decoder_of("t5_gated"))
    assert found.tokens.tolist() == eager_tokens("t5", source, 40)


@pytest.mark.slow
def test_bad_sources_leave_the_decoder_as_it_was() -> None:
    decoder, source = decoder_of("t5", source_capacity=8, capacity=16), sources_of("t5")[0]
    wanted = eager_tokens("t5", source, 8)
    for wrong, message in (([], "the prompt is empty"), ([1] * 9, "the source is too long"),
                           ([211], "outside the vocabulary"), (None, "needs a source"),
                           ([0.5], "tokens are a vector of integers")):
        with pytest.raises(InvalidInputError, match=message):
            weft.generate(decoder, source=wrong, max_new_tokens=8)
        found = weft.generate(decoder, source=source, max_new_tokens=8)
        assert found.tokens.tolist() == wanted
    with pytest.raises(InvalidInputError, match="a slot has no source"):
        decoder.prefill([0], [np.array([0])])
    whisper = decoder_of("whisper", capacity=16)
    with pytest.raises(InvalidInputError, match="the form of a spectrogram"):
        weft.generate(whisper, source=np.zeros((20, 119), np.float32), max_new_tokens=8)
    with pytest.raises(OptionError, match="the encoder fixes the number of positions"):
        decoder_of("whisper", source_capacity=61)


def test_models_without_encoder_are_refused() -> None:
    gpt2 = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=16, n_embd=8, n_layer=1, n_head=2))
    with pytest.raises(UnsupportedModelError, match="encoder-decoders of the type 'gpt2'"):
        encoder_decoder_from_transformers(gpt2)
    with pytest.raises(UnsupportedModelError, match="decoders of the type 't5'"):
        decoder_from_transformers(model_of("t5"))


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "most"), [(32, 128), (16, 20), (8, 300)])
def test_buckets_are_those_of_transformers(bidirectional: bool, buckets: int, most: int) -> None:
    from transformers.models.t5.modeling_t5 import T5Attention

    relative = np.arange(-600, 600)
    found = RelativePositions(buckets, most).bucket_of(relative, bidirectional=bidirectional)
    wanted = T5Attention._relative_position_bucket(
        torch.from_numpy(relative), bidirectional=bidirectional, num_buckets=buckets,
        max_distance=most)
    np.testing.assert_array_equal(found, wanted.numpy())
