"""Texts of a given form: JSON schemas, grammars and regular expressions, by ``llguidance``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from weft.generation.text.tokenizer import Tokenizer
from weft.support.errors import InvalidInputError, MissingToolError, OptionError, WeftError

KINDS = ("json_schema", "grammar", "regex")
# Between the parts of JSON: models that may write spaces without end do so.
_SPACES = r"(\n {0,32}| )?"
_LARGEST = 1 << 20  # characters of a grammar


class Grammar:
    """The tokens of a model that write texts of one form; ``start`` begins such a text.

    ``kind`` is ``json_schema`` (an object or its JSON), ``grammar`` (Lark's notation, or GBNF as
    llama.cpp reads it) or ``regex``. Raises ``OptionError`` for one that cannot be read.
    """

    def __init__(self, tokens: GrammarTokens, kind: str, source: str | Mapping[str, Any]) -> None:
        self._tokens = tokens
        self._matcher = tokens.library.LLMatcher(tokens.table, _definition(tokens.library, kind,
                                                                           source), log_level=0)
        if self._matcher.is_error():
            raise OptionError(f"an invalid {kind}", got=self._matcher.get_error()[:500])

    def start(self) -> GrammarConstraint:
        """The constraint of a new sequence."""
        return GrammarConstraint(self._matcher.deep_copy(), self._tokens.vocab_size)


class GrammarTokens:
    """The tokens of a model as the library knows them; made once for all grammars of a model."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        self.library = _library()
        self.vocab_size = vocab_size
        try:
            self.table = self.library.LLTokenizer(
                tokenizer.as_json(), n_vocab=max(vocab_size, tokenizer.vocab_size),
                eos_token=sorted(tokenizer.eos) or None)
        except Exception as error:  # noqa: BLE001 - the library raises Exception itself
            raise InvalidInputError("texts of a given form cannot be written with this tokenizer",
                                    got=str(error)[:200]) from None


class GrammarConstraint:
    """Allows the tokens that continue a text of the form, which ends where nothing can follow."""

    def __init__(self, matcher: Any, vocab_size: int) -> None:
        self._matcher = matcher
        self._vocab_size = vocab_size
        self.failure: WeftError | None = None

    def process(self, logits: np.ndarray) -> np.ndarray:
        """See ``Constraint``. Where no token may follow, all may, and the sequence fails."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        allowed = np.unpackbits(bits, bitorder="little")[:self._vocab_size].astype(bool)
        if self._failed() or not allowed.any():
            self.failure = self.failure or InvalidInputError(
                "no token of the model continues a text of this form")
            return logits
        return np.where(allowed, logits, np.float32(-np.inf))

    def accept(self, token: int) -> bool:
        """See ``Constraint``."""
        if self.failure is None:
            self._matcher.consume_token(token)
        return self._failed() or bool(self._matcher.is_stopped())

    def _failed(self) -> bool:
        if self.failure is None and self._matcher.is_error():
            self.failure = InvalidInputError("the form of the text cannot be followed any further",
                                             got=self._matcher.get_error()[:500])
        return self.failure is not None


def one_grammar(json_schema: str | Mapping[str, Any] | None, grammar: str | None,
                regex: str | None) -> tuple[str, str | Mapping[str, Any]] | None:
    """Kind and source of the form that is given, if any; ``OptionError`` for several."""
    given = [(kind, source) for kind, source in zip(KINDS, (json_schema, grammar, regex),
                                                    strict=True) if source is not None]
    if len(given) > 1:
        raise OptionError("a text has one form", expected=f"one of {', '.join(KINDS)}",
                          got=", ".join(kind for kind, _ in given))
    return given[0] if given else None


def _definition(library: Any, kind: str, source: str | Mapping[str, Any]) -> str:
    """The grammar as the library's matcher reads it."""
    is_schema = kind == "json_schema"
    if not isinstance(source, str) and not (is_schema and isinstance(source, Mapping)):
        raise OptionError(f"an invalid {kind}", got=type(source).__name__, expected="a text"
                          + (", or an object" if is_schema else ""))
    try:
        text = source if isinstance(source, str) else json.dumps(source)
        if is_schema:
            _check_schema(json.loads(text))
        if len(text) > _LARGEST:
            raise OptionError(f"the {kind} is too large", got=f"{len(text)} characters",
                              expected=f"at most {_LARGEST} characters")
        if is_schema:
            return str(library.LLMatcher.grammar_from_json_schema(
                text, defaults={"whitespace_pattern": _SPACES}))
        return str(library.grammar_from(kind, text))
    except (ValueError, TypeError, RecursionError) as error:
        raise OptionError(f"an invalid {kind}", got=str(error)[:500]) from None


def _check_schema(schema: Any) -> None:
    if not isinstance(schema, dict | bool):
        raise OptionError("an invalid json_schema", expected="an object", got=type(schema).__name__)


def _library() -> Any:
    try:
        import llguidance
    except ImportError:
        raise MissingToolError("texts of a given form need the package llguidance",
                               help="pip install weft[grammar]") from None
    return llguidance
