"""Loads objects into this process with LLVM's in-memory linker (MCJIT).

It serves the machines whose relocations ``weft.runtime.devices.cpu.elf`` does not know.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

from llvmlite import binding as llvm

from weft.codegen.llvm.build import LIBRARY_SYMBOLS
from weft.codegen.llvm.python_bodies.link import MATH_SYMBOLS
from weft.codegen.llvm.target_machine import initialize_llvm, new_target_machine
from weft.runtime.devices.cpu.elf.object_file import Symbol, read_symbols
from weft.runtime.devices.cpu.elf.pages import NamedCode, write_perf_map
from weft.runtime.library import NativeLibrary
from weft.support.config import config
from weft.support.errors import CodegenError
from weft.target import CpuTarget

_lock = threading.Lock()


class JitLibrary(NativeLibrary):
    """Objects linked in memory and ready to run, until this object is deleted.

    Raises ``CodegenError`` for undefined symbols, on which LLVM would abort the process.
    """

    def __init__(self, objects: Sequence[bytes], target: CpuTarget | None = None) -> None:
        initialize_llvm()
        tables = [read_symbols(obj) for obj in objects]
        _check_closed(tables)
        self._names = {s.name for table in tables for s in table if s.is_defined}
        with _lock:
            # MCJIT is created from a module; the objects are added to an empty one.
            self._module = llvm.parse_assembly("")
            machine = new_target_machine(target or CpuTarget.host())
            self._engine = llvm.create_mcjit_compiler(self._module, machine)
            for obj in objects:
                self._engine.add_object_file(llvm.ObjectFileRef.from_data(obj))
            self._engine.finalize_object()
        if config.perf_map:
            write_perf_map(NamedCode(symbol.name, address, symbol.size) for table in tables
                           for address, symbol in self._addresses(table))

    def address(self, symbol: str) -> int:
        """The address of a function or variable; ``CodegenError`` for an unknown symbol."""
        if symbol not in self._names:
            raise CodegenError(f"the library does not define {symbol!r}")
        return int(self._engine.get_function_address(symbol))

    def _addresses(self, table: Sequence[Symbol]) -> Iterator[tuple[int, Symbol]]:
        """Addresses of the functions of one object, including the bodies of parallel loops.

        The loader knows global symbols only; local symbols of the same section follow from them.
        """
        starts = {
            s.section: self.address(s.name) - s.value
            for s in table
            if s.is_defined and s.is_global
        }
        for symbol in table:
            if symbol.size and symbol.section in starts:
                yield starts[symbol.section] + symbol.value, symbol


def _check_closed(tables: Sequence[Sequence[Symbol]]) -> None:
    defined = {s.name for table in tables for s in table if s.is_defined}
    needed = {s.name for table in tables for s in table if not s.is_defined}
    missing = sorted(needed - defined - LIBRARY_SYMBOLS - MATH_SYMBOLS)
    if missing:
        raise CodegenError(f"undefined symbol: {', '.join(missing)}")
