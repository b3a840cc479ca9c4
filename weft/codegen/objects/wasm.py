"""WebAssembly objects: the symbol table of the section ``linking`` (tool conventions, version 2).

An object of data is written directly, since LLVM would take long to read large weights as text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from weft.support.errors import CodegenError

MAGIC = b"\0asm"
_HEADER = MAGIC + b"\1\0\0\0"
_CUSTOM, _IMPORT, _DATA, _DATA_COUNT = 0, 2, 11, 12
_LINKING = b"\7linking\2"  # the name, and the version
_SEGMENTS, _SYMBOL_TABLE = 5, 8
# Kinds of symbols, and flags.
_FUNCTION, _DATA_SYMBOL, _SECTION = 0, 1, 3
_ALIGNMENT_BITS = 6
LOCAL, HIDDEN, UNDEFINED, _EXPLICIT_NAME = 0x02, 0x04, 0x10, 0x40


class WasmSymbol(NamedTuple):
    """A symbol; ``flags_at`` is where its flags are in the object."""

    name: str
    flags: int
    flags_at: int


class _Reader:
    def __init__(self, code: bytes, at: int = 0) -> None:
        self.code = code
        self.at = at

    def number(self) -> int:
        value = shift = 0
        while True:
            byte = self.code[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value

    def text(self) -> str:
        size = self.number()
        self.at += size
        return self.code[self.at - size : self.at].decode()


def number(value: int) -> bytes:
    """LEB128, as all numbers are in WebAssembly."""
    made = bytearray()
    while True:
        value, byte = value >> 7, value & 0x7F
        made.append(byte | (0x80 if value else 0))
        if not value:
            return bytes(made)


def _sections(code: bytes) -> Iterator[tuple[int, int, int]]:
    """The id, start and end of each section."""
    reader = _Reader(code, len(_HEADER))
    while reader.at < len(code):
        kind = reader.number()
        size = reader.number()
        yield kind, reader.at, reader.at + size
        reader.at += size


def _imports(code: bytes, start: int) -> dict[int, list[str]]:
    """The names of what a module imports, by kind; functions have kind 0."""
    reader = _Reader(code, start)
    found: dict[int, list[str]] = {}
    for _ in range(reader.number()):
        reader.text()
        name, kind = reader.text(), reader.number()
        found.setdefault(kind, []).append(name)
        if kind == 0:
            reader.number()
        elif kind == 3:  # a global: type and mutability
            reader.at += 2
        else:  # a table (with its type) or a memory: limits
            reader.at += kind == 1
            for _ in range(1 + (reader.number() & 1)):
                reader.number()
    return found


def symbols_of(code: bytes) -> Iterator[WasmSymbol]:
    """The symbols of an object, in order."""
    imports: dict[int, list[str]] = {}
    for section, start, end in _sections(code):
        if section == _IMPORT:
            imports = _imports(code, start)
        elif section == _CUSTOM and code[start : start + len(_LINKING)] == _LINKING:
            reader = _Reader(code, start + len(_LINKING))
            while reader.at < end:
                kind = reader.number()
                size = reader.number()
                if kind == _SYMBOL_TABLE:
                    yield from _table(_Reader(code, reader.at), imports)
                reader.at += size


def _table(reader: _Reader, imports: dict[int, list[str]]) -> Iterator[WasmSymbol]:
    for _ in range(reader.number()):
        kind = reader.number()
        flags_at = reader.at
        flags, name = reader.number(), ""
        is_undefined = bool(flags & UNDEFINED)
        if kind == _DATA_SYMBOL:
            name = reader.text()
            for _ in range(0 if is_undefined else 3):
                reader.number()
        else:
            index = reader.number()
            if kind != _SECTION and (not is_undefined or flags & _EXPLICIT_NAME):
                name = reader.text()
            elif kind == _FUNCTION:
                name = imports[0][index]
        yield WasmSymbol(name, flags, flags_at)


def localize(code: bytes, keep: Collection[str]) -> bytes:
    """``code`` with all defined symbols made local, except those in ``keep``."""
    edited = bytearray(code)
    for symbol in symbols_of(code):
        if not symbol.flags & UNDEFINED and symbol.name not in keep:
            edited[symbol.flags_at] |= LOCAL
    return bytes(edited)


def data_object(symbol: str, data: bytes | memoryview, like: bytes = b"") -> bytes:  # noqa: ARG001
    """An object that holds ``data``, aligned to 64 bytes, under ``symbol``; all are ``like`` it."""
    if len(data) >= 1 << 32:
        raise CodegenError("the weights do not fit into the memory of WebAssembly",
                           got=f"{len(data)} bytes", expected="less than 4 GiB")
    name = symbol.encode()
    # The memory that the segment lies in is imported: module env, at least no pages.
    memory = b"\1\3env\x0f__linear_memory\2\0\0"
    segment = b"\1\0\x41\0\x0b" + number(len(data)) + bytes(data)
    info = b"\1" + _string(b".rodata." + name) + number(_ALIGNMENT_BITS) + b"\0"
    table = b"\1" + bytes((_DATA_SYMBOL, HIDDEN)) + _string(name) + b"\0\0" + number(len(data))
    linking = _LINKING + _sized(_SEGMENTS, info) + _sized(_SYMBOL_TABLE, table)
    return _HEADER + _sized(_IMPORT, memory) + _sized(_DATA_COUNT, b"\1") \
        + _sized(_DATA, segment) + _sized(_CUSTOM, linking)


def _string(text: bytes) -> bytes:
    return number(len(text)) + text


def _sized(kind: int, content: bytes) -> bytes:
    return bytes((kind,)) + number(len(content)) + content
