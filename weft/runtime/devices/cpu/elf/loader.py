"""``ObjectLibrary``: ELF objects linked in memory, ready to run.

All sections lie in one mapping: code and jumps to functions far away, then constants and the table
of addresses, then written data. No page is both written and executed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import lru_cache

from weft.runtime.arena import Region
from weft.runtime.devices.cpu.elf import x86_64
from weft.runtime.devices.cpu.elf.object_file import (
    ABSOLUTE,
    UNDEFINED,
    ObjectFile,
    Relocation,
    Section,
    read_object,
)
from weft.runtime.devices.cpu.elf.pages import (
    EXECUTE,
    READ,
    WRITE,
    NamedCode,
    Pages,
    whole_pages,
    write_perf_map,
)
from weft.runtime.devices.cpu.host import machine
from weft.runtime.library import NativeLibrary
from weft.support.config import config
from weft.support.errors import CodegenError

_ENTRY_BYTES = 8  # of the table of addresses
# A symbol that linkers define; code only takes its address to find the table.
_TABLE_SYMBOL = "_GLOBAL_OFFSET_TABLE_"


def loads_objects() -> bool:
    """Whether ``ObjectLibrary`` knows the relocations of this machine."""
    return machine() == "x86_64"


class ObjectLibrary(NativeLibrary):
    """Objects linked in memory; unmapped with this object.

    Undefined symbols are functions of the C and math libraries. Raises ``CodegenError`` for corrupt
    objects, undefined symbols that these libraries lack, and unknown relocations.
    """

    def __init__(self, objects: Sequence[bytes | memoryview]) -> None:
        linked = _Linker([read_object(data) for data in objects])
        self._pages = linked.pages
        self._addresses = linked.global_addresses()
        if config.perf_map:
            write_perf_map(linked.sized_symbols())

    def regions(self) -> list[Region]:
        """See ``HostLibrary.regions``."""
        return [(self._pages.address, self._pages.bytes.nbytes)]

    def address(self, symbol: str) -> int:
        """The address of a function or variable; ``CodegenError`` for an unknown symbol."""
        found = self._addresses.get(symbol)
        if found is None:
            raise CodegenError(f"the library does not define {symbol!r}")
        return found


class _Linker:
    """Places the sections of objects in memory and applies their relocations."""

    def __init__(self, objects: Sequence[ObjectFile]) -> None:
        for one in objects:
            if one.machine != x86_64.MACHINE:
                raise CodegenError("an object for another machine", got=f"machine {one.machine}",
                                   expected=f"machine {x86_64.MACHINE}, x86-64")
        self._objects = objects
        self._global = {symbol.name: (number, symbol.section, symbol.value)
                        for number, one in enumerate(objects) for symbol in one.symbols
                        if symbol.is_global and symbol.section in one.sections}
        self._foreign = {name: address_in_libraries(name) for name in self._undefined()}
        self._sections: dict[tuple[int, int], int] = {}  # offsets by (object, section)
        self._jumps: dict[str, int] = {}
        self._table: dict[tuple[int, int], int] = {}  # offsets by (object, symbol)
        code_end = self._place(0, lambda s: s.is_code)
        code_end = self._place_jumps(code_end)
        constants_end = self._place(whole_pages(code_end),
                                    lambda s: not s.is_code and not s.is_written)
        constants_end = self._place_table(constants_end)
        data_end = self._place(whole_pages(constants_end), lambda s: s.is_written)
        self.pages = Pages(data_end)
        self._write()
        self.pages.protect(((0, code_end, READ | EXECUTE),
                            (whole_pages(code_end), constants_end, READ),
                            (whole_pages(constants_end), data_end, READ | WRITE)))

    def global_addresses(self) -> dict[str, int]:
        """The addresses of the symbols that the objects define for others."""
        return {name: self._address_in(number, section, value)
                for name, (number, section, value) in self._global.items()}

    def sized_symbols(self) -> list[NamedCode]:
        """Everything that has a size."""
        return [NamedCode(s.name, self._address_in(number, s.section, s.value), s.size)
                for number, one in enumerate(self._objects) for s in one.symbols
                if s.size and s.section in one.sections]

    def _undefined(self) -> list[str]:
        names = {s.name: None for one in self._objects for s in one.symbols
                 if s.section == UNDEFINED and s.name}
        return [name for name in names if name not in self._global and name != _TABLE_SYMBOL]

    def _place(self, end: int, belongs: Callable[[Section], bool]) -> int:
        """Place the sections of one kind from ``end`` on; returns the new end."""
        for number, one in enumerate(self._objects):
            for index, section in one.sections.items():
                if belongs(section):
                    start = -(-end // section.alignment) * section.alignment
                    self._sections[number, index] = start
                    end = start + section.size
        return end

    def _place_jumps(self, end: int) -> int:
        for name in self._foreign:
            end = -(-end // x86_64.JUMP_BYTES) * x86_64.JUMP_BYTES
            self._jumps[name] = end
            end += x86_64.JUMP_BYTES
        return end

    def _place_table(self, end: int) -> int:
        for number, one in enumerate(self._objects):
            for relocation in one.relocations:
                key = number, relocation.symbol
                if relocation.kind in x86_64.THROUGH_TABLE and key not in self._table:
                    end = -(-end // _ENTRY_BYTES) * _ENTRY_BYTES
                    self._table[key] = end
                    end += _ENTRY_BYTES
        return end

    def _write(self) -> None:
        memory = self.pages.bytes
        for (number, index), start in self._sections.items():
            section = self._objects[number].sections[index]
            if section.data is not None:
                memory[start : start + section.size] = section.data
        for name, start in self._jumps.items():
            memory[start : start + x86_64.JUMP_BYTES] = x86_64.jump_to(self._foreign[name])
        for (number, symbol), start in self._table.items():
            address = self._symbol_address(number, symbol)
            memory[start : start + _ENTRY_BYTES] = address.to_bytes(_ENTRY_BYTES, "little")
        for number, one in enumerate(self._objects):
            for relocation in one.relocations:
                self._relocate(memory, number, relocation)

    def _relocate(self, memory: memoryview, number: int, relocation: Relocation) -> None:
        at = self._sections[number, relocation.section] + relocation.offset
        name = self._objects[number].symbols[relocation.symbol].name
        if relocation.kind in x86_64.THROUGH_TABLE:
            symbol = self.pages.address + self._table[number, relocation.symbol]
        elif relocation.kind in x86_64.CALLS and name in self._jumps:
            symbol = self.pages.address + self._jumps[name]
        else:
            symbol = self._symbol_address(number, relocation.symbol)
        x86_64.apply(memory, at, relocation.kind, symbol, relocation.addend,
                     self.pages.address + at)

    def _symbol_address(self, number: int, index: int) -> int:
        symbol = self._objects[number].symbols[index]
        if symbol.section == ABSOLUTE:
            return symbol.value
        if symbol.section != UNDEFINED:
            return self._address_in(number, symbol.section, symbol.value)
        if symbol.name in self._global:
            return self._address_in(*self._global[symbol.name])
        if symbol.name == _TABLE_SYMBOL:
            return self.pages.address + min(self._table.values(), default=0)
        if symbol.name not in self._foreign:
            raise CodegenError("a relocation refers to an undefined symbol without a name")
        return self._foreign[symbol.name]

    def _address_in(self, number: int, section: int, value: int) -> int:
        start = self._sections.get((number, section))
        if start is None:
            raise CodegenError("a symbol of a section that is not in memory", got=section)
        return self.pages.address + start + value


@lru_cache(maxsize=1)
def _libraries() -> tuple[ctypes.CDLL, ...]:
    return ctypes.CDLL(None), ctypes.CDLL("libm.so.6")


def address_in_libraries(name: str) -> int:
    """The address of a function of the C or math library."""
    for library in _libraries():
        function = getattr(library, name, None)
        address = ctypes.cast(function, ctypes.c_void_p).value if function else None
        if address:
            return address
    raise CodegenError(f"undefined symbol: {name}")
