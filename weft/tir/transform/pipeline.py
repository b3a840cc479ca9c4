"""The one order of the passes from a scheduled loop nest to what code generation takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from weft.support.recursion import deep_recursion
from weft.tir.func import PrimFunc
from weft.tir.transform.check_local import check_local
from weft.tir.transform.flatten_buffer import flatten_buffer
from weft.tir.transform.horizontal_reduce import horizontal_reduce
from weft.tir.transform.inject_double_buffer import inject_double_buffer
from weft.tir.transform.interleave_tile import interleave_tile
from weft.tir.transform.loop_partition import loop_partition
from weft.tir.transform.lower_intrinsics import lower_intrinsics
from weft.tir.transform.plan_workspace import plan_workspace
from weft.tir.transform.registered import TirInsertion, TirPass, tir_pass_name, with_insertions
from weft.tir.transform.remove_no_op import remove_no_op
from weft.tir.transform.separate_registers import separate_registers
from weft.tir.transform.simplify import simplify
from weft.tir.transform.tensorize_loop import tensorize_loop
from weft.tir.transform.transpose_tile import transpose_tile
from weft.tir.transform.unroll_loop import unroll_loop
from weft.tir.transform.vectorize_loop import vectorize_loop
from weft.tir.verify import PHASE_FACTS, verify_func


class TirInstrument(Protocol):
    """Looks at a function after each pass; ``before is after`` where nothing changed."""

    def after_pass(self, name: str, before: PrimFunc, after: PrimFunc) -> None: ...


TIR_PIPELINE: tuple[TirPass, ...] = (
    simplify,          # proves guards away, so that fewer loops are cut
    loop_partition,    # main and tail: no guard in a hot loop
    inject_double_buffer,  # loops without guards alone can run ahead
    tensorize_loop,    # on main parts without guards, before their loops become vectors
    horizontal_reduce,     # trees over the vectors that the next pass makes
    transpose_tile,    # before the loops that it takes whole become gathers
    vectorize_loop,    # before unrolling, which then copies vectors instead of lanes
    unroll_loop,       # makes register indices constant
    separate_registers,  # copies of a loop, made above, share no register
    lower_intrinsics,  # polynomials over the vectors made above
    check_local,       # registers, or memory after all
    plan_workspace,    # needs to know which locals became memory
    flatten_buffer,    # one index each, simplified with the ranges of the loops left
    interleave_tile,   # where neighbours in memory are plain to see
    remove_no_op,      # what the passes above have emptied
)  # fmt: skip


def lower_prim_func(
    func: PrimFunc, *, instruments: Sequence[TirInstrument] = (), verify: bool = False,
    insertions: Sequence[TirInsertion] = (),
) -> PrimFunc:
    """``func`` ready for code generation.

    Buffers are one-dimensional, loops serial or parallel, ``local`` buffers have constant
    indices, transcendentals are arithmetic, and scratch has its place in the workspace. With
    ``verify``, what must hold after each pass is checked. Raises ``LoweringError`` for programs
    without such a form.
    """
    facts: tuple[str, ...] = ()
    if verify:
        verify_func(func)
    for apply in with_insertions(TIR_PIPELINE, insertions):
        with deep_recursion():  # chains of fused operators are deep expressions
            after = apply(func)
        for instrument in instruments:
            instrument.after_pass(tir_pass_name(apply), func, after)
        func = after
        if verify:
            facts = (*facts, *PHASE_FACTS.get(tir_pass_name(apply), ()))
            verify_func(func, facts)
    return func
