"""The loop-level IR (tir): interned expressions, statements over buffers, and functions.

The names below are those that other packages import often: ``from weft.tir import Buffer, const``,
or ``from weft import tir`` and ``tir.const`` for many of them.
"""

from weft.support.lazy_package import load_names_lazily

NAMES = {  # module -> the public names it defines
    "weft.tir.buffer": "Buffer buffer",
    "weft.tir.expr": (
        "FALSE GE LT TRUE Add Broadcast BufferLoad Call Cast CommReducer ExprLike FloatImm "
        "FloorDiv FloorMod IntImm Max Min Mul PrimExpr ProducerLoad Ramp Reduce Select Shuffle "
        "StringImm Sub Var all_of any_of as_prim call cast const floordiv floormod if_then_else "
        "int_value maximum minimum not_ select"
    ),
    "weft.tir.func": "PrimFunc",
    "weft.tir.instruction": "Instruction",
    "weft.tir.simplify": "Analyzer",
    "weft.tir.stmt": (
        "Allocate AttrStmt BufferStore Evaluate For ForKind IfThenElse LetStmt SeqStmt Stmt seq"
    ),
    "weft.tir.visitor": "all_exprs mentions post_order substitute vars_of",
}
load_names_lazily(__name__, NAMES)
