"""Relocatable ELF objects: an object of data, and making symbols of an object local."""

from __future__ import annotations

import struct
from collections.abc import Collection

from weft.support.dataclass import dataclass
from weft.support.errors import CodegenError

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_PROGBITS, _SYMTAB, _STRTAB, _RELA, _GROUP = 1, 2, 3, 4, 17
_ALLOCATED = 2
_GLOBAL_OBJECT = 0x11  # binding and type of a symbol, in one byte
_NULL_SECTION = bytes(_SECTION.size)


def data_object(symbol: str, data: bytes | memoryview, like: bytes) -> bytes:
    """An object that holds ``data``, aligned to 64 bytes and read-only, under ``symbol``.

    It is for the same machine as the object ``like``. The layout is that of the ELF-64
    specification: header, section contents, section headers.
    """
    machine, flags = struct.unpack_from("<H", like, 18)[0], struct.unpack_from("<I", like, 48)[0]
    names = b"\0.rodata\0.symtab\0.strtab\0.shstrtab\0.note.GNU-stack\0"
    strings = b"\0" + symbol.encode() + b"\0"
    table = bytes(_SYMBOL.size) + _SYMBOL.pack(1, _GLOBAL_OBJECT, 0, 1, 0, len(data))
    parts = bytearray(_HEADER.size)  # replaced by the header at the end
    headers = [_NULL_SECTION]

    def section(name: bytes, kind: int, content: bytes | memoryview, *, flags: int = 0,
                link: int = 0, info: int = 0, align: int = 1, entry: int = 0) -> None:
        parts.extend(bytes(-len(parts) % align))
        start = names.index(b"\0" + name + b"\0") + 1
        headers.append(_SECTION.pack(start, kind, flags, 0, len(parts), len(content), link, info,
                                     align, entry))
        parts.extend(content)

    section(b".rodata", _PROGBITS, data, flags=_ALLOCATED, align=64)
    section(b".symtab", _SYMTAB, table, link=3, info=1, align=8, entry=_SYMBOL.size)
    section(b".strtab", _STRTAB, strings)
    section(b".shstrtab", _STRTAB, names)
    section(b".note.GNU-stack", _PROGBITS, b"")  # requests a stack that is not executable
    parts.extend(bytes(-len(parts) % 8))
    parts[: _HEADER.size] = _HEADER.pack(
        b"\x7fELF\x02\x01\x01", 1, machine, 1, 0, 0, len(parts), flags, _HEADER.size, 0, 0,
        _SECTION.size, len(headers), 4)
    return bytes(parts) + b"".join(headers)


@dataclass(slots=True)
class _Section:
    kind: int
    offset: int
    size: int
    link: int
    header_at: int


def localize(obj: bytes, keep: Collection[str]) -> bytes:
    """``obj`` with all defined symbols made local, except those in ``keep``.

    Local symbols must come first in the symbol table, so symbols are renumbered, in relocations
    too. Two such objects can be linked into one program although they define the same names.
    """
    edited = bytearray(obj)
    (table,) = struct.unpack_from("<Q", obj, 40)
    (count,) = struct.unpack_from("<H", obj, 60)
    sections = []
    for at in range(table, table + count * _SECTION.size, _SECTION.size):
        fields = _SECTION.unpack_from(obj, at)
        sections.append(_Section(fields[1], fields[4], fields[5], fields[6], at))
    tables = [n for n, s in enumerate(sections) if s.kind == _SYMTAB]
    if len(tables) != 1:
        raise CodegenError("the object does not have exactly one symbol table", got=len(tables))
    symtab = sections[tables[0]]
    numbers = _reorder(edited, symtab, sections[symtab.link].offset, keep)
    for section in sections:
        if section.kind == _RELA and section.link == tables[0]:
            _renumber(edited, section, numbers)
        elif section.kind == _GROUP and section.link == tables[0]:
            (old,) = struct.unpack_from("<I", edited, section.header_at + 44)
            struct.pack_into("<I", edited, section.header_at + 44, numbers[old])
    return bytes(edited)


def _reorder(edited: bytearray, symtab: _Section, strings: int, keep: Collection[str]
             ) -> dict[int, int]:
    """Write the symbol table with local symbols first; returns the new number of each symbol."""
    entries = [_SYMBOL.unpack_from(edited, at) for at in
               range(symtab.offset, symtab.offset + symtab.size, _SYMBOL.size)]
    local, visible = [], []
    for number, (name, info, _visibility, section, value, size) in enumerate(entries):
        start = strings + name
        text = edited[start : edited.index(b"\0", start)].decode()
        becomes_local = info >> 4 == 0 or (section != 0 and text not in keep)
        entry = (name, info & 0xF, 0, section, value, size) if becomes_local else entries[number]
        (local if becomes_local else visible).append((number, entry))
    numbers: dict[int, int] = {}
    for number, (old, entry) in enumerate([*local, *visible]):
        numbers[old] = number
        _SYMBOL.pack_into(edited, symtab.offset + number * _SYMBOL.size, *entry)
    struct.pack_into("<I", edited, symtab.header_at + 44, len(local))
    return numbers


def _renumber(edited: bytearray, section: _Section, numbers: dict[int, int]) -> None:
    for at in range(section.offset, section.offset + section.size, 24):
        (info,) = struct.unpack_from("<Q", edited, at + 8)
        struct.pack_into("<Q", edited, at + 8, numbers[info >> 32] << 32 | info & 0xFFFFFFFF)
