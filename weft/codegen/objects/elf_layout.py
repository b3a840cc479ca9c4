"""The records of little-endian ELF objects, of 32 and of 64 bits (System V ABI, chapter 4)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from weft.support.dataclass import dataclass


class Section(NamedTuple):
    """The fields of a section header that 32 and 64 bits share, and where the header is."""

    kind: int
    offset: int
    size: int
    link: int
    header_at: int


class Symbol(NamedTuple):
    """An entry of a symbol table; the order of its fields in memory differs."""

    name: int
    info: int
    other: int
    section: int
    value: int
    size: int


@dataclass(frozen=True, slots=True)
class ElfLayout:
    """The records of one word size; ``info_bits`` is the size of the type of a relocation."""

    bits: int
    header: struct.Struct
    section: struct.Struct
    symbol: struct.Struct
    info_at: int  # of sh_info in a section header
    relocation_sizes: dict[int, int]  # by the type of the section
    info_bits: int

    @property
    def word(self) -> str:
        """The format of a word of relocations."""
        return "<Q" if self.bits == 64 else "<I"

    @property
    def word_bytes(self) -> int:
        return self.bits // 8

    def sections(self, code: bytes) -> list[Section]:
        """The section headers, in order."""
        fields = self.header.unpack_from(code)
        table, entry, count = fields[6], fields[11], fields[12]
        found = []
        for at in range(table, table + count * entry, entry):
            _, kind, _, _, offset, size, link, *_ = self.section.unpack_from(code, at)
            found.append(Section(kind, offset, size, link, at))
        return found

    def symbols(self, code: bytes | bytearray, section: Section) -> Iterator[Symbol]:
        """The entries of a symbol table."""
        for at in range(section.offset, section.offset + section.size, self.symbol.size):
            fields = self.symbol.unpack_from(code, at)
            yield Symbol(*fields) if self.bits == 64 else Symbol(
                fields[0], fields[3], fields[4], fields[5], fields[1], fields[2])

    def pack(self, symbol: Symbol) -> bytes:
        """An entry of a symbol table."""
        name, info, other, section, value, size = symbol
        if self.bits == 64:
            return self.symbol.pack(name, info, other, section, value, size)
        return self.symbol.pack(name, value, size, info, other, section)


_RELA, _REL = 4, 9
_LAYOUTS = {
    2: ElfLayout(64, struct.Struct("<16sHHIQQQIHHHHHH"), struct.Struct("<IIQQQQIIQQ"),
                 struct.Struct("<IBBHQQ"), 44, {_RELA: 24, _REL: 16}, 32),
    1: ElfLayout(32, struct.Struct("<16sHHIIIIIHHHHHH"), struct.Struct("<IIIIIIIIII"),
                 struct.Struct("<IIIBBH"), 28, {_RELA: 12, _REL: 8}, 8),
}


def is_elf(code: bytes) -> bool:
    """Whether the bytes begin as a little-endian ELF file."""
    return code[:4] == b"\x7fELF" and code[4] in _LAYOUTS and code[5] == 1


def layout_of(code: bytes) -> ElfLayout:
    """The records of an ELF file."""
    return _LAYOUTS[code[4]]
