"""The sentences of a page in Markdown, without code, tables and headings."""

from __future__ import annotations

import re
from collections.abc import Iterator

_BLOCK = re.compile(r"^(`{3,}|:::).*?^\1$|^<!--.*?-->", re.MULTILINE | re.DOTALL)
_PARAGRAPH = re.compile(r"\n\s*\n|\n(?=\s*[-*] |\s*\d+\. |[|#>!])")
_END = re.compile(r"(?<=[.:;?!])\s+(?=[A-Z`*\[a-z])")
_CODE = re.compile(r"`[^`]*`")


def sentences(text: str) -> Iterator[str]:
    """Parts between full stops, semicolons and colons; a name in code is the word ``x``."""
    for paragraph in _PARAGRAPH.split(_BLOCK.sub("", text)):
        if not paragraph.lstrip().startswith(("|", "#", "!")):
            yield from _END.split(_CODE.sub("`x`", " ".join(paragraph.split())))


def is_list(sentence: str) -> bool:
    """Whether it lists names: half of its words are code."""
    return 2 * sentence.count("`x`") > len(sentence.split())
