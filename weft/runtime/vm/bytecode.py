"""Bytecode of the virtual machine: instructions on registers, as plain data.

The first registers of a function hold its captured values, the next ones its parameters. Jump
targets are instruction indices. Each field of an instruction declares its role (register read or
written, jump target, table index); liveness analysis, verification, printing and serialisation use
the roles.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator
from typing import Any, ClassVar

from weft.support.dataclass import dataclass


class Role(enum.Enum):
    """The role of the number or numbers in a field of an instruction."""

    WRITES = "writes"
    READS = "reads"
    TARGET = "target"
    FUNCTION = "function"
    KERNEL = "kernel"
    CONSTANT = "constant"
    NUMBER = "number"
    TEXT = "text"


def _field(role: Role) -> Any:
    return dataclasses.field(metadata={"role": role})


def _writes() -> Any:
    return _field(Role.WRITES)


def _reads() -> Any:
    return _field(Role.READS)


@dataclass(frozen=True, slots=True)
class Instruction:
    """Base of all instructions; ``opcode`` is the name in text and in files."""

    opcode: ClassVar[str] = ""
    # Whether control never continues with the next instruction.
    ends_block: ClassVar[bool] = False

    def numbers(self, role: Role) -> Iterator[int]:
        """The numbers in all fields with the role, in order."""
        for name, found in roles_of(type(self)):
            if found is role:
                value = getattr(self, name)
                yield from value if isinstance(value, tuple) else (value,)


def roles_of(kind: type[Instruction]) -> tuple[tuple[str, Role], ...]:
    """The fields of an instruction in order, with their roles."""
    known = _ROLES.get(kind)
    if known is None:
        known = _ROLES[kind] = tuple((f.name, f.metadata["role"]) for f in dataclasses.fields(kind))
    return known


_ROLES: dict[type[Instruction], tuple[tuple[str, Role], ...]] = {}


@dataclass(frozen=True, slots=True)
class LoadConstant(Instruction):
    opcode: ClassVar[str] = "load_constant"
    result: int = _writes()
    constant: int = _field(Role.CONSTANT)


@dataclass(frozen=True, slots=True)
class Move(Instruction):
    opcode: ClassVar[str] = "move"
    result: int = _writes()
    source: int = _reads()


@dataclass(frozen=True, slots=True)
class Free(Instruction):
    """Release the values of these registers."""

    opcode: ClassVar[str] = "free"
    registers: tuple[int, ...] = _writes()


@dataclass(frozen=True, slots=True)
class InvokeKernel(Instruction):
    """Allocate the results of a kernel and run it on tensors."""

    opcode: ClassVar[str] = "invoke_kernel"
    results: tuple[int, ...] = _writes()
    kernel: int = _field(Role.KERNEL)
    args: tuple[int, ...] = _reads()


@dataclass(frozen=True, slots=True)
class Reshape(Instruction):
    """A view with another shape."""

    opcode: ClassVar[str] = "reshape"
    result: int = _writes()
    source: int = _reads()
    shape: tuple[int, ...] = _field(Role.NUMBER)


@dataclass(frozen=True, slots=True)
class MakeTuple(Instruction):
    opcode: ClassVar[str] = "make_tuple"
    result: int = _writes()
    fields: tuple[int, ...] = _reads()


@dataclass(frozen=True, slots=True)
class GetItem(Instruction):
    """One field of a tuple."""

    opcode: ClassVar[str] = "get_item"
    result: int = _writes()
    source: int = _reads()
    index: int = _field(Role.NUMBER)


@dataclass(frozen=True, slots=True)
class MakeData(Instruction):
    """A value of an algebraic data type: the constructor's tag and name, and its fields."""

    opcode: ClassVar[str] = "make_data"
    result: int = _writes()
    tag: int = _field(Role.NUMBER)
    name: str = _field(Role.TEXT)
    fields: tuple[int, ...] = _reads()


@dataclass(frozen=True, slots=True)
class GetField(Instruction):
    """One field of a value of a data type."""

    opcode: ClassVar[str] = "get_field"
    result: int = _writes()
    source: int = _reads()
    index: int = _field(Role.NUMBER)


@dataclass(frozen=True, slots=True)
class MakeRef(Instruction):
    opcode: ClassVar[str] = "make_ref"
    result: int = _writes()
    value: int = _reads()


@dataclass(frozen=True, slots=True)
class ReadRef(Instruction):
    opcode: ClassVar[str] = "read_ref"
    result: int = _writes()
    ref: int = _reads()


@dataclass(frozen=True, slots=True)
class WriteRef(Instruction):
    opcode: ClassVar[str] = "write_ref"
    ref: int = _reads()
    value: int = _reads()


@dataclass(frozen=True, slots=True)
class MakeClosure(Instruction):
    opcode: ClassVar[str] = "make_closure"
    result: int = _writes()
    function: int = _field(Role.FUNCTION)
    captured: tuple[int, ...] = _reads()


@dataclass(frozen=True, slots=True)
class LoadSelf(Instruction):
    """The running closure, for recursive calls of a local function."""

    opcode: ClassVar[str] = "load_self"
    result: int = _writes()


@dataclass(frozen=True, slots=True)
class Call(Instruction):
    opcode: ClassVar[str] = "call"
    result: int = _writes()
    function: int = _field(Role.FUNCTION)
    args: tuple[int, ...] = _reads()


@dataclass(frozen=True, slots=True)
class CallClosure(Instruction):
    opcode: ClassVar[str] = "call_closure"
    result: int = _writes()
    closure: int = _reads()
    args: tuple[int, ...] = _reads()


@dataclass(frozen=True, slots=True)
class TailCall(Instruction):
    """Tail call: continue in another function, whose result is that of this one."""

    opcode: ClassVar[str] = "tail_call"
    ends_block: ClassVar[bool] = True
    function: int = _field(Role.FUNCTION)
    args: tuple[int, ...] = _reads()


@dataclass(frozen=True, slots=True)
class TailCallClosure(Instruction):
    opcode: ClassVar[str] = "tail_call_closure"
    ends_block: ClassVar[bool] = True
    closure: int = _reads()
    args: tuple[int, ...] = _reads()


@dataclass(frozen=True, slots=True)
class Jump(Instruction):
    opcode: ClassVar[str] = "jump"
    ends_block: ClassVar[bool] = True
    target: int = _field(Role.TARGET)


@dataclass(frozen=True, slots=True)
class JumpUnless(Instruction):
    """Jump to the target if the scalar is false."""

    opcode: ClassVar[str] = "jump_unless"
    condition: int = _reads()
    target: int = _field(Role.TARGET)


@dataclass(frozen=True, slots=True)
class JumpUnlessTag(Instruction):
    """Jump to the target unless the value was constructed by the constructor ``tag``."""

    opcode: ClassVar[str] = "jump_unless_tag"
    source: int = _reads()
    tag: int = _field(Role.NUMBER)
    target: int = _field(Role.TARGET)


@dataclass(frozen=True, slots=True)
class Return(Instruction):
    opcode: ClassVar[str] = "return"
    ends_block: ClassVar[bool] = True
    value: int = _reads()


@dataclass(frozen=True, slots=True)
class Fail(Instruction):
    """Raise an error: no clause of a match expression matches."""

    opcode: ClassVar[str] = "fail"
    ends_block: ClassVar[bool] = True
    message: str = _field(Role.TEXT)


INSTRUCTIONS: dict[str, type[Instruction]] = {
    kind.opcode: kind
    for kind in (
        LoadConstant, Move, Free, InvokeKernel, Reshape, MakeTuple, GetItem, MakeData, GetField,
        MakeRef, ReadRef, WriteRef, MakeClosure, LoadSelf, Call, CallClosure, TailCall,
        TailCallClosure, Jump, JumpUnless, JumpUnlessTag, Return, Fail,
    )
}  # fmt: skip
