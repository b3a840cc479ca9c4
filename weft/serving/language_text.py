"""A ``TextModel`` from the files of a language model."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from weft import models
from weft.generation.constraint import MakeConstraint
from weft.generation.text.language_model import LanguageModel
from weft.models.decoder import Decoder


class LanguageText:
    """A ``LanguageModel`` as servers use it: one step at a time, for many texts at once."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model

    @property
    def decoder(self) -> Decoder:
        return self._model.decoder

    @property
    def end_tokens(self) -> Collection[int]:
        return self._model.tokenizer.eos

    def encode(self, text: str) -> list[int]:
        return self._model.tokens_of(text)

    def decode(self, tokens: Sequence[int]) -> str:
        return self._model.tokenizer.decode(tokens)

    def chat_prompt(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        return self._model.tokens_of(messages)

    def constraint(self, json_schema: Mapping[str, Any]) -> MakeConstraint:
        made = self._model.constraint(json_schema=json_schema)
        assert made is not None
        return made


def open_language_model(path: str, *, capacity: int | None = None, slots: int = 8, **knobs: Any
                        ) -> LanguageText:
    """The language model that ``weft.models.load`` reads, for ``slots`` sequences at a time."""
    return LanguageText(models.load(path, capacity=capacity, batch=slots, **knobs))
