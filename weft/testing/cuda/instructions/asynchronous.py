"""Asynchronous copies, barriers in memory, products of warpgroups, clusters.

Results become visible as late as the PTX ISA allows: at ``wait_group`` (``A``, ``T``, ``G``) or at
the end of the phase of an ``mbarrier`` (``B``), so that a kernel that waits too little reads
poison. Counts and immediates are Python integers, addresses arrays.
"""

from __future__ import annotations

from weft.testing.cuda.block_writer import BlockWriter
from weft.testing.cuda.instructions.common import EmitterTable
from weft.testing.cuda.instructions.memory import address_of
from weft.testing.cuda.instructions.warp import elements, shape_of
from weft.testing.cuda.ptx.module import Address, Immediate, Instruction, Sink, Vector


def _number(writer: BlockWriter, instruction: Instruction, at: int) -> int:
    operand = instruction.operands[at]
    if not isinstance(operand, Immediate):
        raise writer.fail("operand is not a constant")
    return operand.value


def _cp(writer: BlockWriter, instruction: Instruction) -> None:
    modifiers = instruction.modifiers
    if modifiers[:2] == ("async", "bulk"):
        _bulk(writer, instruction)
    elif "commit_group" in modifiers:
        writer.line(f"A.commit(x, {writer.guard})")
    elif "wait_group" in modifiers:
        writer.line(f"A.wait(x, {_number(writer, instruction, 0)}, {writer.guard})")
    elif "wait_all" in modifiers:
        writer.line(f"A.wait_all(x, {writer.guard})")
    elif "mbarrier" in modifiers:
        _copies_arrive(writer, instruction)
    else:
        _copy(writer, instruction)


def _copy(writer: BlockWriter, instruction: Instruction) -> None:
    """``cp.async.cg.shared.global [dst], [src], bytes{, used}``."""
    target = address_of(writer, instruction.operands[0], "shared")
    source = address_of(writer, instruction.operands[1], "global")
    nbytes = _number(writer, instruction, 2)
    used = writer.names.constant(nbytes, "u32")
    if len(instruction.operands) > 3:
        used = writer.read(instruction.operands[3], "u32")
    writer.line(f"A.copy(x, {target}, {source}, {nbytes}, {used}, {writer.guard}, "
                f"{writer.site()})")


def _copies_arrive(writer: BlockWriter, instruction: Instruction) -> None:
    """``cp.async.mbarrier.arrive``: when the thread's copies are complete. They complete here."""
    barrier = address_of(writer, instruction.operands[0], "shared")
    one, zero = writer.names.constant(1, "u32"), writer.names.constant(0, "u32")
    writer.line(f"A.wait_all(x, {writer.guard})")
    if "noinc" not in instruction.modifiers:
        raise writer.fail("cp.async.mbarrier.arrive without .noinc not supported")
    writer.line(f"B.arrive(x, {barrier}, {one}, {zero}, False, {writer.guard}, {writer.site()})")


def _bulk(writer: BlockWriter, instruction: Instruction) -> None:
    modifiers = instruction.modifiers
    if "commit_group" in modifiers:
        writer.line(f"T.commit(x, {writer.guard})")
    elif "wait_group" in modifiers:
        writer.line(f"T.wait(x, {_number(writer, instruction, 0)}, {writer.guard})")
    elif "prefetch" in modifiers:
        return
    elif "tensor" in modifiers:
        _bulk_tensor(writer, instruction)
    else:
        _bulk_bytes(writer, instruction)


def _to_shared(instruction: Instruction) -> bool:
    spaces = [item.split("::")[0] for item in instruction.modifiers]
    return spaces.index("shared") < spaces.index("global")


def _bulk_tensor(writer: BlockWriter, instruction: Instruction) -> None:
    if "tile" not in instruction.modifiers and any(
        item.startswith("im2col") for item in instruction.modifiers
    ):
        raise writer.fail("im2col copies are not supported")
    operands = instruction.operands
    if _to_shared(instruction):
        target, tensor, barrier = operands[0], operands[1], operands[2]
        mask = _multicast(writer, instruction, 3)
        where, coordinates = _tensor_operand(writer, tensor)
        writer.line(
            f"T.load_tensor(x, {address_of(writer, target, 'shared')}, {where}, ({coordinates}), "
            f"{address_of(writer, barrier, 'shared')}, {mask}, {writer.guard}, {writer.site()})")
        return
    where, coordinates = _tensor_operand(writer, operands[0])
    writer.line(
        f"T.store_tensor(x, {where}, ({coordinates}), "
        f"{address_of(writer, operands[1], 'shared')}, None, {writer.guard}, {writer.site()})")


def _tensor_operand(writer: BlockWriter, operand: object) -> tuple[str, str]:
    assert isinstance(operand, Address)
    where = address_of(writer, operand, "param")
    return where, "".join(f"{writer.read(item, 'u32')}, " for item in operand.coordinates)


def _multicast(writer: BlockWriter, instruction: Instruction, at: int) -> str:
    if "multicast::cluster" not in instruction.modifiers:
        return "None"
    return writer.read(instruction.operands[at], "u16")


def _bulk_bytes(writer: BlockWriter, instruction: Instruction) -> None:
    operands = instruction.operands
    size = writer.read(operands[2], "u32")
    if _to_shared(instruction):
        target = address_of(writer, operands[0], "shared")
        source = address_of(writer, operands[1], "global")
        barrier = address_of(writer, operands[3], "shared")
        mask = _multicast(writer, instruction, 4)
        writer.line(f"T.load_bytes(x, {target}, {source}, {size}, {barrier}, {mask}, "
                    f"{writer.guard}, {writer.site()})")
        return
    target = address_of(writer, operands[0], "global")
    source = address_of(writer, operands[1], "shared")
    writer.line(f"T.store_bytes(x, {target}, {source}, {size}, {writer.guard}, {writer.site()})")


def _mbarrier(writer: BlockWriter, instruction: Instruction) -> None:
    what, operands = instruction.modifiers[0], instruction.operands
    site, guard = writer.site(), writer.guard
    match what:
        case "init":
            barrier = address_of(writer, operands[0], "shared")
            count = writer.read(operands[1], "u32")
            writer.line(f"B.initialise(x, {barrier}, {count}, {guard}, {site})")
        case "inval":
            barrier = address_of(writer, operands[0], "shared")
            writer.line(f"B.invalidate(x, {barrier}, {guard}, {site})")
        case "arrive" | "arrive_drop":
            _arrive(writer, instruction, site)
        case "expect_tx" | "complete_tx":
            barrier = address_of(writer, operands[0], "shared")
            nbytes = writer.read(operands[1], "s32")
            sign = "-" if what == "complete_tx" else ""
            writer.line(f"B.expect(x, {barrier}, {sign}{nbytes}, {guard}, {site})")
        case "test_wait" | "try_wait":
            barrier = address_of(writer, operands[1], "shared")
            parity = "parity" in instruction.modifiers
            state = writer.read(operands[2], "u32" if parity else "u64")
            writer.guard = None
            done = writer.temporary(
                f"B.test(x, {barrier}, {state}, {parity}, {guard}, {site})")
            writer.guard = guard
            writer.write(operands[0], "pred", done)
            writer.temporary(done)
        case _:
            raise writer.fail("mbarrier operation not supported")


def _arrive(writer: BlockWriter, instruction: Instruction, site: int) -> None:
    operands = list(instruction.operands)
    state = Sink() if isinstance(operands[0], Address) else operands.pop(0)
    barrier = address_of(writer, operands[0], "shared")
    one, zero = writer.names.constant(1, "u32"), writer.names.constant(0, "u32")
    amount = writer.read(operands[1], "u32") if len(operands) > 1 else None
    transaction = "expect_tx" in instruction.modifiers
    count = one if transaction or amount is None else amount
    nbytes = amount if transaction and amount is not None else zero
    drop = instruction.modifiers[0] == "arrive_drop"
    guard, writer.guard = writer.guard, None
    token = writer.temporary(
        f"B.arrive(x, {barrier}, {count}, {nbytes}, {drop}, {guard}, {site})")
    writer.guard = guard
    if not isinstance(state, Sink):
        writer.write(state, "b64", token)


def _wgmma(writer: BlockWriter, instruction: Instruction) -> None:
    what = instruction.modifiers[0]
    if what == "fence":
        return
    if what == "commit_group":
        writer.line(f"G.commit(x, {writer.guard})")
        return
    if what == "wait_group":
        writer.line(f"G.wait(x, {_number(writer, instruction, 0)}, {writer.guard})")
        return
    if what != "mma_async" or "sp" in instruction.modifiers:
        raise writer.fail("wgmma form not supported")
    _wgmma_product(writer, instruction)


def _wgmma_product(writer: BlockWriter, instruction: Instruction) -> None:
    kinds = instruction.modifiers[-3:]
    target, a, b, scale, *rest = instruction.operands
    constants = [item.value for item in rest if isinstance(item, Immediate)]
    if len(constants) != len(rest):
        raise writer.fail("wgmma operand is not a constant")
    # After scale-d: imm-scale-a and -b (1 or -1), then the transposition of A and B.
    signs = (constants[0], constants[1]) if len(constants) >= 2 else (1, 1)
    transposed = [*constants[2:], 0, 0]
    if isinstance(a, Vector):
        left = "".join(f"{writer.read(item, 'u32')}, " for item in a.elements)
        flags = (0, transposed[0])  # A in registers has no flag of its own
    else:
        left = f"{writer.read(a, 'u64')}, "
        flags = (transposed[0], transposed[1])
    accumulate = writer.read(scale, "pred")
    sums = "".join(f"{writer.read(item, 'u32')}, " for item in elements(target))
    guard, writer.guard = writer.guard, None
    result = writer.temporary(
        f"G.multiply(x, {shape_of(writer, instruction)}, {kinds}, ({sums}), ({left}), "
        f"{writer.read(b, 'u64')}, {accumulate}, {signs}, {flags}, {guard}, {writer.site()})")
    for index, item in enumerate(elements(target)):
        writer.write(item, "b32", f"{result}[{index}]")


def _mapa(writer: BlockWriter, instruction: Instruction) -> None:
    """``mapa.shared::cluster.u32 d, a, rank``: the address in another block of the cluster.

    The emulator's cluster addresses have the rank plus one above bit 24, and the address in the
    block below; 0 there is the thread's own block.
    """
    kind = instruction.modifiers[-1]
    operand = instruction.operands[1]
    address = writer.read(operand, kind)
    rank = writer.read(instruction.operands[2], "u32")
    wide = "u8" if kind == "u64" else "u4"
    mask = writer.names.constant(0xFFFFFF, kind)
    if "shared::cluster" in instruction.modifiers:
        value = f"({address} & {mask}) | (({rank}.astype({wide}) + 1) << 24).astype({wide})"
    else:
        value = f"x.map_generic({address}, {rank})"
    writer.write(instruction.operands[0], kind, value)


def _getctarank(writer: BlockWriter, instruction: Instruction) -> None:
    kind = instruction.modifiers[-1]
    address = writer.read(instruction.operands[1], kind)
    writer.write(instruction.operands[0], "u32", f"x.rank_of({address})")


ASYNCHRONOUS: EmitterTable = {
    "cp": _cp, "mbarrier": _mbarrier, "wgmma": _wgmma, "mapa": _mapa, "getctarank": _getctarank,
}
