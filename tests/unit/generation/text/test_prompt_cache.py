"""What was computed of a prompt, in a file: the same reply, without reading the prompt again."""

from __future__ import annotations

import functools
import random
import tempfile
from pathlib import Path

import numpy as np
import pytest

import weft
from tests.unit.generation.text.model_files import write_folder
from tests.unit.generation.text.test_load_folder import mutated
from weft.generation.text import LanguageModel
from weft.generation.text.prompt_cache import identity_of
from weft.models.decoder import Decoder
from weft.models.transformers.folder import architecture_of_folder
from weft.support.errors import InvalidInputError, InvalidModelError, WeftError
from weft.support.safetensors_file import map_tensors, write_tensors

PROMPT = "a prompt that is longer than a block of the caches"


@functools.cache
def model() -> LanguageModel:
    return weft.models.load(write_folder(Path(tempfile.mkdtemp())), block_size=16)


def read_tokens(decoder: Decoder, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of tokens that calls of ``prefill`` read from now on."""
    counts: list[int] = []
    prefill = decoder.prefill

    def counted(slots, ids):
        counts.extend(len(row) for row in ids)
        return prefill(slots, ids)

    monkeypatch.setattr(decoder, "prefill", counted)
    return counts


def test_a_reply_starts_from_the_cache(tmp_path, monkeypatch) -> None:
    path, wanted = tmp_path / "prompt.cache", model().generate(PROMPT, max_tokens=12)
    model().save_cache(PROMPT, path)
    assert list(tmp_path.iterdir()) == [path]
    counts = read_tokens(model().decoder, monkeypatch)
    assert model().generate(PROMPT, max_tokens=12, cache=path) == wanted
    assert counts == [1]  # the last token, whose logits are needed
    longer = PROMPT + " and more"
    without = model().generate(longer, max_tokens=12)
    assert model().generate(longer, max_tokens=12, cache=path) == without
    assert model().generate("Other", max_tokens=4, cache=path) == \
        model().generate("Other", max_tokens=4)


def test_caches_of_other_models_and_sizes_are_refused(tmp_path) -> None:
    path = tmp_path / "prompt.cache"
    model().save_cache(PROMPT, path)
    arrays = {name: read() for name, read in map_tensors(path).items()}
    other = write_folder(tmp_path / "other", rms_norm_eps=1e-3)
    identity = np.frombuffer(identity_of(*architecture_of_folder(other)), np.uint8)
    for changes, message in (
            ({"model": identity}, "another model"),
            ({"tokens": np.zeros(97, np.int64)}, "does not fit into the context"),
            ({"tokens": np.zeros(3, np.int64)}, "other sizes"),
            ({"cache.0000": arrays["cache.0000"].astype(np.float16)}, "another dtype")):
        write_tensors(path, {**arrays, **changes})
        with pytest.raises(InvalidInputError, match=message):
            model().generate("a", cache=path)
    with pytest.raises(InvalidModelError, match="cannot be read"):
        model().generate("a", cache=tmp_path / "none")
    write_tensors(path, {"x": np.zeros(3, np.float32)})
    with pytest.raises(InvalidInputError, match="not the cache of a prompt"):
        model().generate("a", cache=path)
    with pytest.raises(InvalidModelError, match="cannot be written"):
        model().save_cache("a", tmp_path / "none" / "file")


def test_mutated_caches_give_an_error_or_a_reply(tmp_path) -> None:
    path, rng = tmp_path / "prompt.cache", random.Random(0)
    model().save_cache("ab", path)
    whole = path.read_bytes()
    head = 8 + int.from_bytes(whole[:8], "little")
    assert map_tensors(path).keys() == {"model", "tokens", *(f"cache.000{i}" for i in range(4))}
    for _ in range(60):
        path.write_bytes(mutated(whole[:head], rng) + whole[head:])
        try:
            assert isinstance(model().generate("ab", max_tokens=1, cache=path), str)
        except WeftError:
            continue
