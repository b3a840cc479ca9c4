"""The loop-level IR (tir): interned expressions, statements over buffers, and functions.

The names below are those that other packages import often: ``from weft.tir import Buffer, const``,
or ``from weft import tir`` and ``tir.const`` for many of them.
"""

from weft.tir import printer as _printer
from weft.tir.buffer import Buffer, buffer
from weft.tir.expr import (
    FALSE,
    GE,
    LT,
    TRUE,
    Add,
    Broadcast,
    BufferLoad,
    Call,
    Cast,
    CommReducer,
    ExprLike,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    PrimExpr,
    ProducerLoad,
    Ramp,
    Reduce,
    Select,
    Shuffle,
    StringImm,
    Sub,
    Var,
    all_of,
    any_of,
    as_prim,
    call,
    cast,
    const,
    floordiv,
    floormod,
    if_then_else,
    install_printer,
    int_value,
    maximum,
    minimum,
    not_,
    select,
)
from weft.tir.func import PrimFunc
from weft.tir.instruction import Instruction
from weft.tir.simplify import Analyzer
from weft.tir.stmt import (
    Allocate,
    AttrStmt,
    BufferStore,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    install_stmt_printer,
    seq,
)
from weft.tir.visitor import all_exprs, mentions, post_order, substitute, vars_of

install_printer(_printer.as_text)
install_stmt_printer(_printer.as_text)

__all__ = ["FALSE", "GE", "LT", "TRUE", "Add", "Allocate", "Analyzer", "AttrStmt", "Broadcast",
           "Buffer", "BufferLoad", "BufferStore", "Call", "Cast", "CommReducer", "Evaluate",
           "ExprLike", "FloatImm", "FloorDiv", "FloorMod", "For", "ForKind", "IfThenElse",
           "Instruction", "IntImm", "LetStmt", "Max", "Min", "Mul", "PrimExpr", "PrimFunc",
           "ProducerLoad", "Ramp", "Reduce", "Select", "SeqStmt", "Shuffle", "Stmt", "StringImm",
           "Sub", "Var", "all_exprs", "all_of", "any_of", "as_prim", "buffer", "call", "cast",
           "const", "floordiv", "floormod", "if_then_else", "int_value", "maximum", "mentions",
           "minimum", "not_", "post_order", "select", "seq", "substitute", "vars_of"]
