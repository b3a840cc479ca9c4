"""Dispatch of expressions to the emitter of their node type, with memoised results.

The memo is scoped by dominance: the value of a pure expression is reused wherever its definition
dominates, so that index arithmetic shared by the copies of an unrolled loop is emitted once.
Expressions that load from written memory or call functions are emitted at each use.
"""

from __future__ import annotations

from weft.codegen.ir_text.emit.state import FunctionState
from weft.support.errors import CodegenError
from weft.tir.expr import PrimExpr


def emit(state: FunctionState, expr: PrimExpr) -> str:
    """The LLVM operand with the value of ``expr``: the name of a register, or a literal.

    Recursive, so the caller raises the recursion limit for deep expressions. Expressions are
    interned, so the memo finds every repetition. ``CodegenError`` for nodes that must have been
    lowered before.
    """
    known = state.memo.known.get(expr)
    if known is not None:
        return known
    emitter = state.kernel.emitters.get(type(expr))
    if emitter is None:
        raise CodegenError(
            f"cannot generate code for {type(expr).__name__}",
            where=state.kernel.name,
            got=expr,
            help="run the tir pipeline first",
        )
    before = state.effects
    result = emitter(state, expr)
    if state.effects == before:
        state.memo.add(expr, result)
    return result
