"""The server beside ``LanguageModel``: the same text for the same files."""

from __future__ import annotations

from starlette.testclient import TestClient

import weft
from tests.unit.generation.text.model_files import write_folder
from weft.serving import Catalogue, TextModel, create_app
from weft.serving.language_text import open_language_model


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
