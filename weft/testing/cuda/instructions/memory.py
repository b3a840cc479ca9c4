"""Loads, stores, atomics and fences.

``site`` numbers the static accesses of a kernel, for reports and counters. An access is ``tracked``
by the race check unless it is volatile or has memory-order semantics (PTX ISA, "Memory Consistency
Model"). The guard of a predicated access is handed to it, not applied afterwards: a thread whose
predicate is false must not touch memory.
"""

from __future__ import annotations

from weft.testing.cuda.block_writer import BlockWriter
from weft.testing.cuda.instructions.common import EmitterTable, last_type
from weft.testing.cuda.ptx.module import (
    CANONICAL,
    WIDTHS,
    Address,
    Immediate,
    Instruction,
    Operand,
    Register,
    Sink,
    Symbol,
    Vector,
)

SPACES = ("global", "shared", "local", "const", "param")
# Accesses that synchronise, or promise no race with others that do.
_ORDERED = frozenset(("volatile", "acquire", "release", "relaxed", "mmio"))


def space_of(instruction: Instruction) -> str:
    """The state space: ``generic`` without a modifier."""
    for modifier in instruction.modifiers:
        base = modifier.split("::")[0]
        if base in SPACES:
            return base
    return "generic"


def address_of(writer: BlockWriter, operand: Operand, space: str) -> str:
    """The expression of an address: uint64, or uint32 where a 32-bit register holds it."""
    if not isinstance(operand, Address):
        raise writer.fail("operand is not an address")
    base = operand.base
    if isinstance(base, Register):
        number = writer.names.numbers.get(base.name)
        kind = "u32" if number is not None and writer.names.widths[number] == 32 else "u64"
        value = writer.read(base, kind)
    elif isinstance(base, Symbol):
        kind, value = "u64", f"x.symbol({base.name!r}, 'u8')"
        if space == "generic":
            raise writer.fail("generic access to a symbol")
    else:
        assert isinstance(base, Immediate)
        kind, value = "u64", writer.names.constant(base.value, "u64")
    if operand.offset:
        value = f"{value} + {writer.names.constant(operand.offset, kind)}"
    return writer.temporary(value)


def _elements(operand: Operand) -> tuple[Operand, ...]:
    return operand.elements if isinstance(operand, Vector) else (operand,)


def _ld(writer: BlockWriter, instruction: Instruction) -> None:
    kind, space = last_type(instruction), space_of(instruction)
    targets = _elements(instruction.operands[0])
    if WIDTHS[kind] == 128:
        raise writer.fail("128-bit scalars are not supported")
    source = instruction.operands[1]
    if space == "param" and _is_parameter(source):
        _ld_param(writer, source, targets, kind)
        return
    address = address_of(writer, source, space)
    guard, writer.guard = writer.guard, None
    tracked = not _ORDERED.intersection(instruction.modifiers)
    width = WIDTHS[kind] // 8
    # A load whose result the block does not use yet may be checked for races when it is used.
    deferred = _target_numbers(writer, targets) if writer.may_defer else ()
    values = writer.temporary(
        f"x.load({space!r}, {address}, {width}, {len(targets)}, {guard}, {writer.site()}, "
        f"{tracked}, {deferred})")
    writer.guard = guard
    _assign(writer, targets, kind, values)


def _target_numbers(writer: BlockWriter, targets: tuple[Operand, ...]) -> tuple[int, ...]:
    numbers = writer.names.numbers
    return tuple(numbers[item.name] for item in targets
                 if isinstance(item, Register) and item.name in numbers)


def _assign(writer: BlockWriter, targets: tuple[Operand, ...], kind: str, values: str) -> None:
    """Write the unsigned arrays that a load gives."""
    signed = kind[0] == "s"
    for index, target in enumerate(targets):
        value = f"{values}[{index}]"
        if signed:
            writer.write(target, kind, f"{value}.view(i{WIDTHS[kind] // 8})")
        else:
            writer.write(target, f"b{WIDTHS[kind]}", value)


def _is_parameter(operand: Operand) -> bool:
    return isinstance(operand, Address) and isinstance(operand.base, Symbol)


def _ld_param(
    writer: BlockWriter, source: Operand, targets: tuple[Operand, ...], kind: str
) -> None:
    assert isinstance(source, Address)
    assert isinstance(source.base, Symbol)
    width = WIDTHS[kind] // 8
    for index, target in enumerate(targets):
        offset = source.offset + index * width
        value = f"x.parameter({source.base.name!r}, {offset}, {CANONICAL[WIDTHS[kind]]!r})"
        if kind[0] == "s":
            writer.write(target, kind, f"{value}.view(i{width})")
        else:
            writer.write(target, f"b{WIDTHS[kind]}", value)


def _st(writer: BlockWriter, instruction: Instruction) -> None:
    kind, space = last_type(instruction), space_of(instruction)
    target, source = instruction.operands
    sources = _elements(source)
    address = address_of(writer, target, space)
    values = [writer.read(item, f"b{WIDTHS[kind]}") for item in sources]
    tracked = not _ORDERED.intersection(instruction.modifiers)
    writer.line(
        f"x.store({space!r}, {address}, ({', '.join(values)},), {WIDTHS[kind] // 8}, "
        f"{writer.guard}, {writer.site()}, {tracked})")


def _atom(writer: BlockWriter, instruction: Instruction) -> None:
    """``atom`` with a result, ``red`` without."""
    kind, space = last_type(instruction), space_of(instruction)
    returns = instruction.opcode == "atom"
    operands = instruction.operands if returns else (Sink(), *instruction.operands)
    operation = next((item for item in instruction.modifiers if item in _OPERATIONS), None)
    if operation is None or WIDTHS[kind] == 128:
        raise writer.fail("atomic operation not supported")
    address = address_of(writer, operands[1], space)
    read_as = kind if kind not in {"f16x2", "bf16x2", "bf16"} else f"b{WIDTHS[kind]}"
    vector = _elements(operands[2])
    guard, writer.guard = writer.guard, None
    for index, item in enumerate(vector):
        others = [writer.read(item, read_as)]
        others += [writer.read(operand, read_as) for operand in operands[3:]]
        at = address
        if index:
            step = index * WIDTHS[kind] // 8
            at = writer.temporary(f"{address} + {writer.names.constant(step, 'u64')}")
        value = writer.temporary(
            f"x.atomic({space!r}, {operation!r}, {kind!r}, {at}, ({', '.join(others)},), {guard}, "
            f"{writer.site()}, {returns})")
        if returns:
            writer.guard = guard
            writer.write(_elements(operands[0])[index], read_as, value)
            writer.guard = None
    writer.guard = guard


_OPERATIONS = frozenset(("add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"))


def _fence(writer: BlockWriter, instruction: Instruction) -> None:
    """``membar.gl``, ``fence.acq_rel.gpu``: blocks that fence may communicate."""
    scopes = {"gl", "sys", "gpu"}
    if scopes.intersection(instruction.modifiers) and "mbarrier_init" not in instruction.modifiers:
        writer.line("x.fence()")


def _nothing(writer: BlockWriter, instruction: Instruction) -> None:
    """Hints: prefetches, cache policies, waits for earlier grids."""
    del writer, instruction


def _createpolicy(writer: BlockWriter, instruction: Instruction) -> None:
    writer.write(instruction.operands[0], "u64", writer.names.constant(0, "u64"))


MEMORY: EmitterTable = {
    "ld": _ld, "ldu": _ld, "st": _st, "atom": _atom, "red": _atom, "membar": _fence,
    "fence": _fence, "prefetch": _nothing, "prefetchu": _nothing, "applypriority": _nothing,
    "discard": _nothing, "griddepcontrol": _nothing, "setmaxnreg": _nothing, "pmevent": _nothing,
    "createpolicy": _createpolicy, "brkpt": _nothing,
}  # fmt: skip
