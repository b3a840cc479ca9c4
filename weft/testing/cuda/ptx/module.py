"""The parsed form of a PTX module: declarations, instructions and operands.

Names follow the PTX ISA. Everything here is immutable except the lists that the parser fills.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TypeAlias

from weft.support.dataclass import dataclass

WIDTHS: Mapping[str, int] = {
    "pred": 1, "b8": 8, "u8": 8, "s8": 8, "b16": 16, "u16": 16, "s16": 16, "f16": 16, "bf16": 16,
    "b32": 32, "u32": 32, "s32": 32, "f32": 32, "tf32": 32, "f16x2": 32, "bf16x2": 32, "u16x2": 32,
    "s16x2": 32, "b64": 64, "u64": 64, "s64": 64, "f64": 64, "b128": 128, "e4m3x2": 16,
    "e5m2x2": 16, "f32x2": 64,
}  # fmt: skip

NUMPY: Mapping[str, str] = {
    "pred": "bool", "b8": "u1", "u8": "u1", "s8": "i1", "b16": "u2", "u16": "u2", "s16": "i2",
    "f16": "f2", "bf16": "u2", "b32": "u4", "u32": "u4", "s32": "i4", "f32": "f4", "tf32": "f4",
    "f16x2": "u4", "bf16x2": "u4", "u16x2": "u4", "s16x2": "u4", "b64": "u8", "u64": "u8",
    "s64": "i8", "f64": "f8", "e4m3x2": "u2", "e5m2x2": "u2", "f32x2": "u8",
}  # fmt: skip

# Expressions of the NumPy types in generated code, as `<name>` of the block's namespace.
CANONICAL: Mapping[int, str] = {1: "bool", 8: "u1", 16: "u2", 32: "u4", 64: "u8"}


def is_signed(kind: str) -> bool:
    """Whether ``kind`` is a signed integer type."""
    return kind[0] == "s"


def is_float(kind: str) -> bool:
    """Whether ``kind`` is one floating-point number."""
    return kind in {"f16", "bf16", "f32", "tf32", "f64"}


@dataclass(frozen=True, slots=True)
class Register:
    """A virtual or special register; ``negated`` is the ``!`` before a predicate operand."""

    name: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Immediate:
    """An integer constant, or the bits of a float constant of ``float_width`` bits."""

    value: int
    float_width: int = 0


@dataclass(frozen=True, slots=True)
class Symbol:
    """The address of a variable, or the name of a function or label."""

    name: str


@dataclass(frozen=True, slots=True)
class Address:
    """``[base+offset]``, with ``coordinates`` in the tensor form ``[base, {c0, c1}]``."""

    base: Register | Symbol | Immediate
    offset: int = 0
    coordinates: tuple[Operand, ...] = ()


@dataclass(frozen=True, slots=True)
class Vector:
    """``{a, b, ...}``."""

    elements: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """``a|b``: two destinations."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Sink:
    """``_``: a destination that is dropped, or the absent operand of an instruction."""


Operand: TypeAlias = Register | Immediate | Symbol | Address | Vector | Pair | Sink


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A ``.loc``: file (number or name) and line of the loop program."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction; ``line`` counts lines of the PTX text from 1."""

    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Register | None = None
    line: int = 0
    source: SourceLine | None = None

    @property
    def name(self) -> str:
        """The full name, modifiers included."""
        return ".".join((self.opcode, *self.modifiers))


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable in a state space (``shared``, ``global``, ``const``, ``local``)."""

    name: str
    space: str
    alignment: int
    nbytes: int
    initial: bytes = b""
    external: bool = False


@dataclass(frozen=True, slots=True)
class Parameter:
    """A kernel or function parameter at byte ``offset`` of the parameter space."""

    name: str
    offset: int
    nbytes: int
    alignment: int


@dataclass(slots=True)
class PtxFunction:
    """An ``.entry`` or ``.func`` with its body; ``labels`` map a name to an instruction index."""

    name: str
    entry: bool
    parameters: tuple[Parameter, ...] = ()
    results: tuple[Parameter, ...] = ()
    registers: dict[str, str] = field(default_factory=dict)
    variables: list[Variable] = field(default_factory=list)
    body: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)
    directives: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def parameter_bytes(self) -> int:
        """Bytes of the parameter space."""
        return max((item.offset + item.nbytes for item in self.parameters), default=0)


@dataclass(frozen=True, slots=True)
class PtxModule:
    """A parsed PTX text."""

    functions: Mapping[str, PtxFunction]
    variables: Mapping[str, Variable]
    target: str
    text: str
