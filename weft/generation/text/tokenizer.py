"""Text as tokens of a model, and tokens as text, by the library ``tokenizers``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from weft.support.errors import InvalidInputError, InvalidModelError, MissingToolError

_UNFINISHED = "�"


class Tokenizer:
    """A tokenizer with the special tokens that begin and end texts of its model."""

    def __init__(self, tokens: Any, *, bos: int | None = None, eos: Iterable[int] = ()) -> None:
        self._tokens = tokens
        self.bos = bos
        self.eos = frozenset(eos)

    @staticmethod
    def of_file(path: Path, *, bos: str | None = None, eos: Iterable[str] = ()) -> Tokenizer:
        """The tokenizer of ``tokenizer.json``; ``bos`` and ``eos`` are texts of special tokens."""
        library = tokenizers_library()
        try:
            made = library.Tokenizer.from_file(str(path))
        except Exception as error:  # noqa: BLE001 - the library raises Exception itself
            raise InvalidModelError("the tokenizer cannot be read", where=path, got=error
                                    ) from None
        made.no_padding()
        made.no_truncation()
        ends = [made.token_to_id(text) for text in eos]
        return Tokenizer(made, bos=None if bos is None else made.token_to_id(bos),
                         eos=[token for token in ends if token is not None])

    @property
    def vocab_size(self) -> int:
        return int(self._tokens.get_vocab_size())

    def cut_after(self, most: int) -> None:
        """Encode the beginning of longer texts: ``most`` tokens with those around a text."""
        self._tokens.enable_truncation(most)

    def as_json(self) -> str:
        """The tokenizer as ``tokenizer.json`` describes it."""
        return str(self._tokens.to_str())

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """The tokens of a text; with ``special`` those that the model expects around a text."""
        if not isinstance(text, str):
            raise InvalidInputError("a text is expected", got=type(text).__name__)
        try:
            return list(self._tokens.encode(text, add_special_tokens=special).ids)
        except Exception as error:  # noqa: BLE001 - the library raises Exception itself
            raise InvalidInputError("the text cannot be written in tokens", got=error) from None

    def decode(self, tokens: Sequence[int], *, special: bool = False) -> str:
        """The text of tokens, without special ones unless ``special``."""
        return str(self._tokens.decode(list(tokens), skip_special_tokens=not special))

    def text_of(self, token: int | None) -> str:
        """How a token is written in the vocabulary; nothing for ``None``."""
        found = None if token is None else self._tokens.id_to_token(token)
        return found or ""

    def text_chunks(self, tokens: Iterable[int]) -> Iterator[tuple[int, str]]:
        """Each token with the text that it completes.

        A character of several tokens comes with its last one. Only the tokens since a complete
        chunk are decoded again, so that a long text takes linear time.
        """
        context: list[int] = []
        shown = 0
        for token in tokens:
            context.append(token)
            text = self.decode(context)
            if text.endswith(_UNFINISHED):
                yield token, ""
                continue
            chunk, before = text[shown:], self.decode(context[-1:])
            yield token, chunk
            # One token stays as context: decoders write the first chunk of a text differently.
            context, shown = context[-1:], len(before)


def tokenizers_library() -> Any:
    try:
        import tokenizers
    except ImportError:
        raise MissingToolError("tokenizers of models need the package tokenizers",
                               help="pip install weft[language]") from None
    return tokenizers
