"""Colours for the languages of code blocks that Pygments does not know."""

from __future__ import annotations

from typing import ClassVar

from pygments.lexer import Lexer, RegexLexer
from pygments.lexers.python import PythonLexer
from pygments.lexers.special import TextLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String, Text


class WeftLexer(RegexLexer):
    """Programs of weft's language."""

    name = "weft"
    tokens: ClassVar = {"root": [
        (r"\s+", Text),
        (r"//.*?$|#.*?$", Comment),
        (r"/\*(?:.|\n)*?\*/", Comment),
        (r'"(?:\\.|[^"\\])*"', String),
        (r"\b(def|fn|let|if|else|match|type|extern|ref|as|in)\b", Keyword),
        (r"\b(Tensor|Tuple|Any|u?int\d+|b?float\d+\w*|bool)\b", Keyword.Type),
        (r"@[\w.]+", Name.Function),
        (r"%[\w.]+", Name.Variable),
        (r"-?\d+(\.\d+)?([eE][-+]?\d+)?\w*", Number),
        (r"[A-Za-z_][\w.]*(?=\()", Name.Builtin),
        (r"[A-Za-z_][\w.]*", Name),
        (r"[(){}\[\],;:]", Punctuation),
        (r"[^\s\w]", Operator),
    ]}


LEXERS: dict[str, type[Lexer]] = {
    "weft": WeftLexer,
    "weft-wrong": WeftLexer,
    "python-file": PythonLexer,
    "python-instruction": PythonLexer,
    "python-refused": PythonLexer,
    "loops": TextLexer,
}
