"""Debug locations: the line of the printed loop program that each instruction comes from.

LLVM prints them as ``.loc`` directives, without debug sections (``DebugDirectivesOnly``). The
emulator and NVIDIA's tools name these lines.
"""

from __future__ import annotations

from collections.abc import Mapping

from weft.codegen.ir_text.writer import ModuleWriter
from weft.tir.func import PrimFunc
from weft.tir.printer import statement_lines


class DebugLines:
    """The debug metadata of a module; its functions are subprograms of one file."""

    def __init__(self, module: ModuleWriter, func: PrimFunc) -> None:
        self.module = module
        self.lines = statement_lines(func)
        self.file = module.metadata(f'!DIFile(filename: "{func.name}.tir", directory: "")')
        self.unit = module.metadata(
            f'distinct !DICompileUnit(language: DW_LANG_C99, file: {self.file}, producer: "weft", '
            "isOptimized: true, runtimeVersion: 0, emissionKind: DebugDirectivesOnly)")
        types = module.metadata("!{null}")
        self.type = module.metadata(f"!DISubroutineType(types: {types})")
        version = module.metadata('!{i32 2, !"Debug Info Version", i32 3}')
        module.globals += [f"!llvm.dbg.cu = !{{{self.unit}}}",
                           f"!llvm.module.flags = !{{{version}}}"]

    def subprogram(self, entry: str) -> str:
        """The node of an entry function."""
        return self.module.metadata(
            f'distinct !DISubprogram(name: "{entry}", scope: {self.file}, file: {self.file}, '
            f"line: 1, type: {self.type}, scopeLine: 1, spFlags: DISPFlagDefinition, "
            f"unit: {self.unit})")

    def locations(self, subprogram: str) -> Mapping[int, str]:
        """The suffix of instructions by the ``id`` of their statement, and of line 1 by 0."""
        known: dict[int, str] = {}
        for line in sorted({1, *self.lines.values()}):
            node = self.module.metadata(f"!DILocation(line: {line}, scope: {subprogram})")
            known[line] = f", !dbg {node}"
        return {0: known[1], **{node: known[line] for node, line in self.lines.items()}}
