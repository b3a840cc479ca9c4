"""Relocatable ELF objects: an object of data, and making symbols of an object local."""

from __future__ import annotations

import struct
from collections.abc import Collection

from weft.codegen.objects.elf_layout import ElfLayout, Section, Symbol, layout_of
from weft.support.errors import CodegenError

_PROGBITS, _SYMTAB, _STRTAB, _GROUP = 1, 2, 3, 17
_ALLOCATED = 2
_GLOBAL_OBJECT = 0x11  # binding and type of a symbol, in one byte


def data_object(symbol: str, data: bytes | memoryview, like: bytes) -> bytes:
    """An object that holds ``data``, aligned to 64 bytes and read-only, under ``symbol``.

    It is for the same machine as the object ``like``. The layout is that of the ELF
    specification: header, section contents, section headers.
    """
    layout = layout_of(like)
    own = layout.header.unpack_from(like)
    machine, flags = own[2], own[7]
    names = b"\0.rodata\0.symtab\0.strtab\0.shstrtab\0.note.GNU-stack\0"
    strings = b"\0" + symbol.encode() + b"\0"
    table = bytes(layout.symbol.size) + layout.pack(
        Symbol(1, _GLOBAL_OBJECT, 0, 1, 0, len(data)))
    parts = bytearray(layout.header.size)  # replaced by the header at the end
    headers = [bytes(layout.section.size)]

    def section(name: bytes, kind: int, content: bytes | memoryview, *, flags: int = 0,
                link: int = 0, info: int = 0, align: int = 1, entry: int = 0) -> None:
        parts.extend(bytes(-len(parts) % align))
        start = names.index(b"\0" + name + b"\0") + 1
        headers.append(layout.section.pack(start, kind, flags, 0, len(parts), len(content), link,
                                           info, align, entry))
        parts.extend(content)

    section(b".rodata", _PROGBITS, data, flags=_ALLOCATED, align=64)
    section(b".symtab", _SYMTAB, table, link=3, info=1, align=8, entry=layout.symbol.size)
    section(b".strtab", _STRTAB, strings)
    section(b".shstrtab", _STRTAB, names)
    section(b".note.GNU-stack", _PROGBITS, b"")  # requests a stack that is not executable
    parts.extend(bytes(-len(parts) % 8))
    parts[: layout.header.size] = layout.header.pack(
        like[:7], 1, machine, 1, 0, 0, len(parts), flags, layout.header.size, 0, 0,
        layout.section.size, len(headers), 4)
    return bytes(parts) + b"".join(headers)


def localize(obj: bytes, keep: Collection[str]) -> bytes:
    """``obj`` with all defined symbols made local, except those in ``keep``.

    Local symbols must come first in the symbol table, so symbols are renumbered, in relocations
    too. Two such objects can be linked into one program although they define the same names.
    """
    layout, edited = layout_of(obj), bytearray(obj)
    sections = layout.sections(obj)
    tables = [n for n, s in enumerate(sections) if s.kind == _SYMTAB]
    if len(tables) != 1:
        raise CodegenError("the object does not have exactly one symbol table", got=len(tables))
    symtab = sections[tables[0]]
    numbers = _reorder(edited, layout, symtab, sections[symtab.link].offset, keep)
    for section in sections:
        if section.kind in layout.relocation_sizes and section.link == tables[0]:
            _renumber(edited, layout, section, numbers)
        elif section.kind == _GROUP and section.link == tables[0]:
            at = section.header_at + layout.info_at
            (old,) = struct.unpack_from("<I", edited, at)
            struct.pack_into("<I", edited, at, numbers[old])
    return bytes(edited)


def _reorder(edited: bytearray, layout: ElfLayout, symtab: Section, strings: int,
             keep: Collection[str]) -> dict[int, int]:
    """Write the symbol table with local symbols first; returns the new number of each symbol."""
    local: list[tuple[int, Symbol]] = []
    visible: list[tuple[int, Symbol]] = []
    for number, symbol in enumerate(list(layout.symbols(edited, symtab))):
        start = strings + symbol.name
        text = edited[start : edited.index(b"\0", start)].decode()
        if symbol.info >> 4 == 0 or (symbol.section != 0 and text not in keep):
            local.append((number, symbol._replace(info=symbol.info & 0xF, other=0)))
        else:
            visible.append((number, symbol))
    numbers: dict[int, int] = {}
    for number, (old, symbol) in enumerate([*local, *visible]):
        numbers[old] = number
        at = symtab.offset + number * layout.symbol.size
        edited[at : at + layout.symbol.size] = layout.pack(symbol)
    struct.pack_into("<I", edited, symtab.header_at + layout.info_at, len(local))
    return numbers


def _renumber(edited: bytearray, layout: ElfLayout, section: Section,
              numbers: dict[int, int]) -> None:
    kinds = (1 << layout.info_bits) - 1
    step = layout.relocation_sizes[section.kind]
    for at in range(section.offset, section.offset + section.size, step):
        (info,) = struct.unpack_from(layout.word, edited, at + layout.word_bytes)
        struct.pack_into(layout.word, edited, at + layout.word_bytes,
                         numbers[info >> layout.info_bits] << layout.info_bits | info & kinds)
