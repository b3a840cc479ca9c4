"""One object of all objects of a program and its weights, in the format of its system."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from types import ModuleType

from weft.codegen.elf import relocatable
from weft.codegen.elf.linker import link_relocatable
from weft.codegen.objects import coff, macho, wasm
from weft.codegen.objects.symbols import object_symbols
from weft.target.architectures import Platform

# How LLVM says for Windows that an object computes with floats; the C runtime defines it.
_USES_FLOATS = "_fltused"
_MODULES: dict[str, ModuleType] = {"elf": relocatable, "macho": macho, "wasm": wasm}


def combined(objects: Sequence[bytes], weights: tuple[str, bytes | memoryview],
             keep: Collection[str], platform: Platform) -> bytes:
    """The object, in which only the symbols in ``keep`` are visible to others.

    ``weights`` are a symbol and its bytes. ``LinkerError`` if no linker is found.
    """
    if platform.object_format == "coff":
        needed = {s.name for code in objects for s in object_symbols(code) if not s.is_defined}
        data = [coff.data_object(*weights, like=objects[0])]
        if _USES_FLOATS in needed:
            data.append(coff.data_object(_USES_FLOATS, bytes(4), like=objects[0]))
        if coff.STACK_PROBE in needed:
            data.append(coff.stack_probe(like=objects[0]))
        return coff.merged([*objects, *data], keep)
    module = _MODULES[platform.object_format]
    made: bytes = module.data_object(*weights, like=objects[0])
    one: bytes = module.localize(link_relocatable([*objects, made], platform), keep)
    return one
