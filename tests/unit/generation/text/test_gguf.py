"""Language models from GGUF files, whose weights stay in their blocks."""

from __future__ import annotations

import functools
import random
import struct
import tempfile
from pathlib import Path

import numpy as np
import pytest

import weft
from tests.unit.generation.text import block_reference
from tests.unit.generation.text.gguf_files import metadata, write_gguf
from tests.unit.generation.text.test_load_folder import mutated
from tests.unit.models import numpy_decoder
from weft import ir, op
from weft.generation.text import LanguageModel
from weft.generation.text.gguf_tokenizer import gguf_tokenizer
from weft.models import Weights
from weft.models.gguf.reader import read_gguf
from weft.models.gguf.translate import architecture_of_gguf
from weft.support.errors import InvalidModelError, UnsupportedModelError, WeftError
from weft.topi.nn.block_formats import FORMATS


@functools.cache
def file_of(kind: str) -> Path:
    return write_gguf(Path(tempfile.mkdtemp()) / f"{kind}.gguf", kind)


@functools.cache
def model_of(kind: str) -> LanguageModel:
    return weft.models.load(file_of(kind), activations="float32")


def test_blocks_have_the_elements_of_the_specification() -> None:
    for kind in block_reference.READERS:
        blocks = architecture_of_gguf(read_gguf(file_of(kind)))[1].blocks("layers.0.k.weight")
        form = FORMATS[kind]
        assert blocks is not None
        wanted = block_reference.elements(kind, blocks.data[:3], form.nbytes)
        x = ir.var("x", (blocks.shape[1], blocks.shape[1]), "float32")
        y = op.nn.block_quantized_dense(x, ir.Constant(blocks.data[:3]), format=kind)
        module = weft.compile(ir.infer_type(ir.IRModule.from_expr(ir.Function((x,), y))))
        found = module(np.eye(blocks.shape[1], dtype=np.float32))
        np.testing.assert_allclose(found.T, wanted, rtol=1e-6)


@pytest.mark.parametrize("kind", ["q4_0", "q6_k"])
def test_tokens_are_those_of_the_expanded_weights(kind: str) -> None:
    architecture, weights = architecture_of_gguf(read_gguf(file_of(kind)))
    expanded = {}
    for name in weights.names():
        blocks = weights.blocks(name)
        expanded[name] = (weights[name] if blocks is None else block_reference.elements(
            kind, blocks.data, FORMATS[kind].nbytes))
    model, tokens = model_of(kind), list[int]()
    list(model.stream("ab cd", max_tokens=6, on_token=tokens.append))
    ids = model.tokens_of("ab cd")
    assert ids[:2] == [256, 258]
    for token in tokens:
        logits = numpy_decoder.logits(architecture, Weights(expanded), np.array(ids))[-1]
        assert token == logits.argmax()
        ids.append(token)
    assert all(layer.rotary is not None and layer.rotary.interleaved
               for layer in architecture.layers)


def test_activations_are_rounded_unless_asked() -> None:
    made = weft.models.load(file_of("q4_0"))
    assert "8 q4_0" in made.explain()
    assert "read activations as int8" in made.explain()
    assert "read activations as float32" in model_of("q4_0").explain()
    text = "some words"
    np.testing.assert_allclose(made.log_probabilities(text)[1],
                               model_of("q4_0").log_probabilities(text)[1], atol=0.5)


def test_no_weight_is_expanded_in_memory() -> None:
    """The constants of the program take the bytes of the file; arrays of weights are views."""
    held = model_of("q4_0").decoder.executable.manifest.constants_bytes
    assert held < 1.05 * file_of("q4_0").stat().st_size
    blocks = architecture_of_gguf(read_gguf(file_of("q4_0")))[1].blocks("output.weight")
    assert blocks is not None
    assert not blocks.data.flags.owndata


def test_mutated_files_give_an_error_or_a_model() -> None:
    rng, whole = random.Random(4), file_of("q4_0").read_bytes()
    path, head = file_of("q4_0").with_name("mutated.gguf"), whole.index(b"token_embd") + 300
    for _ in range(200):
        path.write_bytes(mutated(whole[:head], rng) + whole[head:])
        try:
            read = read_gguf(path)
            architecture_of_gguf(read)
            gguf_tokenizer(read.metadata, 260)
        except WeftError:
            continue


@pytest.mark.parametrize(("data", "message"), [
    (b"GGML" + bytes(20), "damaged"),
    (b"GGUF" + struct.pack("<IQQ", 9, 0, 0), "unknown version"),
    (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0), "damaged"),
    (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1 << 62), "damaged"),
    (b"GGUF" + struct.pack("<IQQQ1sIIQ", 3, 0, 1, 1, b"k", 9, 4, 1 << 61), "damaged"),
    (b"GGUF" + struct.pack("<IQQQ1sIQQIQ", 3, 1, 0, 1, b"w", 2, 1 << 33, 1 << 33, 0, 0), "damaged"),
    (b"GGUF" + struct.pack("<IQQQ1sIQIQ", 3, 1, 0, 1, b"w", 1, 32, 99, 0), "unknown type"),
    (b"GGUF" + struct.pack("<IQQQ1sIQIQ", 3, 1, 0, 1, b"w", 1, 33, 2, 0), "whole blocks"),
])
def test_hostile_headers_are_refused(data: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(data)
    with pytest.raises((InvalidModelError, UnsupportedModelError), match=message):
        read_gguf(path)


def test_other_architectures_and_sizes_are_refused(tmp_path: Path) -> None:
    for changes, message in (
            ({"general.architecture": "mamba"}, "architecture 'mamba' are not supported"),
            ({"llama.block_count": 7}, "block_count"),
            ({"llama.expert_count": 8}, "experts without the tensor"),
            ({"llama.attention.head_count": 3}, "invalid field"),
            ({"tokenizer.ggml.pre": "unheard"}, "'unheard' is not supported"),
            ({"tokenizer.ggml.tokens": ["x"] * 300}, "does not match the vocabulary")):
        with pytest.raises((InvalidModelError, UnsupportedModelError), match=message):
            weft.models.load(write_gguf(tmp_path / "x.gguf", **changes))


def test_a_tokenizer_by_scores_falls_back_to_bytes() -> None:
    words = ["\u2581", *"abthe", "th", "the", "\u2581the", "\u2581a", "ab", "he"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *words]
    made = gguf_tokenizer({
        "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [0.0] * 259 + [-float(i) for i in range(len(words))],
        "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * len(words),
        "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2}, len(tokens))
    ids = made.encode("the ab th\u00e9")
    assert [tokens[i] for i in ids] == ["<s>", "\u2581the", "\u2581a", "b", "\u2581", "th",
                                        "<0xC3>", "<0xA9>"]
    assert made.decode(ids) == "the ab th\u00e9"
    assert "".join(text for _, text in made.text_chunks(ids)) == "the ab th\u00e9"
    assert made.eos == {2}
    assert metadata()["tokenizer.ggml.model"] == "gpt2"
