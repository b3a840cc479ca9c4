"""Building programs by hand: Python's operators on expressions, and scopes of lets.

``x + 1`` builds ``add(x, 1)``, ``x @ y`` builds ``nn.matmul(x, y)``. The operators are looked up
by name when they are used: the catalogue of operators stands above this layer.
"""

from __future__ import annotations

from typing import Any

from weft.ir.expr import OPERATORS, Expr, Let, TupleGetItem, Var
from weft.ir.op import as_expr, get_op
from weft.ir.span import Span

_BINARY = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "divide",
    "floordiv": "floor_divide",
    "mod": "floor_mod",
    "pow": "power",
    "matmul": "nn.matmul",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
    "and": "logical_and",
    "or": "logical_or",
}
_UNARY = {"neg": "negative", "invert": "logical_not", "abs": "abs"}


def install_operators() -> None:
    """Hand the meaning of Python's operators to ``Expr``."""
    OPERATORS.apply = apply_operator


def apply_operator(name: str, *operands: Any) -> Expr:
    """``operands`` combined by the Python operator ``name`` (``add``, ``neg``, ``getitem``).

    Raises ``RegistryError`` where the catalogue of operators is not imported.
    """
    if name == "getitem":
        value, index = operands
        return TupleGetItem(value, index.__index__(), span=Span.of_caller())
    return get_op(_BINARY.get(name) or _UNARY[name])(*operands)


class ScopeBuilder:
    """Collects lets and closes them over a result::

    scope = ScopeBuilder()
    h = scope.let("h", relu(x))
    body = scope.get(h + y)
    """

    def __init__(self) -> None:
        self._bindings: list[tuple[Var, Expr, Span | None]] = []

    def let(self, name: str | Var, value: Any) -> Var:
        """Bind ``value`` and return the variable that stands for it from here on."""
        variable = name if isinstance(name, Var) else Var(name, span=Span.of_caller())
        self._bindings.append((variable, as_expr(value), Span.of_caller()))
        return variable

    def get(self, result: Any) -> Expr:
        """``result`` under all the lets; the builder can go on being used."""
        body = as_expr(result)
        for variable, value, span in reversed(self._bindings):
            body = Let(variable, value, body, span=span)
        return body
