"""The server beside ``LanguageModel``: the same text for the same files."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

import weft
from tests.unit.generation.text.model_files import LAYERS, write_folder
from tests.unit.generation.text.test_lora import SIZES, adapter, written
from weft.serving import Catalogue, TextModel, create_app
from weft.serving.language_text import open_language_model
from weft.serving.loading import FilesOfModels
from weft.support.errors import OptionError


def test_a_folder_is_served_with_its_tokenizer_and_chat_template(tmp_path):
    folder = write_folder(tmp_path / "llama")
    text = open_language_model(str(folder), slots=1)
    assert isinstance(text, TextModel)
    model = text._model

    def expected(prompt, count: int) -> str:
        found = weft.generate(model.decoder, model.tokens_of(prompt), max_new_tokens=count,
                              stop_tokens=model.tokenizer.eos)
        return model.tokenizer.decode(found.tokens)

    messages = [{"role": "user", "content": "Grüße"}]
    with TestClient(create_app(Catalogue([], {"llama": text}))) as client:
        found = client.post("/v1/chat/completions", json={
            "model": "llama", "messages": messages, "temperature": 0, "max_tokens": 16}).json()
        several = client.post("/v1/completions", json={
            "model": "llama", "prompt": ["Hi there", "a", "b"], "temperature": 0,
            "max_tokens": 12}).json()
    assert found["choices"][0]["message"]["content"] == expected(messages, 16)
    assert [choice["text"] for choice in several["choices"]] == [
        expected(prompt, 12) for prompt in ("Hi there", "a", "b")]


def completed(text, prompt: str, count: int) -> str:
    with TestClient(create_app(Catalogue([], {"m": text}))) as client:
        found = client.post("/v1/completions", json={
            "model": "m", "prompt": prompt, "temperature": 0, "max_tokens": count}).json()
    return found["choices"][0]["text"]


def test_adapters_and_caches_of_prompts_are_those_of_the_library(tmp_path):
    folder = str(write_folder(tmp_path / "llama"))
    path = str(written(tmp_path / "adapter", adapter(LAYERS, SIZES)))
    model = weft.models.load(folder, adapters=[path])
    system, asked = "You are a compiler.", "You are a compiler. Hello"
    model.save_cache(system, tmp_path / "cache")
    options = {"adapters": (path,), "caches": (str(tmp_path / "cache"),)}
    text = open_language_model(folder, slots=2, **options)
    read = []
    prefill = text.decoder.prefill
    text.decoder.prefill = lambda slots, ids: read.append(sum(map(len, ids))) or prefill(slots, ids)
    expected = model.generate(asked, max_tokens=12)
    assert completed(text, asked, 12) == expected
    assert expected != weft.models.load(folder).generate(asked, max_tokens=12)
    assert sum(read) == len(model.tokens_of(asked)) - len(model.tokens_of(system))
    with pytest.raises(OptionError, match="needs a slot"):
        open_language_model(folder, slots=1, caches=["a", "b"])


def test_files_belong_to_all_language_models_or_to_a_named_one(tmp_path):
    class Text:
        decoder = None

    files = FilesOfModels("--lora", ["all", "m=own", "other=x"])
    assert files.of("m") == ("all", "own")
    catalogue = Catalogue([])
    catalogue.texts["m"] = Text()
    with pytest.raises(OptionError, match="--lora") as error:
        files.check(catalogue)
    assert error.value.got == "other=x"
    FilesOfModels("--lora", ["all", "m=own"]).check(catalogue)
    with pytest.raises(OptionError, match="--lora"):
        FilesOfModels("--lora", ["all"]).check(Catalogue([]))
