"""Writers of LLVM IR text: modules, functions, and a memo of emitted values.

Writing text is several times faster than building llvmlite objects, and LLVM parses it quickly: a
kernel of 1,500 instructions takes about 10 ms.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from weft.codegen.ir_text.types import splat, vector_of
from weft.support.errors import InternalError
from weft.target.llvm_target import LlvmTarget


class ModuleWriter:
    """Collects the globals, declarations, functions and metadata of one LLVM module."""

    def __init__(self, name: str, target: LlvmTarget) -> None:
        self.name = name
        self.target = target
        self.functions: list[str] = []
        self.globals: list[str] = []
        self._declarations: dict[str, str] = {}
        self._constants: dict[str, str] = {}
        self._metadata: list[str] = []

    def declare(self, symbol: str, signature: str) -> str:
        """Declare an external function once and return its name.

        ``signature`` is its type with ``@`` in place of the name: ``"i32 @(ptr)"``.
        """
        self._declarations.setdefault(symbol, signature.replace("@", f"@{symbol}", 1))
        return f"@{symbol}"

    def constant(self, llvm_type: str, value: str) -> str:
        """The name of a private constant with ``value``; equal constants share one global."""
        text = f"private unnamed_addr constant {llvm_type} {value}"
        name = self._constants.setdefault(text, f"@constant{len(self._constants)}")
        if f"{name} = {text}" not in self.globals:
            self.globals.append(f"{name} = {text}")
        return name

    def metadata(self, text: str) -> str:
        """Add a metadata node and return its name; ``!N`` in ``text`` refers to the node itself."""
        name = f"!{len(self._metadata)}"
        self._metadata.append(f"{name} = {text.replace('!N', name)}")
        return name

    def text(self, data_layout: str) -> str:
        """The LLVM IR of the module."""
        parts = [
            f'source_filename = "{self.name}"',
            f'target datalayout = "{data_layout}"',
            f'target triple = "{self.target.triple}"',
            *self.globals,
            *(f"declare {text}" for text in self._declarations.values()),
            *self.functions,
            *self._metadata,
        ]
        return "\n".join(parts) + "\n"


class FunctionWriter:
    """Writes the instructions of one function, with fresh names and allocas in the entry block."""

    def __init__(self, module: ModuleWriter) -> None:
        self.module = module
        self._lines: list[str] = []
        self._allocas: list[str] = []
        self._next = 0
        self.block = "entry"
        # Metadata of every instruction: where it comes from, as ``, !dbg !3``.
        self.location = ""

    def fresh(self, hint: str = "v") -> str:
        self._next += 1
        return f"{hint}{self._next}"

    def emit(self, instruction: str) -> str:
        """Append an instruction and return the name of its result."""
        self._next += 1
        name = f"%v{self._next}"
        self._lines.append(f"  {name} = {instruction}{self.location}")
        return name

    def do(self, instruction: str) -> None:
        """Append an instruction without a result."""
        self._lines.append(f"  {instruction}{self.location}")

    def alloca(self, llvm_type: str, align: int) -> str:
        """Allocate stack memory in the entry block; ``align`` is in bytes."""
        name = f"%{self.fresh('slot')}"
        self._allocas.append(f"  {name} = alloca {llvm_type}, align {align}")
        return name

    def broadcast(self, scalar: str, kind: str, lanes: int) -> str:
        """A vector with ``scalar``, of type ``kind``, in every lane; a constant for a literal."""
        if lanes == 1:
            return scalar
        if not scalar.startswith(("%", "@")):
            return splat(scalar, kind, lanes)
        vector = vector_of(kind, lanes)
        first = self.emit(f"insertelement {vector} poison, {kind} {scalar}, i64 0")
        return self.emit(
            f"shufflevector {vector} {first}, {vector} poison, <{lanes} x i32> zeroinitializer"
        )

    def start_block(self, label: str) -> None:
        self._lines.append(f"{label}:")
        self.block = label

    def branch(self, label: str) -> None:
        self.do(f"br label %{label}")

    def text(self, header: str) -> str:
        """The function definition; ``header`` is the text before the opening brace."""
        return "\n".join([f"{header} {{", "entry:", *self._allocas, *self._lines, "}"])


class ScopedMemo:
    """A dictionary of emitted values that drops the entries of a scope when the scope ends.

    A value defined in a branch or loop body does not dominate the code after it.
    """

    def __init__(self) -> None:
        self.known: dict[Any, str] = {}
        self._log: list[Any] = []

    def add(self, key: Any, value: str) -> None:
        if key not in self.known:
            self.known[key] = value
            self._log.append(key)

    def bind(self, variable: Any, value: str) -> None:
        """Bind a variable. Entries that mention it would be stale, so it must not be bound yet."""
        if variable in self.known:
            raise InternalError(f"variable {variable.name} is bound inside its own scope")
        self.add(variable, value)

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Drop all entries added inside when the block ends."""
        mark = len(self._log)
        try:
            yield
        finally:
            for key in self._log[mark:]:
                del self.known[key]
            del self._log[mark:]
