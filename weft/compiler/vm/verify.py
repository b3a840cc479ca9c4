"""``WEFT_VERIFY``: proves that bytecode reads only registers that hold a value.

A forward walk keeps, for each instruction, the registers that hold a value on every path to it
(definite assignment): parameters and captured values at the entry, then what instructions write and
``Free`` takes away.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.runtime.vm.bytecode import Free, Instruction, Role
from weft.runtime.vm.program import VmFunction
from weft.support.config import config
from weft.support.errors import InternalError


def verify_bytecode(functions: Sequence[VmFunction]) -> None:
    """Raise ``InternalError`` for an instruction that reads a register without a value.

    The error names the function, the instruction and the register. Does nothing with
    ``WEFT_VERIFY=0``.
    """
    if config.verify >= 1:
        for function in functions:
            _verify(function)


def _verify(function: VmFunction) -> None:
    held: dict[int, frozenset[int]] = {0: frozenset(range(function.num_entry))}
    pending = [0]
    while pending:
        at = pending.pop()
        if at >= len(function.code):
            raise InternalError("bytecode runs past the end of its function", where=function.name)
        instruction = function.code[at]
        for register in instruction.numbers(Role.READS):
            if register not in held[at]:
                raise InternalError(
                    f"register {register} is read before it is written",
                    where=f"instruction {at} ({instruction.opcode}) of {function.name}",
                    expected="an instruction before that writes it, on every path")
        after = _after(instruction, held[at])
        for following in _following(at, instruction):
            known = held.get(following)
            joined = after if known is None else after & known
            if joined != known:
                held[following] = joined
                pending.append(following)


def _after(instruction: Instruction, held: frozenset[int]) -> frozenset[int]:
    registers = frozenset(instruction.numbers(Role.WRITES))
    return held - registers if isinstance(instruction, Free) else held | registers


def _following(at: int, instruction: Instruction) -> list[int]:
    """The instructions that may come next."""
    targets = list(instruction.numbers(Role.TARGET))
    return targets if instruction.ends_block else [*targets, at + 1]
