"""Builder of the bytecode of one function: registers, blocks, the current block."""

from __future__ import annotations

from collections.abc import Sequence

from weft.compiler.vm.blocks import Block, linearize, topological_order
from weft.compiler.vm.liveness import insert_frees
from weft.ir.types import TupleType, Type
from weft.runtime.vm.bytecode import GetItem, Instruction, MakeTuple
from weft.runtime.vm.program import VmFunction


class FunctionBuilder:
    """The first registers hold the captured values, then the arguments."""

    def __init__(self, name: str, num_captured: int, num_params: int) -> None:
        self.name = name
        self.num_captured = num_captured
        self.num_params = num_params
        self.num_registers = num_captured + num_params
        self.blocks: list[Block] = []
        self.block = self.new_block()

    def new_block(self) -> Block:
        """A new empty block, which does not become the current one."""
        block = Block(len(self.blocks))
        self.blocks.append(block)
        return block

    def new_register(self) -> int:
        self.num_registers += 1
        return self.num_registers - 1

    def emit(self, instruction: Instruction) -> None:
        self.block.code.append(instruction)

    def flatten(self, register: int, type_: Type) -> list[int]:
        """Emit the extraction of the tensors of a (nested) tuple; their registers, in order."""
        flat: list[int] = []
        pending = [(register, type_)]
        while pending:
            at, current = pending.pop()
            if not isinstance(current, TupleType):
                flat.append(at)
                continue
            fields = [(self.new_register(), field) for field in current.fields]
            for index, (field, _) in enumerate(fields):
                self.emit(GetItem(field, at, index))
            pending.extend(reversed(fields))
        return flat

    def assemble(self, registers: Sequence[int], type_: Type) -> int:
        """Emit the construction of a (nested) tuple from ``registers``; its register."""
        rest = iter(registers)
        made: list[int] = []
        pending: list[tuple[Type, bool]] = [(type_, False)]
        while pending:
            current, fields_are_made = pending.pop()
            if not isinstance(current, TupleType):
                made.append(next(rest))
            elif not fields_are_made:
                pending.append((current, True))
                pending.extend((field, False) for field in reversed(current.fields))
            else:
                count = len(current.fields)
                fields = tuple(made[len(made) - count :])
                del made[len(made) - count :]
                made.append(self.new_register())
                self.emit(MakeTuple(made[-1], fields))
        return made[0]

    def finish(self) -> VmFunction:
        """The finished function, with ``Free`` instructions after the last use of values."""
        order = topological_order(self.blocks)
        insert_frees(order, range(self.num_captured + self.num_params))
        return VmFunction(self.name, self.num_captured, self.num_params, self.num_registers,
                          linearize(order))
