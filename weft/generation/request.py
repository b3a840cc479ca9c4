"""A request: a prompt, how to continue it, and the tokens generated so far."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.generation.constraint import Constraint
from weft.generation.sampling import RandomStream, Sampling
from weft.generation.stopping import FinishReason, Stopping
from weft.models.decoder import Decoder, EncoderDecoder, check_tokens
from weft.support.dataclass import dataclass
from weft.support.errors import InvalidInputError

OnToken = Callable[[int], object]


@dataclass(frozen=True)
class Generation:
    """The result of a request: ``prompt`` and the new ``tokens`` (int64 vectors), and why it ended.

    ``score`` is the sum of the logarithms of the probabilities over the number of tokens to the
    power of the length penalty, if the tokens come from a beam search.
    """

    prompt: np.ndarray
    tokens: np.ndarray
    finish_reason: FinishReason
    score: float | None = None

    @property
    def sequence(self) -> np.ndarray:
        """Prompt and new tokens."""
        return np.concatenate([self.prompt, self.tokens])


class Request:
    """One sequence of a ``Session``: made by ``Session.submit``, read by its owner.

    ``source`` is what the encoder of an encoder-decoder reads; ``None`` of other models.
    """

    def __init__(self, prompt: np.ndarray, sampling: Sampling, stopping: Stopping, limit: int,
                 stream: RandomStream, on_token: OnToken | None = None,
                 source: np.ndarray | None = None, constraint: Constraint | None = None) -> None:
        self.prompt = prompt
        self.sampling = sampling
        self.stopping = stopping
        self.limit = limit
        self.stream = stream
        self.on_token = on_token
        self.source = source
        self.constraint = constraint
        self.tokens: list[int] = []
        self.finish_reason: FinishReason | None = None
        self._buffer = np.empty(len(prompt) + limit, np.int64)
        self._buffer[:len(prompt)] = prompt

    @property
    def finished(self) -> bool:
        return self.finish_reason is not None

    @property
    def known(self) -> np.ndarray:
        """Prompt and generated tokens, int64."""
        return self._buffer[:len(self.prompt) + len(self.tokens)]

    def check(self) -> None:
        """Raise the error that has ended the sequence before its constraint was met, if any."""
        if self.constraint is not None and self.constraint.failure is not None:
            raise self.constraint.failure

    def append(self, token: int) -> None:
        """Add a generated token, and finish if a stop condition holds."""
        self._buffer[len(self.prompt) + len(self.tokens)] = token
        self.tokens.append(token)
        is_whole = self.constraint is not None and self.constraint.accept(token)
        self.finish_reason = self.stopping.reason(self.tokens, self.limit)
        if is_whole and self.finish_reason in (None, "length"):
            self.finish_reason = "constraint"

    def result(self) -> Generation:
        """The generation; ``InvalidInputError`` if the request has not finished, or has failed."""
        if self.finish_reason is None:
            raise InvalidInputError("the request has not finished", help="call Session.run()")
        self.check()
        return Generation(self.prompt, np.array(self.tokens, np.int64), self.finish_reason)


def as_prompt(ids: Sequence[int] | np.ndarray, vocab_size: int) -> np.ndarray:
    """A prompt as an int64 vector; ``InvalidInputError`` if it is empty or has unknown tokens."""
    try:
        found = np.asarray(ids)
    except ValueError:
        raise InvalidInputError("a prompt is a vector of tokens", got=type(ids).__name__) from None
    if not found.size:
        found = found.astype(np.int64)
    check_tokens(found, vocab_size)
    return found.astype(np.int64)


def as_source(decoder: Decoder, source: Any) -> np.ndarray | None:
    """A source as an array; ``InvalidInputError`` unless the decoder reads it."""
    if isinstance(decoder, EncoderDecoder):
        if source is None:
            raise InvalidInputError("an encoder-decoder needs a source", got=None,
                                    help="pass source=: what the encoder reads")
        found = np.asarray(source)
        if not found.size and not isinstance(source, np.ndarray):
            found = found.astype(np.int64)
        decoder.check_source(found)
        return found
    if source is not None:
        raise InvalidInputError("this decoder has no encoder for a source",
                                got=type(source).__name__)
    return None


def encode(decoder: Decoder, slot: int, source: np.ndarray | None) -> None:
    """Empty a slot, and let its sequences attend to ``source`` if there is one."""
    if source is None:
        decoder.free(slot)
    else:
        assert isinstance(decoder, EncoderDecoder)
        decoder.encode([slot], [source])


def new_request(
    decoder: Decoder, ids: Sequence[int] | np.ndarray, *, sampling: Sampling, stopping: Stopping,
    stream: RandomStream, on_token: OnToken | None = None, source: Any = None,
    constraint: Constraint | None = None,
) -> Request:
    """A request after all checks. An encoder-decoder needs a ``source``; no other model has one.

    Raises ``InvalidInputError`` for an invalid prompt, or one whose continuation may overflow the
    cache, and ``OptionError`` for invalid stop conditions.
    """
    source = as_source(decoder, source)
    prompt = as_prompt(ids, decoder.vocab_size)
    stopping.check(decoder.vocab_size)
    limit = stopping.limit(len(prompt))
    if len(prompt) + limit > decoder.capacity:
        raise InvalidInputError(
            "the prompt and its continuation do not fit into the cache",
            expected=f"at most {decoder.capacity} tokens", got=f"{len(prompt)} + {limit} tokens",
            help="ask for fewer tokens, or make the decoder with a larger capacity=")
    return Request(prompt, sampling, stopping, limit, stream, on_token, source, constraint)
