"""Writing LLVM IR as text.

Text is several times faster to produce than an object model of the same instructions, and LLVM's
parser is fast: a kernel of 1,500 instructions is written in some ten milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from weft.codegen.llvm.text.types import splat, vector_of
from weft.support.errors import InternalError
from weft.target import CpuTarget


class ModuleWriter:
    """Collects declarations, function bodies and metadata of one LLVM module."""

    def __init__(self, name: str, target: CpuTarget) -> None:
        self.name = name
        self.target = target
        self.functions: list[str] = []
        self.globals: list[str] = []
        self._declarations: dict[str, str] = {}
        self._constants: dict[str, str] = {}
        self._metadata: list[str] = []

    def declare(self, symbol: str, signature: str) -> str:
        """Declare an external function once; ``signature`` has ``@`` where the name goes."""
        self._declarations.setdefault(symbol, signature.replace("@", f"@{symbol}", 1))
        return f"@{symbol}"

    def constant(self, llvm_type: str, value: str) -> str:
        """Read-only memory that holds ``value``, once for equal ones."""
        text = f"private unnamed_addr constant {llvm_type} {value}"
        name = self._constants.setdefault(text, f"@constant{len(self._constants)}")
        if f"{name} = {text}" not in self.globals:
            self.globals.append(f"{name} = {text}")
        return name

    def metadata(self, text: str) -> str:
        """Add a metadata node, ``!N`` within ``text`` standing for the node itself."""
        name = f"!{len(self._metadata)}"
        self._metadata.append(f"{name} = {text.replace('!N', name)}")
        return name

    def text(self, data_layout: str) -> str:
        """The whole module."""
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
    """Instructions of one function: fresh names, basic blocks, entry allocas."""

    def __init__(self, module: ModuleWriter) -> None:
        self.module = module
        self._lines: list[str] = []
        self._allocas: list[str] = []
        self._next = 0
        self.block = "entry"

    def fresh(self, hint: str = "v") -> str:
        self._next += 1
        return f"{hint}{self._next}"

    def emit(self, instruction: str) -> str:
        """Append an instruction with a result; returns the name of the value."""
        self._next += 1
        name = f"%v{self._next}"
        self._lines.append(f"  {name} = {instruction}")
        return name

    def do(self, instruction: str) -> None:
        """Append an instruction without a result."""
        self._lines.append("  " + instruction)

    def alloca(self, llvm_type: str, align: int) -> str:
        """Stack memory for the whole call, from the entry block."""
        name = f"%{self.fresh('slot')}"
        self._allocas.append(f"  {name} = alloca {llvm_type}, align {align}")
        return name

    def broadcast(self, scalar: str, kind: str, lanes: int) -> str:
        """A scalar of type ``kind`` in every lane; a constant splat where it is a literal."""
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
        """The definition with ``header`` (``define … {``'s part before the brace)."""
        return "\n".join([f"{header} {{", "entry:", *self._allocas, *self._lines, "}"])


class ScopedMemo:
    """A dictionary that forgets, on leaving a scope, what was added inside."""

    def __init__(self) -> None:
        self.known: dict[Any, str] = {}
        self._log: list[Any] = []

    def add(self, key: Any, value: str) -> None:
        if key not in self.known:
            self.known[key] = value
            self._log.append(key)

    def bind(self, variable: Any, value: str) -> None:
        """Set a variable; what mentions it is not known yet, so it cannot be set again inside."""
        if variable in self.known:
            raise InternalError(f"variable {variable.name} is bound inside its own scope")
        self.add(variable, value)

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Values computed inside do not dominate what follows."""
        mark = len(self._log)
        try:
            yield
        finally:
            for key in self._log[mark:]:
                del self.known[key]
            del self._log[mark:]
