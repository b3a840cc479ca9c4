"""Compiles a kernel to Python: one function per basic block, and what the scheduler needs.

The functions use the names of ``NAMESPACE``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from weft.testing.cuda import (
    async_copies,
    bulk_copies,
    matrices,
    mbarriers,
    warpgroups,
    warps,
)
from weft.testing.cuda.block_writer import BlockWriter, KernelNames, gather, scatter
from weft.testing.cuda.compiled import CompiledBlock, Program
from weft.testing.cuda.counters import kind_of
from weft.testing.cuda.deferred_reads import block_uses
from weft.testing.cuda.device_memory import SHARED_START
from weft.testing.cuda.errors import CudaEmulationError
from weft.testing.cuda.instructions import EMITTERS
from weft.testing.cuda.ptx.flow import Block, basic_blocks, ends_block, live_out
from weft.testing.cuda.ptx.inline_calls import inline_calls
from weft.testing.cuda.ptx.module import (
    Address,
    Instruction,
    Operand,
    Pair,
    PtxFunction,
    PtxModule,
    Symbol,
    Variable,
    Vector,
)
from weft.testing.cuda.values import conversions, floats, integers, narrow_floats

Array = np.ndarray


def add_with_carry(a: Array, b: Array, carry: Array | bool) -> tuple[Array, Array]:
    """The sum of two unsigned arrays and a carry bit, and the carry out."""
    total = a + b
    out = total < a
    more = total + np.asarray(carry, dtype=a.dtype)
    return more, out | (more < total)


def subtract_with_borrow(a: Array, b: Array, borrow: Array | bool) -> tuple[Array, Array]:
    """The difference of two unsigned arrays and a borrow bit, and the borrow out."""
    total = a - b
    out = a < b
    more = total - np.asarray(borrow, dtype=a.dtype)
    return more, out | (more > total)


def packed_integers(function: Callable[..., Array], kind: str, a: Array, b: Array) -> Array:
    """``function`` of the 16-bit halves of two words."""
    dtype = "i2" if kind[0] == "s" else "u2"
    halves = [
        function((a >> np.uint32(at)).astype("u2").view(dtype),
                 (b >> np.uint32(at)).astype("u2").view(dtype)).view("u2").astype("u4")
        for at in (0, 16)
    ]
    return halves[0] | (halves[1] << np.uint32(16))


def pairs(function: Callable[..., Array], *operands: Array) -> Array:
    """``function`` of the two float32 halves of 64-bit words."""
    low = function(*(v.astype("u4").view("f4") for v in operands)).view("u4").astype("u8")
    high = function(*((v >> np.uint64(32)).astype("u4").view("f4") for v in operands))
    return low | (high.view("u4").astype("u8") << np.uint64(32))


NAMESPACE: Mapping[str, object] = {
    "np": np, "where": np.where, "gather": gather, "scatter": scatter,
    "I": integers, "F": floats, "H": narrow_floats, "C": conversions, "W": warps,
    "M": matrices, "A": async_copies, "B": mbarriers, "T": bulk_copies, "G": warpgroups,
    "add_with_carry": add_with_carry, "subtract_with_borrow": subtract_with_borrow,
    "packed_integers": packed_integers, "pairs": pairs,
    "bool": np.dtype(np.bool_),
    **{name: np.dtype(name) for name in ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2",
                                         "f4", "f8")},
}  # fmt: skip


def compile_entry(module: PtxModule, entry: str) -> Program:
    """Compile the kernel ``entry``. Raises CudaEmulationError for what the emulator lacks."""
    function = module.functions.get(entry)
    if function is None or not function.entry:
        known = ", ".join(sorted(f.name for f in module.functions.values() if f.entry))
        raise CudaEmulationError(f"the module has no kernel {entry}", expected=known or "none")
    function = inline_calls(module, function)
    function.registers.setdefault("%carry", "pred")
    names = KernelNames(function, {})
    blocks = basic_blocks(function)
    writers = [_written(names, function, block) for block in blocks]
    reads = [_mask(writer.reads) for writer, _ in writers]
    writes = [_mask(writer.written()) & ~_mask(writer.reads) for writer, _ in writers]
    live = live_out(blocks, reads, writes)
    compiled = _functions(names, blocks, writers, live, function)
    return _laid_out(module, function, names, compiled)


def _mask(numbers: list[int]) -> int:
    mask = 0
    for number in numbers:
        mask |= 1 << number
    return mask


def _written(
    names: KernelNames, function: PtxFunction, block: Block
) -> tuple[BlockWriter, str]:
    writer = BlockWriter(names)
    result = "None"
    _, deferred = block_uses(function.body[block.first : block.last], names.numbers)
    for index in range(block.first, block.last):
        instruction = function.body[index]
        writer.instruction = instruction
        writer.may_defer = index - block.first in deferred
        if index == block.last - 1 and ends_block(instruction):
            result = _end(writer, instruction)
        else:
            _emit(writer, instruction)
    return writer, result


def _emit(writer: BlockWriter, instruction: Instruction) -> None:
    emitter = EMITTERS.get(instruction.opcode)
    if emitter is None:
        raise writer.fail("unknown instruction")
    writer.guard = None
    if instruction.guard is not None:
        writer.guard = writer.temporary(writer.read(instruction.guard, "pred"))
    try:
        emitter(writer, instruction)
    except (ValueError, IndexError, KeyError, AssertionError) as error:
        raise writer.fail("instruction form not supported") from error


def _end(writer: BlockWriter, instruction: Instruction) -> str:
    """What the block returns to the scheduler: the condition of a branch, operands of a wait."""
    values = []
    if instruction.guard is not None:
        values.append(writer.temporary(writer.read(instruction.guard, "pred")))
    else:
        values.append("None")
    match instruction.opcode:
        case "brx":
            values.append(writer.read(instruction.operands[0], "u32"))
        case "bar" | "barrier":
            operands = [item for item in instruction.operands if not isinstance(item, Pair)]
            if "red" in instruction.modifiers:
                raise writer.fail("barrier reduction not supported")
            values += [writer.read(item, "u32") for item in operands]
        case "mbarrier":
            emitter = EMITTERS["mbarrier"]
            writer.guard = None if values[0] == "None" else values[0]
            emitter(writer, instruction)
            return f"({values[0]}, t{writer.temporaries})"
    return f"({', '.join(values)},)"


def _functions(
    names: KernelNames, blocks: list[Block], writers: list[tuple[BlockWriter, str]],
    live: list[int], function: PtxFunction,
) -> list[CompiledBlock]:
    texts = [
        writer.source(f"block_{index}", live[index], result)
        for index, (writer, result) in enumerate(writers)
    ]
    namespace: dict[str, object] = {**NAMESPACE, **names.constants}
    code = compile("\n".join(texts), f"<emulated {function.name}>", "exec")
    exec(code, namespace)  # noqa: S102 - the text comes from the instruction emitters
    compiled = []
    for index, block in enumerate(blocks):
        body = function.body[block.first : block.last]
        last = body[-1] if body and ends_block(body[-1]) else None
        kinds: dict[str, int] = {}
        for instruction in body:
            kind = kind_of(instruction)
            kinds[kind] = kinds.get(kind, 0) + 1
        run = namespace[f"block_{index}"]
        assert callable(run)
        site = names.site(last) if last is not None else 0
        compiled.append(
            CompiledBlock(run, last, block.successors, len(body),
                          block_uses(body, names.numbers)[0], kinds, site))
    return compiled


def _laid_out(
    module: PtxModule, function: PtxFunction, names: KernelNames, blocks: list[CompiledBlock]
) -> Program:
    """Place the shared and local variables that the kernel uses."""
    used = _symbols(function)
    shared: dict[str, int] = {}
    position, alignment = SHARED_START, 1
    dynamic: list[str] = []
    local: dict[str, int] = {}
    local_bytes = 0
    candidates: list[Variable] = [
        *function.variables, *(item for item in module.variables.values() if item.name in used)]
    for variable in candidates:
        if variable.space == "shared":
            if variable.external or variable.nbytes == 0:
                dynamic.append(variable.name)
                alignment = max(alignment, variable.alignment)
                continue
            position = -(-position // variable.alignment) * variable.alignment
            shared[variable.name] = position
            position += variable.nbytes
        elif variable.space in {"local", "param"}:
            local_bytes = -(-local_bytes // variable.alignment) * variable.alignment
            local[variable.name] = local_bytes
            local_bytes += variable.nbytes
    return Program(
        module, function, names, blocks, shared, position - SHARED_START, tuple(dynamic),
        alignment, local, local_bytes)


def _symbols(function: PtxFunction) -> set[str]:
    found: set[str] = set()
    stack: list[Operand] = [item for line in function.body for item in line.operands]
    while stack:
        operand = stack.pop()
        match operand:
            case Symbol(name):
                found.add(name)
            case Address(base, _, coordinates):
                stack += [base, *coordinates]
            case Vector(elements):
                stack += elements
            case Pair(first, second):
                stack += [first, second]
            case _:
                pass
    return found
