"""Requests of OpenAI's interface, checked: what to generate, how, and in which form."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Any

from weft.generation.constraint import MakeConstraint
from weft.generation.sampling import GREEDY, Sampling
from weft.serving.text_model import TextModel
from weft.support.dataclass import dataclass
from weft.support.errors import InvalidInputError

MAX_CHOICES = 16
_LEGACY_MAX_TOKENS = 16  # OpenAI's default for /v1/completions
# Fields that change the reply in ways that the server does not offer, and their neutral values.
_UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "tools": ([],), "functions": ([],), "logprobs": (False, 0), "top_logprobs": (0,),
    "logit_bias": ({},), "presence_penalty": (0,), "frequency_penalty": (0,),
    "suffix": ("",), "echo": (False,), "best_of": (1,),
    "modalities": (["text"],), "audio": (),
}
_ROLES = ("system", "developer", "user", "assistant")


@dataclass(frozen=True)
class TextRequest:
    """``prompts`` are tokens; each gets ``choices`` replies of up to ``max_tokens`` tokens."""

    model: str
    chat: bool
    prompts: tuple[list[int], ...]
    sampling: Sampling
    max_tokens: int
    seed: int
    stop: tuple[str, ...]
    choices: int
    stream: bool
    include_usage: bool
    constraint: MakeConstraint | None = None


def model_name(body: Any) -> str:
    """The model that a request names."""
    if not isinstance(body, dict):
        raise InvalidInputError("the request is not a JSON object", got=type(body).__name__)
    if not isinstance(body.get("model"), str):
        raise InvalidInputError("the request names no model", expected="'model': a string",
                                got=type(body.get("model")).__name__)
    return body["model"]


def parse_text_request(body: Mapping[str, Any], model: TextModel, *, chat: bool) -> TextRequest:
    """The request of a body; ``InvalidInputError`` and ``OptionError`` for an invalid one.

    Encodes the prompts, which takes time: call it in a thread.
    """
    for name, neutral in _UNSUPPORTED.items():
        if body.get(name) is not None and body[name] not in neutral:
            raise InvalidInputError(f"{name!r} is not supported", got=body[name])
    read = _Fields(body)
    prompts = (_conversation(body.get("messages"), model),) if chat \
        else _prompts(body.get("prompt"), model)
    options = read.get("stream_options", "an object", lambda v: isinstance(v, dict), {})
    seed = read.integer("seed", -2**63, 2**64 - 1, secrets.randbits(63))
    return TextRequest(
        body["model"], chat, prompts, _sampling(read), _max_tokens(read, prompts, model, chat),
        seed % 2**64, _stop(read), read.integer("n", 1, MAX_CHOICES, 1),
        read.boolean("stream"), options.get("include_usage") is True,
        _constraint(body.get("response_format"), model))


class _Fields:
    """The optional fields of a body; ``null`` is as good as none."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        self._body = body

    def get(self, name: str, expected: str, valid: Callable[[Any], bool], default: Any) -> Any:
        value = self._body.get(name)
        if value is None:
            return default
        if not valid(value):
            raise InvalidInputError(f"invalid {name!r}", expected=expected, got=value)
        return value

    def integer(self, name: str, low: int, high: int, default: Any) -> Any:
        return self.get(name, f"an integer from {low} to {high}",
                        lambda v: type(v) is int and low <= v <= high, default)

    def number(self, name: str, low: float, high: float, default: float) -> float:
        return self.get(name, f"a number from {low:g} to {high:g}",
                        lambda v: type(v) in (int, float) and low <= v <= high, default)

    def boolean(self, name: str) -> bool:
        return self.get(name, "true or false", lambda v: isinstance(v, bool), False)


def _constraint(given: Any, model: TextModel) -> MakeConstraint | None:
    """That of ``response_format``: a text, an object in JSON, or JSON with a schema."""
    kind = given.get("type") if isinstance(given, dict) else given
    if kind in (None, "text"):
        return None
    described = given.get("json_schema") if isinstance(given, dict) else None
    schema = ({"type": "object"} if kind == "json_object" else
              described.get("schema") if isinstance(described, dict) else None)
    if kind not in ("json_object", "json_schema") or not isinstance(schema, dict):
        raise InvalidInputError(
            "invalid 'response_format'", got=given, expected="an object of the type 'text', "
            "'json_object', or 'json_schema' with 'json_schema': {'schema': an object}")
    if not hasattr(model, "constraint"):  # a class of before there were constraints
        raise InvalidInputError("'response_format' is not supported by this model", got=kind)
    return model.constraint(schema)


def _sampling(read: _Fields) -> Sampling:
    temperature = read.number("temperature", 0, 2, 1.0)
    penalty = read.number("repetition_penalty", 1e-3, 1e3, 1.0)
    top_p, top_k = read.number("top_p", 0, 1, 1.0), read.integer("top_k", -1, 2**31, None)
    min_p = read.number("min_p", 0, 1, 0.0)
    if temperature == 0:
        return GREEDY if penalty == 1 else Sampling(repetition_penalty=penalty)
    return Sampling(temperature=float(temperature), top_p=top_p, min_p=min_p,
                    top_k=top_k if top_k and top_k > 0 else None, repetition_penalty=penalty)


def _max_tokens(read: _Fields, prompts: tuple[list[int], ...], model: TextModel, chat: bool) -> int:
    capacity, longest = model.decoder.capacity, max(map(len, prompts))
    room = capacity - longest
    if room < 1:
        raise InvalidInputError("the prompt is longer than the context of the model",
                                expected=f"fewer than {capacity} tokens", got=longest)
    default = room if chat else min(_LEGACY_MAX_TOKENS, room)
    asked = read.integer("max_tokens", 1, 2**31, default)
    asked = read.integer("max_completion_tokens", 1, 2**31, asked)
    if asked > room:
        raise InvalidInputError("the prompt and its reply do not fit into the context of the model",
                                expected=f"at most {capacity} tokens",
                                got=f"{longest} + {asked} tokens")
    return asked


def _stop(read: _Fields) -> tuple[str, ...]:
    def valid(value: Any) -> bool:
        strings = [value] if isinstance(value, str) else value
        return isinstance(strings, list) and len(strings) <= 16 and all(
            isinstance(s, str) and 0 < len(s) <= 1000 for s in strings)

    given = read.get("stop", "a string, or a list of at most 16 strings", valid, [])
    return (given,) if isinstance(given, str) else tuple(given)


def _prompts(given: Any, model: TextModel) -> tuple[list[int], ...]:
    """A text, tokens, or a list of either."""
    if isinstance(given, str):
        return (_encoded(given, model),)
    if isinstance(given, list) and given:
        if _are_tokens(given):
            return (given,)
        if len(given) <= MAX_CHOICES and all(isinstance(p, str) or _are_tokens(p) for p in given):
            return tuple(_encoded(p, model) if isinstance(p, str) else p for p in given)
    raise InvalidInputError("invalid 'prompt'", got=type(given).__name__, expected=
                            f"a text, tokens, or a list of at most {MAX_CHOICES} of either")


def _are_tokens(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(
        type(token) is int and 0 <= token < 2**62 for token in value)


def _encoded(text: str, model: TextModel) -> list[int]:
    tokens = model.encode(text)
    if not tokens:
        raise InvalidInputError("the prompt has no tokens", expected="a text that is not empty")
    return tokens


def _conversation(given: Any, model: TextModel) -> list[int]:
    if not isinstance(given, list) or not given:
        raise InvalidInputError("invalid 'messages'", expected="a list of messages",
                                got=type(given).__name__)
    return model.chat_prompt([_message(entry) for entry in given])


def _message(entry: Any) -> dict[str, str]:
    if not isinstance(entry, dict) or entry.get("role") not in _ROLES:
        raise InvalidInputError("a message has no known role", expected=", ".join(_ROLES),
                                got=entry.get("role") if isinstance(entry, dict) else entry)
    return {"role": entry["role"], "content": _text(entry.get("content"))}


def _text(content: Any) -> str:
    """The text of a message: a string, or parts of the type ``text``."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [None]
    texts = [part["text"] for part in parts if isinstance(part, dict)
             and part.get("type") == "text" and isinstance(part.get("text"), str)]
    if len(texts) < len(parts):
        raise InvalidInputError("the content of a message is not text", got=type(content).__name__)
    return "".join(texts)
