"""Building programs in Python: Python's operators on expressions, and scopes of lets.

``x + 1`` builds ``add(x, 1)``, ``x @ y`` builds ``nn.matmul(x, y)``. Operators are looked up by
name when they are used, because this layer is below the catalogue of operators.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FunctionType
from typing import Any

from weft.ir.expr import OPERATORS, Call, Expr, Function, If, Let, Tuple, TupleGetItem, Var
from weft.ir.op import as_expr, get_op
from weft.ir.span import Span
from weft.ir.types import TupleType
from weft.ir.typing.infer import infer_expr
from weft.support.errors import WeftError, WellFormedError

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
    """Make ``apply_operator`` the implementation of Python's operators on ``Expr``."""
    OPERATORS.apply = apply_operator


def apply_operator(name: str, *operands: Any) -> Any:
    """The expression of the Python operator ``name`` (``add``, ``neg``, ``getitem``) on operands.

    Raises ``RegistryError`` if the catalogue of operators is not imported.
    """
    if name == "getitem":
        value, index = operands
        return TupleGetItem(value, index.__index__(), span=Span.of_caller())
    if name == "iter":
        return iter(_fields(operands[0]))
    if name == "call":
        callee, *args = operands
        return Call(callee, tuple(map(_argument, args)), span=Span.of_caller())
    return get_op(_BINARY.get(name) or _UNARY[name])(*operands)


def _fields(expr: Expr) -> list[Expr]:
    """The fields of a tuple, or projections of an expression with a tuple type."""
    if isinstance(expr, Tuple):
        return list(expr.fields)
    type_ = expr.checked_type or (expr.annotation if isinstance(expr, Var) else None)
    if type_ is None:
        with contextlib.suppress(WeftError):  # type inference of the program reports it
            type_ = infer_expr(expr).checked_type
    if not isinstance(type_, TupleType):
        raise TypeError(f"a {type(expr).__name__} expression cannot be iterated over"
                        + (f": its type is {type_}" if type_ is not None else ""))
    here = Span.of_caller()
    return [TupleGetItem(expr, number, span=here) for number in range(len(type_.fields))]


def _argument(value: Any) -> Expr:
    """A lambda becomes a function: it is called with variables."""
    if not isinstance(value, FunctionType):
        return as_expr(value)
    here = Span.of_caller()
    params = tuple(Var(name, span=here) for name in inspect.signature(value).parameters)
    return Function(params, as_expr(value(*params)), span=here)


class ScopeBuilder:
    """Collects lets and closes them over a result::

    scope = ScopeBuilder()
    h = scope.let("h", relu(x))
    with scope.if_scope(cond):
        scope.ret(h + y)
    with scope.else_scope():
        scope.ret(h)
    body = scope.get()
    """

    def __init__(self) -> None:
        self._blocks: list[_Block] = [_Block()]

    def let(self, name: str | Var, value: Any) -> Var:
        """Bind ``value`` to a new variable, and return the variable."""
        variable = name if isinstance(name, Var) else Var(name, span=Span.of_caller())
        self._blocks[-1].lets.append((variable, as_expr(value), Span.of_caller()))
        return variable

    def ret(self, value: Any) -> None:
        """Set the result of the innermost block."""
        block = self._blocks[-1]
        if block.result is not None or block.cond is not None:
            raise WellFormedError("ret was called twice in a block", where=Span.of_caller(),
                                  help="call ret once per branch")
        block.result = as_expr(value)

    @contextmanager
    def if_scope(self, cond: Any) -> Iterator[None]:
        """The branch for a true ``cond``; ends the enclosing block."""
        outer = self._blocks[-1]
        outer.cond, outer.cond_span = as_expr(cond), Span.of_caller()
        self._blocks.append(_Block())
        yield
        outer.true_branch = self._blocks.pop().close()

    @contextmanager
    def else_scope(self) -> Iterator[None]:
        """The other branch of the ``if_scope`` before it."""
        outer = self._blocks[-1]
        if outer.true_branch is None or outer.result is not None:
            raise WellFormedError("else_scope without an if_scope", where=Span.of_caller())
        self._blocks.append(_Block())
        yield
        false_branch = self._blocks.pop().close()
        cond, true_branch = outer.cond, outer.true_branch
        outer.cond = None
        outer.result = If(cond, true_branch, false_branch, span=outer.cond_span)  # type: ignore[arg-type]

    def get(self, result: Any = None) -> Expr:
        """The block: all lets around ``result``, or around the value given to ``ret``."""
        block = self._blocks[-1]
        if result is None:
            return block.close()
        return block.around(as_expr(result))


class _Block:
    """The lets of one block, and its result."""

    def __init__(self) -> None:
        self.lets: list[tuple[Var, Expr, Span | None]] = []
        self.result: Expr | None = None
        self.cond: Expr | None = None
        self.cond_span: Span | None = None
        self.true_branch: Expr | None = None

    def close(self) -> Expr:
        if self.result is None:
            raise WellFormedError(
                "a block without a result",
                expected="ret(value), or an if_scope and an else_scope that return",
                where=Span.of_caller(),
            )
        return self.around(self.result)

    def around(self, body: Expr) -> Expr:
        for variable, value, span in reversed(self.lets):
            body = Let(variable, value, body, span=span)
        return body


def while_loop(cond: Callable[..., Any], body: Callable[..., Sequence[Any]], *init: Any,
               names: Sequence[str] | None = None) -> Expr:
    """The tuple of loop variables after the last iteration of ``while cond(*variables)``.

    ``body(*variables)`` gives their next values, ``init`` their initial ones. The loop is a
    recursive function bound by a let, called in tail position::

        last = while_loop(lambda i, s: i < n, lambda i, s: (i + 1, s + x), const(0), x)
    """
    here = Span.of_caller()
    labels = names or [v.name if isinstance(v, Var) else f"v{i}" for i, v in enumerate(init)]
    variables = tuple(Var(label, span=here) for label in labels)
    loop = Var("loop", span=here)
    step = Call(loop, tuple(map(as_expr, body(*variables))), span=here)
    choice = If(as_expr(cond(*variables)), step, Tuple(variables, span=here), span=here)
    first = Call(loop, tuple(map(as_expr, init)), span=here)
    return Let(loop, Function(variables, choice, span=here), first, span=here)
