"""Mach-O objects of 64 bits: an object of data, and making symbols of an object local."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator

from weft.support.errors import CodegenError

_HEADER = struct.Struct("<IIIIIIII")
_SEGMENT = struct.Struct("<II16sQQQQIIII")
_SECTION = struct.Struct("<16s16sQQIIIIIIII")
_SYMTAB = struct.Struct("<IIIIII")
_DYSYMTAB_RANGES = struct.Struct("<IIIIII")
_SYMBOL = struct.Struct("<IBBHQ")
_LC_SEGMENT, _LC_SYMTAB, _LC_DYSYMTAB, _LC_BUILD_VERSION = 0x19, 0x2, 0xB, 0x32
_EXTERNAL, _PRIVATE, _KIND, _IN_SECTION = 0x01, 0x10, 0x0E, 0x0F
_MAGIC, _OBJECT, _READ = 0xFEEDFACF, 1, 1
_BY_SYMBOL = 1 << 27  # in the second word of a relocation, behind 24 bits of a number


def _commands(code: bytes | bytearray) -> Iterator[tuple[int, int]]:
    """The kind and the place of each load command."""
    at = _HEADER.size
    for _ in range(_HEADER.unpack_from(code)[4]):
        kind, size = struct.unpack_from("<II", code, at)
        yield kind, at
        at += size


def localize(obj: bytes, keep: Collection[str]) -> bytes:
    """``obj`` with all defined symbols made local, except those in ``keep``.

    Local symbols come first in the symbol table, then defined ones, then the others, so symbols are
    renumbered, in relocations too.
    """
    edited = bytearray(obj)
    places = dict(_commands(obj))
    if _LC_SYMTAB not in places:
        raise CodegenError("the object has no symbol table")
    _, _, first, count, strings, _ = _SYMTAB.unpack_from(obj, places[_LC_SYMTAB])
    groups: tuple[list[tuple[int, bytes]], ...] = ([], [], [])
    for number in range(count):
        fields = _SYMBOL.unpack_from(obj, first + number * _SYMBOL.size)
        start = strings + fields[0]
        name = obj[start : obj.index(b"\0", start)].decode().removeprefix("_")
        is_defined, flags = bool(fields[1] & _KIND), fields[1]
        if is_defined and name not in keep:
            flags &= ~(_EXTERNAL | _PRIVATE)
        entry = _SYMBOL.pack(fields[0], flags, *fields[2:])
        groups[2 if not is_defined else 1 if flags & _EXTERNAL else 0].append((number, entry))
    numbers = {}
    for number, (old, entry) in enumerate(one for group in groups for one in group):
        numbers[old] = number
        edited[first + number * _SYMBOL.size : first + (number + 1) * _SYMBOL.size] = entry
    if _LC_DYSYMTAB in places:
        sizes = [len(group) for group in groups]
        _DYSYMTAB_RANGES.pack_into(edited, places[_LC_DYSYMTAB] + 8, 0, sizes[0], sizes[0],
                                   sizes[1], sizes[0] + sizes[1], sizes[2])
    _renumber(edited, numbers)
    return bytes(edited)


def _renumber(edited: bytearray, numbers: dict[int, int]) -> None:
    for kind, at in _commands(edited):
        if kind != _LC_SEGMENT:
            continue
        for n in range(_SEGMENT.unpack_from(edited, at)[9]):
            section = _SECTION.unpack_from(edited, at + _SEGMENT.size + n * _SECTION.size)
            for place in range(section[6], section[6] + 8 * section[7], 8):
                (word,) = struct.unpack_from("<I", edited, place + 4)
                if word & _BY_SYMBOL:
                    number = numbers[word & 0xFFFFFF]
                    struct.pack_into("<I", edited, place + 4, word & ~0xFFFFFF | number)


def data_object(symbol: str, data: bytes | memoryview, like: bytes) -> bytes:
    """An object that holds ``data``, aligned to 64 bytes and read-only, under ``symbol``."""
    magic, cpu, kind, *_ = _HEADER.unpack_from(like)
    if magic != _MAGIC:
        raise CodegenError("not a Mach-O object of 64 bits", got=f"{magic:#x}")
    version = next((like[at : at + 24] for command, at in _commands(like)
                    if command == _LC_BUILD_VERSION), b"")
    version = version and version[:4] + struct.pack("<I", 24) + version[8:20] + bytes(4)
    sizes = (_SEGMENT.size + _SECTION.size, len(version), _SYMTAB.size)
    start = -(-(_HEADER.size + sum(sizes)) // 64) * 64
    size, name = len(data), b"\0_" + symbol.encode() + b"\0"
    table = start + -(-size // 8) * 8
    header = _HEADER.pack(magic, cpu, kind, _OBJECT, 2 + bool(version), sum(sizes), 0, 0)
    segment = _SEGMENT.pack(_LC_SEGMENT, sizes[0], b"", 0, size, start, size, 7, 7, 1, 0)
    section = _SECTION.pack(b"__const", b"__TEXT", 0, size, start, 6, 0, 0, 0, 0, 0, 0)
    symtab = _SYMTAB.pack(_LC_SYMTAB, _SYMTAB.size, table, 1, table + _SYMBOL.size, len(name))
    head = header + segment + section + version + symtab
    entry = _SYMBOL.pack(1, _IN_SECTION, 1, 0, 0)
    return b"".join([head, bytes(start - len(head)), bytes(data), bytes(table - start - size),
                     entry, name])
