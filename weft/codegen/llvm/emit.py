"""The dispatcher of expressions: one emitter per node type, results remembered per scope.

Emitters live in modules of their own and enter themselves here, so that they may all call
``emit`` without importing one another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from weft.codegen.llvm.state import FunctionState
from weft.support.errors import CodegenError
from weft.tir.expr import PrimExpr

Emitter = Callable[[FunctionState, PrimExpr], str]
E = TypeVar("E", bound=Callable[..., str])

_EMITTERS: dict[type, Emitter] = {}


def emits(*nodes: type) -> Callable[[E], E]:
    """Register the emitter of some node types."""

    def register(function: E) -> E:
        for node in nodes:
            _EMITTERS[node] = function
        return function

    return register


def emit(state: FunctionState, expr: PrimExpr) -> str:
    """The operand that holds the value of ``expr``: a register's name or a literal.

    Recursive: an expression of one kernel is as deep as its formula. Expressions are interned,
    so the memo finds every repetition; what reads changing memory is not remembered.
    """
    known = state.memo.known.get(expr)
    if known is not None:
        return known
    emitter = _EMITTERS.get(type(expr))
    if emitter is None:
        raise CodegenError(f"machine code has no form for {type(expr).__name__}", got=expr)
    before = state.effects
    result = emitter(state, expr)
    if state.effects == before:
        state.memo.add(expr, result)
    return result
