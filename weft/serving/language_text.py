"""A ``TextModel`` from the files of a language model."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from weft import models
from weft.generation.constraint import MakeConstraint
from weft.generation.text.language_model import LanguageModel
from weft.models.decoder import Decoder
from weft.support.errors import OptionError


class LanguageText:
    """A ``LanguageModel`` as servers use it: one step at a time, for many texts at once.

    ``cached_prompts`` are tokens that the first slots of its decoder hold already. ``decoders``
    are those that share the work; the model's own one by default.
    """

    def __init__(self, model: LanguageModel, cached_prompts: Sequence[np.ndarray] = (),
                 decoders: Sequence[Decoder] = ()) -> None:
        self._model = model
        self.cached_prompts = tuple(cached_prompts)
        self.decoders = tuple(decoders) or (model.decoder,)

    @property
    def decoder(self) -> Decoder:
        return self.decoders[0]

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


def open_language_model(path: str, *, capacity: int | None = None, slots: int = 8,
                        adapters: Sequence[str] = (), caches: Sequence[str] = (), **knobs: Any
                        ) -> LanguageText:
    """The language model that ``weft.models.load`` reads, for ``slots`` sequences at a time.

    ``adapters`` are low-rank adapters, which change it; ``caches`` are files of
    ``LanguageModel.save_cache``, whose prompts are not read again. Raises ``OptionError`` for more
    of them than slots.
    """
    if len(caches) > slots:
        raise OptionError("a cache of a prompt needs a slot", expected=f"at most {slots}",
                          got=f"{len(caches)} caches", help="serve with more --slots")
    model = models.load(path, capacity=capacity, batch=slots, adapters=tuple(adapters), **knobs)
    return LanguageText(model, [model.load_cache(file, slot) for slot, file in enumerate(caches)])
