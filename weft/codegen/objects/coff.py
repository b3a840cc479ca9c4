"""COFF objects: one of several, with the symbols that it offers (Microsoft PE and COFF, part 4).

No linker makes one COFF object of several, so the sections are put behind each other here, each
with its relocations, and symbols that another object defines are joined with that definition.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from typing import Any

from weft.support.dataclass import dataclass
from weft.support.errors import CodegenError

_HEADER = struct.Struct("<HHIIIHH")
_SECTION = struct.Struct("<8sIIIIIIHHI")
_RELOCATION = struct.Struct("<IIH")
_SYMBOL = struct.Struct("<8sIhHBB")
_EXTERNAL, _STATIC, _FILE = 2, 3, 103
_COMDAT, _READ_ONLY_DATA, _ALIGN_64, _MORE_RELOCATIONS = 0x1000, 0x40000040, 0x700000, 0x01000000
_CODE = 0x60500020  # executable, aligned to 16 bytes
_MAX_SECTIONS = 0x7FFF


@dataclass(slots=True)
class _Symbol:
    """An entry with its auxiliary records; ``section`` numbers one of the result (0: undefined)."""

    name: str
    value: int
    section: int
    type: int
    storage: int
    more: bytes


class _Merged:
    def __init__(self) -> None:
        self.machine = 0
        self.sections: list[tuple[tuple[Any, ...], bytes, list[tuple[int, int, int]]]] = []
        self.symbols: list[_Symbol] = []
        self.by_name: dict[str, int] = {}

    def add(self, code: bytes) -> None:
        """Put the sections and symbols of an object behind those before."""
        machine, count, _, table, number, _, _ = _HEADER.unpack_from(code)
        self.machine, first = machine, len(self.sections)
        numbers = self._symbols(code, table, number, first)
        for at in range(_HEADER.size, _HEADER.size + count * _SECTION.size, _SECTION.size):
            fields = _SECTION.unpack_from(code, at)
            size, start, relocations, places, flags = (
                fields[3], fields[4], fields[5], fields[7], fields[9])
            if flags & _MORE_RELOCATIONS:
                raise CodegenError("a section of an object has more than 65535 relocations")
            found = [(place, numbers[symbol], kind) for place, symbol, kind in
                     _RELOCATION.iter_unpack(code[relocations : relocations + places
                                                  * _RELOCATION.size])]
            data = code[start : start + size] if start else b""
            self.sections.append((fields, data, found))

    def _symbols(self, code: bytes, table: int, count: int, first: int) -> dict[int, int]:
        """Add the symbols of an object; the new number of each."""
        strings, numbers, at = table + count * _SYMBOL.size, {}, 0
        while at < count:
            name, value, section, kind, storage, extra = _SYMBOL.unpack_from(
                code, table + at * _SYMBOL.size)
            start = table + (at + 1) * _SYMBOL.size
            text = _name(code, strings, name)
            made = _Symbol(text, value, section + first if section > 0 else section, kind, storage,
                           code[start : start + extra * _SYMBOL.size])
            numbers[at] = self._place(made)
            at += 1 + extra
        return numbers

    def _place(self, symbol: _Symbol) -> int:
        """The number of a symbol: that of the same external one, if there is one."""
        known = self.by_name.get(symbol.name) if symbol.storage == _EXTERNAL else None
        if known is None:
            self.symbols.append(symbol)
            if symbol.storage == _EXTERNAL:
                self.by_name[symbol.name] = len(self.symbols) - 1
            return len(self.symbols) - 1
        if self.symbols[known].section == 0:
            self.symbols[known] = symbol
        return known

    def code(self, keep: Collection[str]) -> bytes:
        """The object, in which only the symbols in ``keep`` are visible."""
        if len(self.sections) > _MAX_SECTIONS:
            raise CodegenError("too many kernels for one object", got=len(self.sections))
        starts, table, strings = self._table(keep)
        body = bytearray()
        headers = b""
        begin = _HEADER.size + len(self.sections) * _SECTION.size
        for fields, data, relocations in self.sections:
            body += bytes(-(begin + len(body)) % 16)
            place = begin + len(body) if data else 0
            body += data
            links = begin + len(body) if relocations else 0
            for at, symbol, kind in relocations:
                body += _RELOCATION.pack(at, starts[symbol], kind)
            name = fields[0] if not fields[0].startswith(b"/") else b".other"
            headers += _SECTION.pack(name, fields[1], fields[2], fields[3], place, links, 0,
                                     len(relocations), 0, fields[9] & ~_COMDAT)
        count = len(table) // _SYMBOL.size
        header = _HEADER.pack(self.machine, len(self.sections), 0, begin + len(body), count, 0, 0)
        return header + headers + bytes(body) + table + strings

    def _table(self, keep: Collection[str]) -> tuple[list[int], bytes, bytes]:
        """The place of each symbol, the symbol table, the string table."""
        starts, table, strings = [], bytearray(), bytearray(4)
        for symbol in self.symbols:
            starts.append(len(table) // _SYMBOL.size)
            is_hidden = symbol.storage == _EXTERNAL and symbol.section and symbol.name not in keep
            name = symbol.name.encode()
            if len(name) > 8:
                entry = struct.pack("<II", 0, len(strings))
                strings += name + b"\0"
            else:
                entry = name
            table += _SYMBOL.pack(entry, symbol.value, symbol.section, symbol.type,
                                  _STATIC if is_hidden else symbol.storage,
                                  len(symbol.more) // _SYMBOL.size) + symbol.more
        struct.pack_into("<I", strings, 0, len(strings))
        return starts, bytes(table), bytes(strings)


def _name(code: bytes, strings: int, name: bytes) -> str:
    if name[:4] != bytes(4):
        return name.rstrip(b"\0").decode()
    start = strings + int.from_bytes(name[4:], "little")
    return code[start : code.index(b"\0", start)].decode()


def merged(objects: Sequence[bytes], keep: Collection[str]) -> bytes:
    """One object of several, in which only the symbols in ``keep`` are visible to others."""
    made = _Merged()
    for code in objects:
        made.add(code)
    return made.code(keep)


# ``__chkstk`` touches each page of a large stack frame, whose size is in rax, or in x15 divided by
# 16, so that Windows extends the stack. It changes no register that callers use.
STACK_PROBE = "__chkstk"
_PROBES = {
    # push rcx; push rax; lea rcx, [rsp+24]; 1: cmp rax, 4096; jb 2f; sub rcx, 4096; sub rax, 4096;
    # test [rcx], cl; jmp 1b; 2: sub rcx, rax; test [rcx], cl; pop rax; pop rcx; ret
    0x8664: "5150488d4c2418483d0010000072114881e900100000482d001000008409ebe74829c184095859c3",
    # lsl x16, x15, 4; mov x17, sp; 1: sub x17, x17, 4096; subs x16, x16, 4096; ldr xzr, [x17];
    # b.gt 1b; ret
    0xAA64: "f0ed7cd3f1030091310640d1100640f13f0240f9acffff54c0035fd6",
}


def stack_probe(like: bytes) -> bytes:
    """An object that defines ``STACK_PROBE``."""
    (machine,) = struct.unpack_from("<H", like)
    return _of_section(STACK_PROBE, bytes.fromhex(_PROBES[machine]), machine, b".text", _CODE)


def data_object(symbol: str, data: bytes | memoryview, like: bytes) -> bytes:
    """An object that holds ``data``, aligned to 64 bytes and read-only, under ``symbol``."""
    (machine,) = struct.unpack_from("<H", like)
    if len(data) >= 1 << 31:
        raise CodegenError("the weights do not fit into a COFF object", got=f"{len(data)} bytes",
                           expected="less than 2 GiB")
    return _of_section(symbol, bytes(data), machine, b".rdata", _READ_ONLY_DATA | _ALIGN_64)


def _of_section(symbol: str, data: bytes, machine: int, name: bytes, flags: int) -> bytes:
    made = _Merged()
    made.machine = machine
    made.sections.append(((name, 0, 0, len(data), 0, 0, 0, 0, 0, flags), data, []))
    made.symbols.append(_Symbol(symbol, 0, 1, 0, _EXTERNAL, b""))
    return made.code({symbol})
