"""The dispatcher of expressions: one emitter per node type, results remembered per scope.

Pure expressions are remembered in the scope that dominates them, so that index arithmetic shared
by the copies of an unrolled loop is written once. What reads changing memory is evaluated each
time.
"""

from __future__ import annotations

from weft.codegen.llvm.emit.state import FunctionState
from weft.support.errors import CodegenError
from weft.tir.expr import PrimExpr


def emit(state: FunctionState, expr: PrimExpr) -> str:
    """The operand that holds the value of ``expr``: a register's name or a literal.

    Recursive: an expression of one kernel is as deep as its formula. Expressions are interned,
    so the memo finds every repetition.
    """
    known = state.memo.known.get(expr)
    if known is not None:
        return known
    emitter = state.kernel.emitters.get(type(expr))
    if emitter is None:
        raise CodegenError(
            f"machine code has no form for {type(expr).__name__}",
            where=state.kernel.name,
            got=expr,
            help="run the tir pipeline first",
        )
    before = state.effects
    result = emitter(state, expr)
    if state.effects == before:
        state.memo.add(expr, result)
    return result
