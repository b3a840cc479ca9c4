"""Folders of Hugging Face, written by transformers and read without it: tokens equal its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import weft
from tests.models.test_decoders import _GROUPED, _SIZES, MODELS, eager_tokens_of
from tests.seeded_models import seeded
from weft.models import CompiledDecoder
from weft.models.transformers.folder import architecture_of_folder

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

_FALCON = {**_SIZES, "num_attention_heads": 4, "alibi": False}
# Name -> class of the model, class of the configuration, sizes.
FOLDERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    **MODELS,
    "falcon": ("FalconForCausalLM", "FalconConfig", {**_FALCON, "bias": True}),
    "falcon_new": ("FalconForCausalLM", "FalconConfig",
                   {**_FALCON, "new_decoder_architecture": True, "num_kv_heads": 2}),
    "gpt_neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", _SIZES),
    "olmo": ("OlmoForCausalLM", "OlmoConfig", _GROUPED),
    "olmo2": ("Olmo2ForCausalLM", "Olmo2Config", _GROUPED),
    "phi3": ("Phi3ForCausalLM", "Phi3Config", _GROUPED),
    "smollm3": ("SmolLM3ForCausalLM", "SmolLM3Config", {**_GROUPED, "num_hidden_layers": 4}),
    "stablelm": ("StableLmForCausalLM", "StableLmConfig",
                 {**_GROUPED, "hidden_size": 64, "use_qkv_bias": True}),
    "yarn": ("LlamaForCausalLM", "LlamaConfig", {**_GROUPED, "rope_parameters": {
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
        "original_max_position_embeddings": 64}}),
}


@pytest.mark.sample(0.1)
@pytest.mark.slow
@pytest.mark.parametrize("name", FOLDERS)
def test_tokens_of_a_folder_are_those_of_eager_torch(name: str, tmp_path: Path) -> None:
    model, prompt = seeded(*FOLDERS[name]), [5, 17, 3, 101, 44, 8, 9]
    model.save_pretrained(tmp_path, max_shard_size="60KB")
    architecture, weights = architecture_of_folder(tmp_path)
    decoder = CompiledDecoder(architecture, weights, capacity=64, dtype=weights.dtype)
    found = weft.generate(decoder, prompt, max_new_tokens=40)
    assert found.tokens.tolist() == eager_tokens_of(model, prompt, 40)


@pytest.mark.slow
def test_weights_in_bfloat16_stay_so(tmp_path: Path) -> None:
    seeded(*FOLDERS["llama"]).to(torch.bfloat16).save_pretrained(tmp_path)
    _, weights = architecture_of_folder(tmp_path)
    assert weights.dtype == "bfloat16"
    assert not weights["layers.0.q.weight"].flags.owndata  # mapped, not copied
