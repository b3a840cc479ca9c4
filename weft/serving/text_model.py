"""``TextModel``: a decoder with a tokenizer, and what turns its tokens into text part by part."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from weft.generation.constraint import MakeConstraint
from weft.models.decoder import Decoder

_INCOMPLETE = "\ufffd"  # what tokenizers give for a character whose last bytes are missing
_LONGEST_CHARACTER = 8  # tokens; what is incomplete after more of them is no text


@runtime_checkable
class TextModel(Protocol):
    """A language model that reads and writes text."""

    @property
    def decoder(self) -> Decoder:
        """The model; its slots are the sequences that are generated at the same time."""
        ...

    @property
    def end_tokens(self) -> Collection[int]:
        """The tokens that end a reply; their text is not part of it."""
        ...

    def encode(self, text: str) -> list[int]:
        """The tokens of a prompt, with those that begin a text."""
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without special ones."""
        ...

    def chat_prompt(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """The tokens of a conversation (``role`` and ``content`` each) up to the next reply.

        ``InvalidInputError`` if the model has no chat template, or it refuses the conversation.
        """
        ...

    def constraint(self, json_schema: Mapping[str, Any]) -> MakeConstraint:
        """The maker of the constraint of a reply in JSON with this schema.

        ``OptionError`` for an invalid schema, and ``InvalidInputError`` if the model has no such
        constraints.
        """
        ...


class TextStream:
    """The text of a growing sequence of tokens, in parts that never split a character.

    A tokenizer's text of two tokens is not the text of each, so the tokens since the last complete
    part are decoded again, behind those of the part before.
    """

    def __init__(self, model: TextModel) -> None:
        self._model = model
        self._tokens: list[int] = []
        self._before = 0  # the tokens of the last part begin here
        self._read = 0  # and end here

    def feed(self, token: int) -> str:
        """The text that ``token`` completes; empty if a character is not complete yet."""
        self._tokens.append(token)
        return self._next(whole=False)

    def finish(self) -> str:
        """The rest of the text."""
        return self._next(whole=True)

    def _next(self, *, whole: bool) -> str:
        known = self._model.decode(self._tokens[self._before:self._read])
        text = self._model.decode(self._tokens[self._before:])
        waits = text.endswith(_INCOMPLETE) and len(self._tokens) - self._read < _LONGEST_CHARACTER
        if len(text) <= len(known) or (waits and not whole):
            return ""
        self._before, self._read = self._read, len(self._tokens)
        return text[len(known):]


class StopStrings:
    """Passes text on up to the first of some strings, and holds back what may begin one."""

    def __init__(self, strings: Sequence[str]) -> None:
        self._strings = tuple(strings)
        self._held = ""
        self.found = False

    def feed(self, text: str) -> str:
        """The text that is known to stand before any stop string."""
        if self.found:
            return ""
        held = self._held + text
        starts = [held.find(string) for string in self._strings if string in held]
        if starts:
            self.found, self._held = True, ""
            return held[:min(starts)]
        keep = max((_overlap(held, string) for string in self._strings), default=0)
        self._held = held[len(held) - keep:]
        return held[:len(held) - keep]

    def finish(self) -> str:
        """The text that was held back, once none follows."""
        rest, self._held = self._held, ""
        return rest


def _overlap(text: str, string: str) -> int:
    """The length of the longest end of ``text`` that begins ``string``."""
    return next((n for n in range(min(len(text), len(string) - 1), 0, -1)
                 if string.startswith(text[-n:])), 0)
