"""Language models from folders: text in, text out, against NumPy in float64."""

from __future__ import annotations

import functools
import math
import random
import tempfile
from pathlib import Path

import numpy as np
import pytest

import weft
from tests.unit.generation.text.model_files import write_folder, write_json
from tests.unit.models import numpy_decoder
from weft.generation.text import LanguageModel
from weft.models.transformers.folder import architecture_of_folder
from weft.support.errors import (
    InvalidInputError,
    InvalidModelError,
    OptionError,
    UnsupportedModelError,
    WeftError,
)
from weft.support.safetensors_file import map_tensors


@functools.cache
def folder() -> Path:
    return write_folder(Path(tempfile.mkdtemp()))


@functools.cache
def model() -> LanguageModel:
    return weft.models.load(folder())


def expected_tokens(prompt: list[int], count: int) -> list[int]:
    architecture, weights = architecture_of_folder(folder())
    ids = list(prompt)
    for _ in range(count):
        ids.append(int(numpy_decoder.logits(architecture, weights, np.array(ids))[-1].argmax()))
    return ids[len(prompt):]


def test_greedy_text_is_that_of_the_reference() -> None:
    made, tokens = model(), []
    pieces = list(made.stream("Hi there", max_tokens=12, on_token=tokens.append))
    assert made.decoder.capacity == 96
    assert tokens == expected_tokens(made.tokens_of("Hi there"), 12)
    assert "".join(pieces) == made.generate("Hi there", max_tokens=12)


def test_sampling_depends_on_the_seed_alone() -> None:
    texts = [model().generate("a", max_tokens=20, temperature=1.0, top_p=0.9, seed=seed)
             for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_a_reply_ends_before_a_stop_text_and_inside_the_context() -> None:
    text = model().generate("Hi there", max_tokens=12)
    stop = text[3:5]
    assert model().generate("Hi there", max_tokens=12, stop=stop) == text[:text.find(stop)]
    assert len(model().tokens_of("x" * 90)) == 91
    tokens: list[int] = []
    list(model().stream("x" * 90, max_tokens=50, on_token=tokens.append))
    assert len(tokens) <= 5
    with pytest.raises(InvalidInputError, match="the prompt fills the context"):
        model().generate("x" * 96)
    with pytest.raises(OptionError, match="invalid text in stop"):
        model().generate("x", stop=[""])


def test_messages_are_written_by_the_chat_template() -> None:
    ids = model().tokens_of([{"role": "user", "content": "Hello"}])
    assert ids[0] == 256
    assert model().tokenizer.decode(ids) == "[user]Hello[assistant]"


def test_log_probabilities_and_perplexity() -> None:
    ids, found = model().log_probabilities("some text")
    architecture, weights = architecture_of_folder(folder())
    logits = numpy_decoder.logits(architecture, weights, np.array(ids[:-1]))
    wanted = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(found, wanted[np.arange(len(ids) - 1), ids[1:]], atol=1e-4)
    assert math.isclose(model().perplexity("some text"), math.exp(-found.mean()))
    assert len(model().log_probabilities("x" * 250)[1]) == 250


def test_embeddings_have_length_one() -> None:
    found = model().embed(["one text", "another", "one text"])
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-5)
    np.testing.assert_array_equal(found[0], found[2])
    assert found[0] @ found[1] < 0.999


def test_damaged_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidModelError, match="no such model"):
        weft.models.load(tmp_path / "none")
    write_folder(tmp_path)
    (tmp_path / "part-1.safetensors").unlink()
    with pytest.raises(InvalidModelError, match="a file cannot be read"):
        weft.models.load(tmp_path)
    write_folder(tmp_path, model_type="opt")
    with pytest.raises(UnsupportedModelError, match="type 'opt' are not supported"):
        weft.models.load(tmp_path)
    write_folder(tmp_path, num_attention_heads=8)
    with pytest.raises(InvalidModelError, match=r"invalid field 'layers.0.k'"):
        weft.models.load(tmp_path)
    write_folder(tmp_path)
    write_json(tmp_path / "tokenizer.json", {})
    with pytest.raises(InvalidModelError, match="the tokenizer cannot be read"):
        weft.models.load(tmp_path)


def mutated(data: bytes, rng: random.Random) -> bytes:
    """``data`` with bytes changed, cut off, or a number replaced by a huge one."""
    found = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        found[rng.randrange(len(found))] = rng.choice(b'0:9"{}[]-\xff\x00e')
    return bytes(found[:rng.randrange(len(found))] if rng.random() < 0.2 else found)


@pytest.mark.parametrize("name", ["config.json", "part-0.safetensors",
                                  "model.safetensors.index.json"])
def test_mutated_files_give_an_error_or_the_same_result(name: str, tmp_path: Path) -> None:
    rng, path = random.Random(name), write_folder(tmp_path) / name
    whole = path.read_bytes()
    size = 8 + int.from_bytes(whole[:8], "little") if name.endswith("safetensors") else len(whole)
    names = architecture_of_folder(tmp_path)[1].names()
    for _ in range(70):
        path.write_bytes(mutated(whole[:size], rng) + whole[size:])
        try:
            _, weights = architecture_of_folder(tmp_path)
        except WeftError:
            continue
        assert set(weights.names()) <= {*names, "output.weight"}


def test_headers_that_name_bytes_beyond_the_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    for header, message in (
            ('{"w":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,4]}}', "damaged"),
            ('{"w":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}}', "damaged"),
            ('{"w":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}', "damaged"),
            ('{"w":{"dtype":"F4","shape":[1],"data_offsets":[0,4]}}', "unknown dtype")):
        path.write_bytes(len(header).to_bytes(8, "little") + header.encode() + bytes(8))
        with pytest.raises(InvalidModelError, match=message):
            map_tensors(path)
    path.write_bytes((1 << 62).to_bytes(8, "little"))
    with pytest.raises(InvalidModelError, match="damaged"):
        map_tensors(path)
