"""The loop-level IR (tir): interned expressions, statements over buffers, and functions."""

from weft.tir import printer as _printer
from weft.tir.buffer import Buffer, buffer
from weft.tir.expr import PrimExpr, Var, const, install_printer
from weft.tir.func import PrimFunc
from weft.tir.stmt import ForKind, Stmt, install_stmt_printer, seq

install_printer(_printer.as_text)
install_stmt_printer(_printer.as_text)

__all__ = ["Buffer", "ForKind", "PrimExpr", "PrimFunc", "Stmt", "Var", "buffer", "const", "seq"]
