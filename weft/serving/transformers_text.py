"""A ``TextModel`` from a folder with the weights and the tokenizer of the transformers library."""

from __future__ import annotations

import importlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from weft.models.decoder import Decoder
from weft.models.transformers import decoder_from_transformers
from weft.support.errors import InvalidInputError, InvalidModelError, MissingToolError

_CAPACITY = 2048


class TransformersText:
    """A decoder with a tokenizer of transformers."""

    def __init__(self, decoder: Decoder, tokenizer: Any, end_tokens: Collection[int] = ()) -> None:
        self.decoder = decoder
        self.end_tokens = frozenset(end_tokens)
        self._tokenizer = tokenizer

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer(text)["input_ids"])

    def decode(self, tokens: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(list(tokens), skip_special_tokens=True,
                                           clean_up_tokenization_spaces=False)
        return text

    def chat_prompt(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        if self._tokenizer.chat_template is None:
            raise InvalidInputError("the model has no chat template", help="use /v1/completions")
        try:
            text = self._tokenizer.apply_chat_template(
                [dict(message) for message in messages], tokenize=False,
                add_generation_prompt=True)
        except Exception as error:  # noqa: BLE001 - a template is a program of its model
            raise InvalidInputError("the chat template of the model refuses the conversation",
                                    got=str(error)) from None
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])


def load_text_model(path: str, *, capacity: int | None = None, slots: int = 8, **knobs: Any
                    ) -> TransformersText:
    """The model of a folder, with ``slots`` sequences of up to ``capacity`` tokens at a time."""
    try:
        transformers: Any = importlib.import_module("transformers")
        importlib.import_module("torch")
    except ImportError:
        raise MissingToolError("a folder with a language model needs transformers and torch",
                               where=path, help='pip install "weft[torch]" transformers') from None
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(path, local_files_only=True)
        tokenizer = transformers.AutoTokenizer.from_pretrained(path, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise InvalidModelError("the language model cannot be read", where=path,
                                got=str(error)) from None
    longest = int(getattr(model.config, "max_position_embeddings", _CAPACITY))
    decoder = decoder_from_transformers(model, batch=slots, **knobs,
                                        capacity=min(longest, _CAPACITY)
                                        if capacity is None else capacity)
    ends = (model.generation_config.eos_token_id, model.config.eos_token_id,
            tokenizer.eos_token_id)
    tokens = [token for end in ends for token in (end if isinstance(end, list) else [end])]
    return TransformersText(decoder, tokenizer, {token for token in tokens if token is not None})
