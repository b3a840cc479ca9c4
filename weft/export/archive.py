"""Static libraries in the form of ``ar``."""

from __future__ import annotations

import struct

from weft.codegen.objects.symbols import object_symbols


def static_library(code: bytes) -> bytes:
    """A static library of one relocatable object, with an index of its global symbols.

    Equal objects give equal bytes: the member has no date and no owner.
    """
    names = [s.name for s in object_symbols(code) if s.is_defined and s.is_global]
    text = b"".join(name.encode() + b"\0" for name in names)
    # The index lists, for each symbol, where the header of its member is.
    size = 4 * (1 + len(names)) + len(text)
    at = len(_MAGIC) + _HEADER_BYTES + size + size % 2
    index = struct.pack(f">{1 + len(names)}I", len(names), *[at] * len(names)) + text
    return _MAGIC + _member("/", index) + _member("model.o/", code)


_MAGIC = b"!<arch>\n"
_HEADER_BYTES = 60


def _member(name: str, content: bytes) -> bytes:
    """A member with its header of text in columns; members start at even places."""
    header = f"{name:16}{0:<12}{0:<6}{0:<6}{644:<8}{len(content):<10}`\n"
    return header.encode() + content + b"\n" * (len(content) % 2)
