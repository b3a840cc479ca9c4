"""Small language models that tests write as files: seeded weights, and a tokenizer of bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

HIDDEN, HEADS, KV_HEADS, INNER, LAYERS = 32, 4, 2, 64, 2
CONFIG: dict[str, Any] = {
    "model_type": "llama", "vocab_size": 260, "hidden_size": HIDDEN, "intermediate_size": INNER,
    "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
    "rms_norm_eps": 1e-5, "max_position_embeddings": 96, "eos_token_id": 257,
}
TEMPLATE = ("{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
            "{% if add_generation_prompt %}[assistant]{% endif %}")


def byte_tokenizer() -> Tokenizer:
    """A token per byte; 256 begins texts, 257 ends them."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({char: i for i, char in enumerate(alphabet)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken("<s>", special=True), AddedToken("</s>", special=True)])
    made.post_processor = processors.TemplateProcessing(single="<s> $A",
                                                        special_tokens=[("<s>", 256)])
    return made


def llama_weights(seed: int = 0, tied: bool = False) -> dict[str, np.ndarray]:
    rng, size = np.random.default_rng(seed), HIDDEN // HEADS

    def matrix(*shape: int) -> np.ndarray:
        return (rng.normal(size=shape) * 2 / np.sqrt(shape[1])).astype(np.float32)

    def norm() -> np.ndarray:
        return (1 + 0.1 * rng.normal(size=HIDDEN)).astype(np.float32)

    found = {"model.embed_tokens.weight": matrix(260, HIDDEN), "model.norm.weight": norm()}
    if not tied:
        found["lm_head.weight"] = matrix(260, HIDDEN)
    for number in range(LAYERS):
        layer = f"model.layers.{number}."
        for name, rows, columns in (
                ("self_attn.q_proj", HIDDEN, HIDDEN), ("self_attn.k_proj", KV_HEADS * size, HIDDEN),
                ("self_attn.v_proj", KV_HEADS * size, HIDDEN), ("self_attn.o_proj", HIDDEN, HIDDEN),
                ("mlp.gate_proj", INNER, HIDDEN), ("mlp.up_proj", INNER, HIDDEN),
                ("mlp.down_proj", HIDDEN, INNER)):
            found[f"{layer}{name}.weight"] = matrix(rows, columns)
        for name in ("input_layernorm", "post_attention_layernorm"):
            found[f"{layer}{name}.weight"] = norm()
    return found


def write_folder(folder: Path, **config: Any) -> Path:
    """A Llama in two safetensors files, with the fields ``config`` changed."""
    folder.mkdir(exist_ok=True)
    arrays, files = llama_weights(), {}
    for number in range(2):
        part = {name: array for i, (name, array) in enumerate(sorted(arrays.items()))
                if i % 2 == number}
        save_file(part, folder / f"part-{number}.safetensors")
        files |= dict.fromkeys(part, f"part-{number}.safetensors")
    write_json(folder / "model.safetensors.index.json", {"weight_map": files})
    write_json(folder / "config.json", {**CONFIG, **config})
    write_json(folder / "tokenizer_config.json", {
        "bos_token": "<s>", "eos_token": {"content": "</s>"}, "chat_template": TEMPLATE})
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    return folder


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")
