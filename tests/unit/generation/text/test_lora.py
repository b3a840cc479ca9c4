"""Low-rank adapters: in float weights, and beside weights in blocks, without compiling."""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import weft
from tests.unit.generation.text import block_reference
from tests.unit.generation.text.gguf_files import WIDTH, write_gguf
from tests.unit.generation.text.model_files import HIDDEN, INNER, LAYERS, write_folder
from tests.unit.models import numpy_decoder
from weft.generation.text import LanguageModel
from weft.generation.text.load import read_files
from weft.models import Weights
from weft.models.adapters import with_adapters
from weft.support.errors import InvalidInputError
from weft.topi.nn.block_formats import FORMATS

SIZES = {"self_attn.q_proj": (HIDDEN, HIDDEN), "self_attn.v_proj": (HIDDEN // 2, HIDDEN),
         "mlp.down_proj": (HIDDEN, INNER)}


def adapter(layers: int, sizes: dict[str, tuple[int, int]], rank: int = 4) -> dict[str, np.ndarray]:
    """A random adapter with the names of peft."""
    rng, found = np.random.default_rng(3), {}
    for number in range(layers):
        for name, (out, into) in sizes.items():
            key = f"base_model.model.model.layers.{number}.{name}"
            found[f"{key}.lora_A.weight"] = rng.normal(size=(rank, into)) / np.sqrt(rank)
            found[f"{key}.lora_B.weight"] = 2 * rng.normal(size=(out, rank)) / np.sqrt(into)
    return {name: array.astype(np.float32) for name, array in found.items()}


@functools.cache
def folder() -> Path:
    return write_folder(Path(tempfile.mkdtemp()))


def written(path: Path, tensors: dict[str, np.ndarray], **config: object) -> Path:
    path.mkdir()
    save_file(tensors, path / "adapter_model.safetensors")
    (path / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    return path


def reply(model: LanguageModel, prompt: str, count: int) -> list[int]:
    tokens: list[int] = []
    list(model.stream(prompt, max_tokens=count, on_token=tokens.append))
    return tokens


def expected(model: LanguageModel, weights: Weights, prompt: str, count: int) -> list[int]:
    ids, start = model.tokens_of(prompt), len(model.tokens_of(prompt))
    for _ in range(count):
        logits = numpy_decoder.logits(model.decoder.architecture, weights, np.array(ids))[-1]
        ids.append(int(logits.argmax()))
        if ids[-1] in model.tokenizer.eos:
            break
    return ids[start:]


def test_adapters_come_and_go_without_compiling(tmp_path: Path) -> None:
    model, tensors = weft.models.load(folder()), adapter(LAYERS, SIZES)
    before, vector = reply(model, "Hi", 10), model.embed("Hi")
    model.apply_lora(written(tmp_path / "a", tensors, lora_alpha=8), scale=0.5)
    files = read_files(folder())
    assert files.rows is not None
    deltas = model._weights.read(tensors, 1.0)
    changed = files.weights.changed(with_adapters(files.weights, [deltas]))
    after = reply(model, "Hi", 10)
    assert after == expected(model, changed, "Hi", 10) != before
    assert not np.allclose(model.embed("Hi"), vector, atol=1e-3)
    model.save_cache("Hi", tmp_path / "cache")
    model.remove_lora()
    assert reply(model, "Hi", 10) == before
    with pytest.raises(InvalidInputError, match="another model"):
        model.generate("Hi", cache=tmp_path / "cache")
    model.apply_lora(tensors)
    assert reply(model, "Hi", 10) == after


def test_adapters_run_beside_blocks() -> None:
    path = write_gguf(Path(tempfile.mkdtemp()) / "q4_0.gguf", "q4_0")
    sizes = {"self_attn.q_proj": (WIDTH, WIDTH), "self_attn.k_proj": (WIDTH // 2, WIDTH),
             "mlp.gate_proj": (WIDTH, WIDTH)}
    tensors = adapter(1, sizes)
    model = weft.models.load(path, adapters=[tensors], activations="float32")
    files = read_files(path)
    expanded = {name: files.weights[name] if (blocks := files.weights.blocks(name)) is None else
                block_reference.elements("q4_0", blocks.data, FORMATS["q4_0"].nbytes)
                for name in files.weights.names()}
    base = Weights(expanded)
    deltas = model._weights.read(tensors, 1.0)
    assert reply(model, "ab", 6) == expected(
        model, base.changed(with_adapters(base, [deltas])), "ab", 6)
    # Rows of queries are those of the file, in which a head has pairs of neighbours.
    rows = tensors["base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight"]
    np.testing.assert_array_equal(deltas.pairs["layers.0.q"][1][1], rows[WIDTH // 16])
    with pytest.raises(InvalidInputError, match="larger rank"):
        model.apply_lora(tensors)
    model.remove_lora()
    assert reply(model, "ab", 6) == expected(model, base, "ab", 6)


@pytest.mark.parametrize(("change", "message"), [
    ({"model.layers.0.self_attn.q_proj.lora_A.weight": np.ones((2, 5), np.float32),
      "model.layers.0.self_attn.q_proj.lora_B.weight": np.ones((HIDDEN, 2), np.float32)},
     "does not fit the weight"),
    ({"lm_head.lora_A.weight": np.ones((2, HIDDEN), np.float32),
      "lm_head.lora_B.weight": np.ones((260, 2), np.float32)}, "adapters do not change"),
    ({"model.layers.9.mlp.up_proj.lora_A.weight": np.ones((2, HIDDEN), np.float32),
      "model.layers.9.mlp.up_proj.lora_B.weight": np.ones((INNER, 2), np.float32)},
     "what the model lacks"),
    ({"model.layers.0.mlp.up_proj.weight": np.ones((2, 2), np.float32)}, "no part of a low-rank"),
])
def test_adapters_that_do_not_fit(change: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        weft.models.load(folder(), adapters=[change])


def test_blocks_without_room_say_what_to_do() -> None:
    path = write_gguf(Path(tempfile.mkdtemp()) / "q4_0.gguf", "q4_0")
    model = weft.models.load(path)
    with pytest.raises(InvalidInputError, match="lora_rank=4"):
        model.apply_lora(adapter(1, {"mlp.gate_proj": (WIDTH, WIDTH)}))
