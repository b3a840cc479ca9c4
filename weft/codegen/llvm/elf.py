"""Reading the symbols of an ELF object, to refuse what could not be linked.

LLVM's loader ends the process where a symbol is missing, so nobody may hand it such an object.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from weft.support.errors import CodegenError

_SYMTAB = 2


@dataclass(frozen=True, slots=True)
class Symbol:
    """A named symbol; ``section`` 0 means that another object must define it."""

    name: str
    section: int
    offset: int
    size: int
    is_global: bool

    @property
    def is_defined(self) -> bool:
        return self.section != 0


def symbols(obj: bytes) -> tuple[Symbol, ...]:
    """The named symbols of a little-endian 64-bit object; ``CodegenError`` if it is not one."""
    if obj[:6] != b"\x7fELF\x02\x01":
        raise CodegenError("not a 64-bit little-endian ELF object")
    try:
        return tuple(s for s in _read(obj) if s.name)
    except (struct.error, IndexError, ValueError) as error:
        raise CodegenError("a damaged ELF object", got=error) from error


def _read(obj: bytes) -> list[Symbol]:
    (table,) = struct.unpack_from("<Q", obj, 40)
    entry, count = struct.unpack_from("<HH", obj, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", obj, table + entry * i) for i in range(count)]
    found: list[Symbol] = []
    for header in headers:
        if header[1] != _SYMTAB:
            continue
        offset, size, names = header[4], header[5], headers[header[6]][4]
        for place in range(offset, offset + size, 24):
            name, info, _other, section, value, length = struct.unpack_from("<IBBHQQ", obj, place)
            start = names + name
            text = obj[start : obj.index(b"\0", start)].decode()
            found.append(Symbol(text, section, value, length, is_global=info >> 4 != 0))
    return found
