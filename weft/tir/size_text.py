"""Symbolic sizes in loop programs: variables named by symbols, and index expressions as texts.

The variable of a symbol has the symbol's text as its name. If the symbol stands for multiples, the
variable counts these: ``n{8..%8}`` is 3 for 24 elements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from weft.ir import int64, range_of
from weft.ir.symbol import is_symbol, name_of
from weft.runtime.sizes import Size
from weft.support.errors import LoweringError
from weft.tir import expr as x
from weft.tir.expr import PrimExpr, Var

if TYPE_CHECKING:
    from weft.tir.simplify import Analyzer


def bind_size(analyzer: Analyzer, var: Var) -> None:
    """State the range of the variable of a symbolic size: at least 0 if its symbol has none."""
    if not is_symbol(var.name) or var.dtype is not int64:
        analyzer.bind(var, 0, None)
        return
    sizes = range_of(var.name)
    low = -(-sizes.low // sizes.multiple)
    extent = None if sizes.high is None else sizes.high // sizes.multiple - low + 1
    analyzer.bind(var, low, extent)


def var_text(var: Var) -> str:
    """The value of the variable of a symbolic size over the symbols of the program."""
    multiple = range_of(var.name).multiple if is_symbol(var.name) else 1
    return name_of(var.name) if multiple == 1 else f"floordiv({name_of(var.name)}, {multiple})"


def size_text(expr: PrimExpr | int) -> Size:
    """An integer, or the text of an expression; ``LoweringError`` for other operations."""
    if isinstance(expr, int):
        return expr
    if isinstance(expr, x.IntImm):
        return expr.value
    if isinstance(expr, Var):
        return var_text(expr)
    rule = _TEXTS.get(type(expr))
    if rule is None:
        raise LoweringError("a size is not a sum of products of sizes", got=expr)
    return rule(size_text(expr.a), size_text(expr.b))  # type: ignore[attr-defined]


_TEXTS: dict[type, Callable[[Any, Any], str]] = {
    x.Add: lambda a, b: f"({a} + {b})",
    x.Sub: lambda a, b: f"({a} - {b})",
    x.Mul: lambda a, b: f"({a} * {b})",
    x.FloorDiv: lambda a, b: f"floordiv({a}, {b})",
    x.FloorMod: lambda a, b: f"({a} - floordiv({a}, {b}) * {b})",
    x.Max: lambda a, b: f"max({a}, {b})",
    x.Min: lambda a, b: f"min({a}, {b})",
}
