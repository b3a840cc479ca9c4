"""The symbols of relocatable objects in the formats ELF, COFF, Mach-O and WebAssembly."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

from weft.codegen.objects import wasm
from weft.codegen.objects.elf_layout import is_elf, layout_of
from weft.support.dataclass import dataclass
from weft.support.errors import CodegenError

_SYMTAB = 2
_COFF_SYMBOL = struct.Struct("<8sIhHBB")
_COFF_EXTERNAL = 2
_MACHO_SYMBOL = struct.Struct("<IBBHQ")
_LC_SYMTAB, _MACHO_EXTERNAL, _MACHO_KIND, _MACHO_DEBUG = 2, 0x01, 0x0E, 0xE0
_COFF_MACHINES = frozenset((0x8664, 0xAA64))


@dataclass(frozen=True, slots=True)
class ObjectSymbol:
    """A symbol by the name that C code has for it; ``is_global`` if other objects see it."""

    name: str
    is_defined: bool
    is_global: bool


def object_symbols(code: bytes) -> tuple[ObjectSymbol, ...]:
    """The named symbols of an object; ``CodegenError`` for other bytes."""
    reader = _reader(code)
    if reader is None:
        raise CodegenError("not an object of ELF, COFF, Mach-O or WebAssembly",
                           got=code[:8].hex())
    try:
        return tuple(symbol for symbol in reader(code) if symbol.name)
    except (struct.error, IndexError, ValueError) as error:
        raise CodegenError("corrupt object", got=error) from error


def _reader(code: bytes) -> Callable[[bytes], Iterator[ObjectSymbol]] | None:
    if is_elf(code):
        return _of_elf
    if code[:4] == wasm.MAGIC:
        return _of_wasm
    if code[:4] == b"\xcf\xfa\xed\xfe":
        return _of_macho
    is_coff = len(code) > 20 and struct.unpack_from("<H", code)[0] in _COFF_MACHINES
    return _of_coff if is_coff else None


def _of_elf(code: bytes) -> Iterator[ObjectSymbol]:
    layout = layout_of(code)
    sections = layout.sections(code)
    for section in sections:
        if section.kind == _SYMTAB:
            strings = sections[section.link].offset
            for symbol in layout.symbols(code, section):
                yield ObjectSymbol(_text(code, strings + symbol.name), symbol.section != 0,
                                   symbol.info >> 4 != 0)


def _of_wasm(code: bytes) -> Iterator[ObjectSymbol]:
    for symbol in wasm.symbols_of(code):
        yield ObjectSymbol(symbol.name, not symbol.flags & wasm.UNDEFINED,
                           not symbol.flags & wasm.LOCAL)


def _of_coff(code: bytes) -> Iterator[ObjectSymbol]:
    table, count = struct.unpack_from("<II", code, 8)
    strings, number = table + count * _COFF_SYMBOL.size, 0
    while number < count:
        name, value, section, _, kind, extra = _COFF_SYMBOL.unpack_from(
            code, table + number * _COFF_SYMBOL.size)
        number += 1 + extra
        text = _text(code, strings + int.from_bytes(name[4:], "little")) if name[:4] == bytes(4) \
            else name.rstrip(b"\0").decode()
        is_defined = section != 0 or (kind == _COFF_EXTERNAL and value != 0)
        yield ObjectSymbol(text, is_defined, kind == _COFF_EXTERNAL)


def _of_macho(code: bytes) -> Iterator[ObjectSymbol]:
    (commands,) = struct.unpack_from("<I", code, 16)
    at = 32
    for _ in range(commands):
        kind, size = struct.unpack_from("<II", code, at)
        if kind == _LC_SYMTAB:
            first, count, strings, _ = struct.unpack_from("<IIII", code, at + 8)
            for number in range(count):
                name, flags, section, _, _ = _MACHO_SYMBOL.unpack_from(
                    code, first + number * _MACHO_SYMBOL.size)
                if not flags & _MACHO_DEBUG:
                    yield ObjectSymbol(_text(code, strings + name).removeprefix("_"),
                                       bool(flags & _MACHO_KIND) or section != 0,
                                       bool(flags & _MACHO_EXTERNAL))
        at += size


def _text(code: bytes, start: int) -> str:
    return code[start : code.index(b"\0", start)].decode()
