"""The order of the passes from a scheduled loop nest to the input of code generation.

``TIR_PIPELINE`` is the order for CPUs with vector registers. Each back end names its own list
(``weft.codegen.backend``), which may be this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from weft.support.interpreter import deep_recursion
from weft.tir.func import PrimFunc
from weft.tir.transform.block_sums import block_sums
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
    """Observes each pass; ``before is after`` if the pass changed nothing."""

    def after_pass(self, name: str, before: PrimFunc, after: PrimFunc) -> None: ...


TIR_PIPELINE: tuple[TirPass, ...] = (
    simplify,          # removes guards that always hold, so that fewer loops are split
    loop_partition,    # splits into main and tail: no guard in a hot loop
    inject_double_buffer,  # needs loops without guards, to load one iteration ahead
    tensorize_loop,    # needs loops without guards that are not vectors yet
    horizontal_reduce,     # makes trees of the vectors that the next pass creates
    transpose_tile,    # before the loops that it replaces become gathers
    vectorize_loop,    # before unrolling, which then copies vectors instead of lanes
    unroll_loop,       # makes register indices constant
    separate_registers,  # copies of a loop, which the passes above make, share no register
    block_sums,        # needs constant register indices, and each loop with registers of its own
    lower_intrinsics,  # polynomials over the vectors made above
    check_local,       # decides which local buffers are registers and which memory
    plan_workspace,    # needs to know which locals became memory
    flatten_buffer,    # one index per access, simplified with the loop ranges
    interleave_tile,   # needs flat indices to see which accesses are adjacent
    remove_no_op,      # removes the loops that the passes above left empty
)  # fmt: skip


def lower_prim_func(func: PrimFunc, passes: Sequence[TirPass] = TIR_PIPELINE, *,
                    instruments: Sequence[TirInstrument] = (), verify: bool = False,
                    insertions: Sequence[TirInsertion] = ()) -> PrimFunc:
    """``func`` after ``passes``, ready for code generation.

    After ``TIR_PIPELINE`` buffers are one-dimensional, loops serial or parallel, ``local`` buffers
    have constant indices, transcendentals are arithmetic, and scratch buffers are offsets in the
    workspace. With ``verify``, the rules of loop programs are checked after each pass. Raises
    ``LoweringError`` for programs without such a form.
    """
    facts: tuple[str, ...] = ()
    if verify:
        verify_func(func)
    for apply in with_insertions(passes, insertions):
        with deep_recursion():  # chains of fused operators are deep expressions
            after = apply(func)
        for instrument in instruments:
            instrument.after_pass(tir_pass_name(apply), func, after)
        func = after
        if verify:
            facts = (*facts, *PHASE_FACTS.get(tir_pass_name(apply), ()))
            verify_func(func, facts)
    return func
