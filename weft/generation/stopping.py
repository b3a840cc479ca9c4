"""When the generation of a sequence ends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np

from weft.models.decoder import check_count
from weft.support.dataclass import dataclass
from weft.support.errors import OptionError

FinishReason = Literal["eos", "stop_token", "stop_sequence", "length", "constraint",
                       "cancelled"]


@dataclass(frozen=True, kw_only=True)
class Stopping:
    """Stop conditions. The token or sequence that ends a generation is part of its result.

    ``max_new_tokens`` counts the generated tokens, ``max_length`` these and the prompt; at least
    one of them is given.
    """

    max_new_tokens: int | None = None
    max_length: int | None = None
    eos_token_id: int | None = None
    stop_tokens: frozenset[int] = frozenset()
    stop_sequences: tuple[tuple[int, ...], ...] = ()

    @staticmethod
    def make(
        vocab_size: int, *, max_new_tokens: int | None = None, max_length: int | None = None,
        eos_token_id: int | None = None, stop_tokens: Iterable[int] = (),
        stop_sequences: Iterable[Sequence[int]] = (),
    ) -> Stopping:
        """The conditions; ``OptionError`` for tokens that the model can never generate."""
        made = Stopping(
            max_new_tokens=max_new_tokens, max_length=max_length, eos_token_id=eos_token_id,
            stop_tokens=frozenset(_numbers("stop_tokens", stop_tokens)),
            stop_sequences=tuple(tuple(_numbers("stop_sequences", s)) for s in stop_sequences))
        made.check(vocab_size)
        return made

    def check(self, vocab_size: int) -> None:
        if self.max_new_tokens is None and self.max_length is None:
            raise OptionError("the generation would have no end",
                              help="give max_new_tokens= or max_length=")
        for name in ("max_new_tokens", "max_length"):
            value = getattr(self, name)
            if value is not None:
                check_count(name, value)
        known = {"eos_token_id": [] if self.eos_token_id is None else [self.eos_token_id],
                 "stop_tokens": self.stop_tokens,
                 "stop_sequences": [token for s in self.stop_sequences for token in s]}
        for name, tokens in known.items():
            for token in tokens:
                if not isinstance(token, (int, np.integer)) or not 0 <= token < vocab_size:
                    raise OptionError(f"a token of {name} is outside the vocabulary",
                                      expected=f"0 to {vocab_size - 1}", got=token)
        if not all(self.stop_sequences):
            raise OptionError("a stop sequence is empty", expected="at least one token")

    def limit(self, prompt: int) -> int:
        """The largest number of new tokens after a prompt of ``prompt`` tokens."""
        limits = [] if self.max_new_tokens is None else [self.max_new_tokens]
        if self.max_length is not None:
            if self.max_length <= prompt:
                raise OptionError("the prompt is as long as max_length",
                                  expected=f"max_length > {prompt}", got=self.max_length)
            limits.append(self.max_length - prompt)
        return min(limits)

    def reason(self, tokens: Sequence[int], limit: int) -> FinishReason | None:
        """Why generated ``tokens`` end with the last of them, or ``None``."""
        last = tokens[-1]
        if last == self.eos_token_id:
            return "eos"
        if last in self.stop_tokens:
            return "stop_token"
        if any(tuple(tokens[-len(s):]) == s for s in self.stop_sequences):
            return "stop_sequence"
        return "length" if len(tokens) >= limit else None


def _numbers(name: str, tokens: Iterable[int]) -> list[int]:
    """The tokens of a stop condition; ``OptionError`` for what is not a sequence of integers."""
    found = list(tokens) if isinstance(tokens, Iterable) and not isinstance(tokens, str) else None
    if found is None or not all(isinstance(token, (int, np.integer)) for token in found):
        raise OptionError(f"{name} are not tokens", expected="integers", got=tokens)
    return list(map(int, found))
