"""Encoders of texts from folders and GGUF files, beside transformers with the same weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

import weft
from tests.unit.cli.commands import run
from tests.unit.generation.text.gguf_files import write_contents
from tests.unit.generation.text.model_files import write_folder
from weft.support.errors import InvalidModelError, OptionError, UnsupportedModelError

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "##b", "##c", "cat", "dog", "!"]
SIZES = {"vocab_size": len(WORDS), "hidden_size": 24, "num_hidden_layers": 2,
         "num_attention_heads": 3, "intermediate_size": 40, "max_position_embeddings": 12}
TEXTS = ["a cat!", "Dog", "abc bb cat unknown dog a a a a a a a a a a", ""]
GGUF_NAMES = {
    "embeddings.word_embeddings": "token_embd", "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types", "embeddings.LayerNorm": "token_embd_norm",
    "attention.self.query": "attn_q", "attention.self.key": "attn_k",
    "attention.self.value": "attn_v", "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm", "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm"}


def weights() -> dict[str, np.ndarray]:
    rng, found = np.random.default_rng(0), {}
    width, inner = SIZES["hidden_size"], SIZES["intermediate_size"]
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings": (len(WORDS), width),
        "embeddings.position_embeddings": (12, width),
        "embeddings.token_type_embeddings": (2, width), "embeddings.LayerNorm": (width,)}
    for number in range(2):
        for name in list(GGUF_NAMES)[4:]:
            rows, columns = ((inner, width) if name.startswith("inter") else
                             (width, inner) if name == "output.dense" else (width, width))
            shape = (width,) if name.endswith("Norm") else (rows, columns)
            shapes[f"encoder.layer.{number}.{name}"] = shape
    for name, shape in shapes.items():
        found[f"{name}.weight"] = rng.normal(size=shape) / np.sqrt(shape[-1]) ** (len(shape) - 1)
        if name.startswith("encoder") or name.endswith("Norm"):
            found[f"{name}.bias"] = rng.normal(size=shape[0]) / 4
    return {name: array.astype(np.float32) for name, array in found.items()}


def write_encoder(folder: Path, **pooling: bool) -> Path:
    folder.mkdir()
    save_file(weights(), folder / "model.safetensors")
    made = Tokenizer(models.WordPiece({word: i for i, word in enumerate(WORDS)},
                                      unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    made.enable_padding(length=12)  # as files of sentence-transformers have it
    made.save(str(folder / "tokenizer.json"))
    files: dict[str, Any] = {
        "config.json": {"model_type": "bert", **SIZES},
        "sentence_bert_config.json": {"max_seq_length": 9},
        "modules.json": [{"type": f"sentence_transformers.models.{name}"}
                         for name in ("Transformer", "Pooling", "Normalize")],
        "1_Pooling/config.json": {"word_embedding_dimension": 24, "pooling_mode_mean_tokens": True,
                                  **pooling}}
    (folder / "1_Pooling").mkdir()
    for name, value in files.items():
        (folder / name).write_text(json.dumps(value), encoding="utf-8")
    return folder


def write_encoder_gguf(path: Path, **changes: Any) -> Path:
    arrays = {}
    for name, array in weights().items():
        module, kind = name.rsplit(".", 1)
        prefix, _, rest = module.removeprefix("encoder.layer.").partition(".")
        theirs = (f"blk.{prefix}.{GGUF_NAMES[rest]}" if prefix.isdecimal()
                  else GGUF_NAMES[module])
        arrays[f"{theirs}.{kind}"] = "f32", array
    tokens = [word if word.startswith("[") else word.removeprefix("##") if word[:2] == "##"
              else f"\u2581{word}" for word in WORDS]
    return write_contents(path, {
        "general.architecture": "bert", "bert.block_count": 2, "bert.context_length": 9,
        "bert.embedding_length": 24, "bert.attention.head_count": 3,
        "bert.attention.layer_norm_epsilon": 1e-12, "bert.pooling_type": 1,
        "tokenizer.ggml.model": "bert", "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.cls_token_id": 2, "tokenizer.ggml.seperator_token_id": 3, **changes},
        arrays)


def test_a_file_and_a_folder_give_the_same_vectors(tmp_path: Path, capsys) -> None:
    folder = write_encoder(tmp_path / "bert")
    model, file = (weft.models.load_encoder(path) for path in
                   (folder, write_encoder_gguf(tmp_path / "bert.gguf")))
    found = model.embed(TEXTS)
    assert found.shape == (4, 24)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-5)
    np.testing.assert_array_equal(file.embed(TEXTS), found)
    for row, text in zip(found, TEXTS, strict=True):  # what is beside a text changes nothing
        np.testing.assert_allclose(model.embed(text)[0], row, atol=1e-6)
    assert len(model.tokenizer.encode(TEXTS[2])) == 9
    assert not np.allclose(model.embed(TEXTS, pooling="cls"), found, atol=1e-2)
    with pytest.raises(OptionError, match="unknown pooling"):
        model.embed("a", pooling="sum")  # type: ignore[arg-type]
    code, out, _ = run(["embed", folder, "a cat!"], capsys)
    assert code == 0
    np.testing.assert_allclose(json.loads(out), found[0], atol=1e-6)


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
def test_vectors_are_those_of_transformers(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model = weft.models.load_encoder(write_encoder(tmp_path / "bert"))
    theirs = transformers.BertModel(transformers.BertConfig(**SIZES, attn_implementation="eager"),
                                    add_pooling_layer=False).eval()
    theirs.load_state_dict({name: torch.tensor(value) for name, value in weights().items()},
                           strict=False)
    for text in TEXTS:
        ids = torch.tensor([model.tokenizer.encode(text)])
        with torch.no_grad():
            states = theirs(ids).last_hidden_state[0].numpy()
        wanted = {"mean": states.mean(axis=0), "cls": states[0], "last": states[-1],
                  "max": states.max(axis=0)}
        for kind, vector in wanted.items():
            np.testing.assert_allclose(model.embed(text, pooling=kind)[0],
                                       vector / np.linalg.norm(vector), atol=1e-5)


def test_other_files_are_refused(tmp_path: Path) -> None:
    folder = write_encoder(tmp_path / "bert", pooling_mode_mean_sqrt_len_tokens=True)
    with pytest.raises(UnsupportedModelError, match="a pooling of the states"):
        weft.models.load_encoder(folder)
    (folder / "modules.json").write_text('[{"type": "x.Dense"}]', encoding="utf-8")
    with pytest.raises(UnsupportedModelError, match="modules behind the encoder"):
        weft.models.load_encoder(folder)
    with pytest.raises(UnsupportedModelError, match="no encoder of texts"):
        weft.models.load_encoder(write_folder(tmp_path / "llama"))
    with pytest.raises(UnsupportedModelError, match="'bert' are not supported"):
        weft.models.load(folder)
    for changes, message in (({"bert.attention.head_count": 5}, "num_attention_heads"),
                             ({"bert.block_count": 3}, "no such weight"),
                             ({"bert.pooling_type": 9}, "unknown pooling"),
                             ({"tokenizer.ggml.tokens": ["x"] * 40}, "does not match"),
                             ({"tokenizer.ggml.tokens": ["x"]}, "tokens around a text")):
        with pytest.raises((InvalidModelError, UnsupportedModelError), match=message):
            weft.models.load_encoder(write_encoder_gguf(tmp_path / "x.gguf", **changes))
