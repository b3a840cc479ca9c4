"""Chat templates: Jinja programs of model files, run in a sandbox."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from weft.support.errors import InvalidInputError, InvalidModelError, MissingToolError

# A template that needs more iterations of ``range``, or writes more text, has an error.
MOST_ITERATIONS = 1 << 16
MOST_CHARACTERS = 1 << 24


class ChatTemplate:
    """Writes messages, ``{"role": ..., "content": ...}`` each, as the prompt of a model.

    ``tokens`` are the texts that a template may name, such as ``bos_token``.
    """

    def __init__(self, source: str, tokens: Mapping[str, str]) -> None:
        self.source = source
        self._tokens = dict(tokens)
        environment = _environment()
        from jinja2 import TemplateError

        try:
            self._template = environment.from_string(source)
        except (TemplateError, RecursionError, MemoryError) as error:
            raise InvalidModelError("the chat template is not a template of Jinja", got=error
                                    ) from None

    def render(self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True,
               **variables: Any) -> str:
        """The prompt; raises ``InvalidInputError`` if the template refuses the messages."""
        text, budget = [], _Budget()
        names = {**self._tokens, **variables, "messages": list(messages), "range": budget.spend,
                 "add_generation_prompt": add_generation_prompt}
        written = 0
        try:
            for part in self._template.generate(names):
                text.append(part)
                written += len(part)
                if written > MOST_CHARACTERS:
                    raise InvalidInputError("the chat template writes without end")
        except InvalidInputError:
            raise
        except Exception as error:  # noqa: BLE001 - templates are programs of others
            raise InvalidInputError("the chat template failed", got=f"{type(error).__name__}: "
                                    f"{error}"[:200]) from None
        return "".join(text)


class _Budget:
    def __init__(self) -> None:
        self._left = MOST_ITERATIONS

    def spend(self, *bounds: int) -> range:
        """``range``, of as many numbers as are left."""
        found = range(*bounds)
        self._left -= len(found)
        if self._left < 0:
            raise InvalidInputError("the chat template loops too often",
                                    expected=f"at most {MOST_ITERATIONS} iterations")
        return found


def _environment() -> Any:
    try:
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError:
        raise MissingToolError("chat templates need the package jinja2",
                               help="pip install weft[language]") from None

    environment: Any = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    environment.filters["tojson"] = _to_json
    environment.globals.update(
        raise_exception=_refuse,
        strftime_now=lambda text: datetime.now().strftime(text))  # noqa: DTZ005
    return environment


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> None:
    raise InvalidInputError("the chat template refuses the messages", got=message)
