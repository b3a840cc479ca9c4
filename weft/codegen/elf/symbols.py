"""Symbol tables of ELF objects, to find undefined symbols before linking.

LLVM's in-memory loader aborts the process on an undefined symbol, so objects are checked first.
"""

from __future__ import annotations

import struct

from weft.support.dataclass import dataclass
from weft.support.errors import CodegenError

_SYMTAB = 2  # section type SHT_SYMTAB
_SYMBOL_BYTES = 24  # sizeof(Elf64_Sym)


@dataclass(frozen=True, slots=True)
class Symbol:
    """A named symbol; ``section`` is 0 if it is undefined. Offset and size are in bytes."""

    name: str
    section: int
    offset: int
    size: int
    is_global: bool

    @property
    def is_defined(self) -> bool:
        return self.section != 0


def symbols(obj: bytes) -> tuple[Symbol, ...]:
    """The named symbols of a 64-bit little-endian ELF object; ``CodegenError`` for other bytes."""
    if obj[:6] != b"\x7fELF\x02\x01":
        raise CodegenError("not a 64-bit little-endian ELF object")
    try:
        return tuple(s for s in _read(obj) if s.name)
    except (struct.error, IndexError, ValueError) as error:
        raise CodegenError("corrupt ELF object", got=error) from error


def _read(obj: bytes) -> list[Symbol]:
    (table,) = struct.unpack_from("<Q", obj, 40)
    entry, count = struct.unpack_from("<HH", obj, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", obj, table + entry * i) for i in range(count)]
    found: list[Symbol] = []
    for header in headers:
        if header[1] != _SYMTAB:
            continue
        offset, size, names = header[4], header[5], headers[header[6]][4]
        for position in range(offset, offset + size, _SYMBOL_BYTES):
            name, info, _, section, value, length = struct.unpack_from("<IBBHQQ", obj, position)
            start = names + name
            text = obj[start : obj.index(b"\0", start)].decode()
            found.append(Symbol(text, section, value, length, is_global=info >> 4 != 0))
    return found
