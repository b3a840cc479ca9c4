"""Tensor instructions defined by a tensor expression."""

from __future__ import annotations

from collections.abc import Sequence

from weft.support.errors import LoweringError
from weft.te.schedule import create_schedule
from weft.te.tensor import PlaceholderOp, Tensor
from weft.te.update import Update
from weft.tir import Buffer, Instruction, PrimExpr, Var, const, int_value, substitute
from weft.tir.instruction import INSTRUCTIONS, Emit, register_instruction


def instruction(name: str, inputs: Sequence[Tensor], output: Tensor, emit: Emit, *,
                archs: Sequence[str] = (), features: Sequence[str] = ()) -> Instruction:
    """Define the instruction that computes ``output`` of ``inputs``, and register it by ``name``.

    The body is one ``te.compute`` over placeholders of constant sizes. If it reduces, the
    instruction combines its result with the accumulator's old value. ``emit`` receives the code
    writer of the function, the dtype of the result, and one vector per operand: the accumulator
    if the body reduces, then each input with all its elements in row-major order. ``archs`` lists
    the architectures and ``features`` LLVM's names of the CPU features that it needs.

    Raises ``LoweringError`` for a body of another form, ``RegistryError`` for a name in use.
    """
    stage = create_schedule(output)[output]
    op = stage.require_compute("instruction")
    if len(op.body) != 1 or any(not isinstance(t.op, PlaceholderOp) for t in inputs):
        raise LoweringError(f"instruction {name}: its body is one compute of placeholders")
    update = Update(stage)
    store = update.store()
    extents = [(axis.var, int_value(axis.extent)) for axis in stage.leaf_iter_vars]
    loops = tuple((var, extent) for var, extent in extents if extent is not None)
    if len(loops) != len(extents):
        raise LoweringError(f"instruction {name}: its sizes must be integers")
    missing = [t.name for t in update.buffers if t is not output and t not in inputs]
    if missing:
        raise LoweringError(f"instruction {name}: its body reads tensors that are not inputs",
                            got=", ".join(missing))
    buffers = tuple(update.buffers.get(t) or Buffer(t.name, t.shape, t.dtype) for t in inputs)
    moving = tuple((var, extent) for var, extent in loops if extent != 1)
    still: dict[Var, PrimExpr] = {var: const(0) for var, extent in loops if extent == 1}
    store = store.replace(value=substitute(store.value, still),
                          indices=tuple(substitute(i, still) for i in store.indices))
    return register_instruction(Instruction(name, moving, store, buffers, tuple(archs),
                                            tuple(features), emit))


def find_instruction(name: str) -> Instruction:
    """The registered instruction of this name; raises ``RegistryError`` for an unknown name."""
    return INSTRUCTIONS.get(name)
