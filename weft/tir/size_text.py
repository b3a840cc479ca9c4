"""Index expressions over symbolic sizes as texts of ``weft.runtime.sizes``."""

from __future__ import annotations

from weft.ir.symbol import name_of
from weft.runtime.sizes import Size
from weft.support.errors import LoweringError
from weft.tir.expr import Add, FloorDiv, IntImm, Max, Min, Mul, PrimExpr, Sub, Var

_OPERATORS: dict[type, str] = {Add: "+", Sub: "-", Mul: "*"}
_FUNCTIONS: dict[type, str] = {FloorDiv: "floordiv", Max: "max", Min: "min"}


def size_text(expr: PrimExpr | int) -> Size:
    """An integer, or the text of an expression; ``LoweringError`` for other operations."""
    if isinstance(expr, int):
        return expr
    if isinstance(expr, IntImm):
        return expr.value
    if isinstance(expr, Var):
        return name_of(expr.name)
    sign = _OPERATORS.get(type(expr))
    if sign is not None:
        return f"({size_text(expr.a)} {sign} {size_text(expr.b)})"  # type: ignore[attr-defined]
    function = _FUNCTIONS.get(type(expr))
    if function is not None:
        a, b = size_text(expr.a), size_text(expr.b)  # type: ignore[attr-defined]
        return f"{function}({a}, {b})"
    raise LoweringError("a size is not a sum of products of sizes", got=expr)
