"""Texts of a given form: JSON schemas, grammars, regular expressions."""

from __future__ import annotations

import functools
import json
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models

import weft
from tests.unit.generation.text.model_files import write_folder
from tests.unit.generation.tiny_decoder import TinyDecoder
from weft.generation.text import LanguageModel, Tokenizer
from weft.generation.text.grammar import Grammar, GrammarTokens
from weft.serving import Catalogue, create_app
from weft.serving.language_text import LanguageText
from weft.support.errors import InvalidInputError, OptionError

SCHEMA = {"type": "object", "properties": {"name": {"enum": ["ab", "abc"]},
                                           "count": {"type": "integer", "minimum": 0,
                                                     "maximum": 120}},
          "required": ["name", "count"], "additionalProperties": False}


@functools.cache
def model() -> LanguageModel:
    return weft.models.load(write_folder(Path(tempfile.mkdtemp())))


@pytest.mark.parametrize("temperature", [None, 1.5])
def test_json_has_its_schema(temperature: float | None) -> None:
    for schema in (SCHEMA, json.dumps(SCHEMA)):
        found = json.loads(model().generate("x", json_schema=schema, temperature=temperature,
                                            max_tokens=80))
        assert set(found) == {"name", "count"}
        assert found["name"] in ("ab", "abc")
        assert 0 <= found["count"] <= 120


def test_a_reply_ends_where_its_form_ends() -> None:
    tokens: list[int] = []
    text = "".join(model().stream("x", regex="[0-9]{3}-(é|ü)", on_token=tokens.append))
    assert re.fullmatch(r"[0-9]{3}-[éü]", text)
    assert len(tokens) == 6  # no token for the end of the text is asked of the model
    lark = 'start: "a" [b] "c"\nb: "b" | "b" b\n'
    gbnf = 'root ::= "a" b? "c"\nb ::= "b" | "b" b\n'
    for grammar in (lark, gbnf):
        assert re.fullmatch("ab*c", model().generate("x", grammar=grammar, temperature=1.0))
    assert model().generate("x", regex="abc", max_tokens=2) == "ab"
    assert model().generate("x", regex="") == ""


@pytest.mark.parametrize(("form", "message"), [
    ({"regex": "a["}, "invalid regex"), ({"grammar": "start: nothing"}, "invalid grammar"),
    ({"json_schema": "{"}, "invalid json_schema"), ({"json_schema": "3"}, "an object"),
    ({"json_schema": {"type": "nothing"}}, "invalid json_schema"),
    ({"json_schema": {"type": b"x"}}, "invalid json_schema"),
    ({"grammar": "x" * (1 << 21)}, "too large"), ({"regex": 3}, "expected: a text"),
    ({"regex": "a", "json_schema": {}}, "one form"),
])
def test_forms_that_cannot_be_read(form: dict, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        model().generate("x", **form)


def test_a_text_that_no_token_continues_fails() -> None:
    library = Library(models.BPE({"a": 0, "b": 1, "c": 2}, []))
    library.decoder = decoders.ByteLevel()
    tokenizer = Tokenizer(library, eos=[2])
    grammar = Grammar(GrammarTokens(tokenizer, 3), "regex", "abz")
    with pytest.raises(InvalidInputError, match=r"no token of the model|followed any further"):
        weft.generate(TinyDecoder(vocab_size=3), [0], max_new_tokens=8, constraint=grammar.start)
    tokenizer = Tokenizer(Library(models.BPE({"a": 0, "b": 1, "c": 2}, [])), eos=[2])
    with pytest.raises(InvalidInputError, match="with this tokenizer"):
        GrammarTokens(tokenizer, 3)


def test_constraints_belong_to_prompts_and_refuse_beams() -> None:
    made = model().constraint(regex="[ab]{4}c")
    assert made is not None
    prompts = [model().tokens_of(text) for text in ("x", "some words", "z")]
    found = weft.generate(model().decoder, prompts, max_new_tokens=20, constraint=made)
    for generation in found:
        assert re.fullmatch("[ab]{4}c", model().tokenizer.decode(generation.tokens))
        assert generation.finish_reason == "constraint"
    with pytest.raises(OptionError, match="cannot be combined"):
        weft.generate(model().decoder, [1], max_new_tokens=4, constraint=made, num_beams=2)


def test_only_what_is_processed_is_allowed() -> None:
    class Even:
        failure = None

        def process(self, logits: np.ndarray) -> np.ndarray:
            return np.where(np.arange(len(logits)) % 2, np.float32(-np.inf), logits)

        def accept(self, token: int) -> bool:
            return token == 4

    found = weft.generate(TinyDecoder(vocab_size=8), [1], max_new_tokens=30, temperature=2.0,
                          constraint=Even)
    assert not (found.tokens % 2).any()
    assert (found.tokens == 4).sum() == (found.finish_reason == "constraint")


def test_the_route_of_openai_replies_in_json() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 60}
    post: Callable[..., dict]
    with TestClient(create_app(Catalogue([], {"m": LanguageText(model())}))) as client:
        def post(format: object) -> dict:
            return client.post("/v1/chat/completions", json={**body, "response_format": format}
                               ).json()

        found = post({"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}})
        text = found["choices"][0]["message"]["content"]
        assert set(json.loads(text)) == {"name", "count"}
        assert found["choices"][0]["finish_reason"] == "stop"
        assert post({"type": "json_object"})["choices"][0]["message"]["content"].startswith("{")
        for wrong in ({"type": "json_schema"}, {"type": "xml"}, "json"):
            assert "response_format" in post(wrong)["error"]["message"]
        wrong = {"type": "json_schema", "json_schema": {"schema": {"type": "nothing"}}}
        assert "invalid json_schema" in post(wrong)["error"]["message"]
