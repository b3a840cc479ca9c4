"""Kinds of instructions that counters tell apart."""

from __future__ import annotations

from weft.testing.cuda.ptx import Instruction

_LOADS_STORES = frozenset(("ld", "ldu", "st", "ldmatrix", "stmatrix"))
_SYNC = frozenset(("bar", "barrier", "mbarrier", "membar", "fence", "wgmma.fence"))
_CONTROL = frozenset(("bra", "brx", "ret", "exit", "call"))
_FLOATS = frozenset(("f32", "f64", "f16", "bf16", "f16x2", "bf16x2", "f32x2"))
_SPECIAL = frozenset(("rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh"))


def kind_of(instruction: Instruction) -> str:
    """fma, float, special, mma, integer, convert, ldst, async, atomic, sync, warp or control."""
    opcode, modifiers = instruction.opcode, instruction.modifiers
    if opcode in {"mma", "wgmma"}:
        return "mma" if opcode == "mma" or modifiers[0] == "mma_async" else "sync"
    if opcode in _LOADS_STORES:
        return "ldst"
    if opcode == "cp":
        return "async"
    if opcode in {"atom", "red"}:
        return "atomic"
    if opcode in _SYNC:
        return "sync"
    if opcode in _CONTROL:
        return "control"
    if opcode in {"shfl", "vote", "match", "redux", "elect", "activemask"}:
        return "warp"
    if opcode == "fma":
        return "fma"
    if opcode in _SPECIAL:
        return "special"
    if opcode == "cvt":
        return "convert"
    return "float" if modifiers and modifiers[-1] in _FLOATS else "integer"
