"""Reading 64-bit little-endian relocatable ELF objects (System V ABI, chapter 4)."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TypeVar

from weft.support.dataclass import dataclass
from weft.support.errors import CodegenError

# Types of sections, and flags.
_SYMTAB, _RELA, _NOBITS = 2, 4, 8
_ALLOC, _EXEC, _WRITE = 2, 4, 1
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_MAX_BYTES = 1 << 31  # code refers to its data by 32 bits
# Reserved section numbers: an undefined symbol, an absolute value.
UNDEFINED, ABSOLUTE = 0, 0xFFF1
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Section:
    """A section that is in memory at run time; ``data`` is ``None`` for zeros of ``size`` bytes."""

    name: str
    data: memoryview | None
    size: int
    alignment: int
    is_code: bool
    is_written: bool


@dataclass(frozen=True, slots=True)
class Symbol:
    """``value`` is an offset in section number ``section``; ``size`` is in bytes."""

    name: str
    section: int
    value: int
    size: int
    is_global: bool

    @property
    def is_defined(self) -> bool:
        return self.section != UNDEFINED


@dataclass(frozen=True, slots=True)
class Relocation:
    """Bytes at ``offset`` of section number ``section`` depend on the address of a symbol."""

    section: int
    offset: int
    kind: int
    symbol: int
    addend: int


@dataclass(frozen=True, slots=True)
class ObjectFile:
    """``sections`` are by number; relocations are those of sections in memory."""

    machine: int
    sections: dict[int, Section]
    symbols: tuple[Symbol, ...]
    relocations: tuple[Relocation, ...]


def read_object(data: bytes | memoryview) -> ObjectFile:
    """The sections, symbols and relocations of an object; ``CodegenError`` for other bytes."""
    return _checked(data, _read)


def read_symbols(data: bytes | memoryview) -> tuple[Symbol, ...]:
    """The named symbols of an object of any size; ``CodegenError`` for other bytes."""
    return _checked(data, _named_symbols)


def _checked(data: bytes | memoryview, read: Callable[[memoryview], T]) -> T:
    view = memoryview(data)
    if bytes(view[:6]) != b"\x7fELF\x02\x01":
        raise CodegenError("not a 64-bit little-endian ELF object")
    try:
        return read(view)
    except (struct.error, IndexError, ValueError, KeyError) as error:
        raise CodegenError("corrupt ELF object", got=error) from error


def _headers(view: memoryview) -> list[tuple[int, ...]]:
    (table,) = struct.unpack_from("<Q", view, 40)
    entry, count = struct.unpack_from("<HH", view, 58)
    return [_SECTION.unpack_from(view, table + entry * i) for i in range(count)]


def _named_symbols(view: memoryview) -> tuple[Symbol, ...]:
    headers = _headers(view)
    return tuple(symbol for header in headers if header[1] == _SYMTAB
                 for symbol in _symbols(view, header, _strings(view, headers[header[6]]))
                 if symbol.name)


def _read(view: memoryview) -> ObjectFile:
    (machine,) = struct.unpack_from("<H", view, 18)
    (names,) = struct.unpack_from("<H", view, 62)
    headers = _headers(view)
    name_table = _strings(view, headers[names])
    sections = {number: _section(view, header, name_table)
                for number, header in enumerate(headers) if header[2] & _ALLOC}
    symbols: list[Symbol] = []
    relocations: list[Relocation] = []
    for header in headers:
        if header[1] == _SYMTAB:
            symbols += _symbols(view, header, _strings(view, headers[header[6]]))
        elif header[1] == _RELA and header[7] in sections:
            relocations += [Relocation(header[7], offset, info & 0xFFFFFFFF, info >> 32, addend)
                            for offset, info, addend in _RELOCATION.iter_unpack(
                                _body(view, header))]
    made = ObjectFile(machine, sections, tuple(symbols), tuple(relocations))
    _check(made)
    return made


def _check(made: ObjectFile) -> None:
    """Raise ``ValueError`` for references to sections, symbols or bytes that do not exist."""
    for section in made.sections.values():
        if section.size >= _MAX_BYTES or section.alignment.bit_count() != 1 \
                or section.alignment > _MAX_BYTES:
            raise ValueError(f"section {section.name} has an impossible size or alignment")
    for symbol in made.symbols:
        if symbol.section in made.sections \
                and symbol.value + symbol.size > made.sections[symbol.section].size:
            raise ValueError(f"symbol {symbol.name} ends behind its section")
    for relocation in made.relocations:
        section = made.sections[relocation.section]
        if section.data is None or relocation.offset + 4 > section.size \
                or relocation.symbol >= len(made.symbols):
            raise ValueError("a relocation refers to nothing")


def _section(view: memoryview, header: tuple[int, ...], names: bytes) -> Section:
    name, kind, flags, size, alignment = header[0], header[1], header[2], header[5], header[8]
    data = None if kind == _NOBITS else _body(view, header)
    return Section(_name(names, name), data, size, max(alignment, 1),
                   bool(flags & _EXEC), bool(flags & _WRITE))


def _symbols(view: memoryview, header: tuple[int, ...], names: bytes) -> list[Symbol]:
    return [Symbol(_name(names, name), section, value, size, is_global=info >> 4 != 0)
            for name, info, _, section, value, size in _SYMBOL.iter_unpack(_body(view, header))]


def _body(view: memoryview, header: tuple[int, ...]) -> memoryview:
    start, size = header[4], header[5]
    if start + size > len(view):
        raise ValueError("a section ends behind the file")
    return view[start : start + size]


def _strings(view: memoryview, header: tuple[int, ...]) -> bytes:
    return bytes(_body(view, header))


def _name(table: bytes, start: int) -> str:
    return table[start : table.index(b"\0", start)].decode()
