"""The source of a Python function as a syntax tree, and errors with its lines."""

from __future__ import annotations

import ast
import inspect
import textwrap
import tokenize
from collections.abc import Callable, Iterator, Sequence
from types import CodeType
from typing import Any, NoReturn

from weft.ir.expr import Expr, If
from weft.ir.op import as_expr, get_op
from weft.ir.span import Span, caret_lines
from weft.support.errors import ParseError


class PythonSource:
    """The source of a function; ``tree`` is its definition, with the line numbers of the file."""

    def __init__(self, function: Callable[..., Any]) -> None:
        try:
            lines, first = inspect.getsourcelines(function)
            text = "".join(lines)
            statements = ast.parse(textwrap.dedent(text)).body
        except (OSError, TypeError, SyntaxError, tokenize.TokenError):
            # The lines of a lambda may be an incomplete statement.
            raise _unreadable(function) from None
        self.filename = inspect.getsourcefile(function) or function.__code__.co_filename
        self.indent = len(text) - len(text.lstrip())
        self._lines = text.splitlines()
        self._first = first
        if len(statements) != 1:
            raise _unreadable(function)
        definition = statements[0]
        ast.increment_lineno(definition, first - 1)
        if not isinstance(definition, ast.FunctionDef):
            self.fail(definition, "not a plain function", help="use def")
        if not _defines(definition, function):
            raise _unreadable(function)
        self.tree: ast.FunctionDef = definition

    def span(self, node: ast.AST) -> Span:
        """The source location of ``node``."""
        line, column = getattr(node, "lineno", self._first), getattr(node, "col_offset", 0)
        return Span(self.filename, line, column + self.indent + 1, text=self._line(line))

    def _line(self, number: int) -> str:
        index = number - self._first
        return self._lines[index] if 0 <= index < len(self._lines) else ""

    def fail(self, node: ast.AST, what: str, *, expected: object = None, help: str) -> NoReturn:
        """Raise ``ParseError`` at ``node``."""
        at = self.span(node)
        raise ParseError(what, where=at, expected=expected, got=type(node).__name__,
                         notes=caret_lines(at.text or "", at.column), help=help)

    def compiled(self, node: ast.expr) -> CodeType:
        """Code that evaluates ``node``; conditions in it accept expressions of the IR."""
        rewritten = ast.fix_missing_locations(ast.Expression(_Conditions().visit(node)))
        return compile(rewritten, self.filename, "eval")


def _unreadable(function: Callable[..., Any]) -> ParseError:
    return ParseError(f"the source of {function.__name__} cannot be read",
                      expected="a function defined in a file",
                      help="write the program as text and parse it")


def _defines(definition: ast.FunctionDef, function: Callable[..., Any]) -> bool:
    """Whether the source that ``inspect`` found is that of ``function``.

    Code made by ``exec`` or ``eval`` has the file name ``<string>``. Since Python 3.13 so has the
    text of ``python -c``, which ``inspect`` may return instead.
    """
    code: CodeType = function.__code__
    named = definition.args
    arguments = [a.arg for a in (*named.posonlyargs, *named.args, *named.kwonlyargs)]
    count = code.co_argcount + code.co_kwonlyargcount
    return definition.name == code.co_name and arguments == list(code.co_varnames[:count])


def stored_names(statements: Sequence[ast.stmt]) -> list[str]:
    """Names that ``statements`` assign, in order, without those of inner functions."""
    found = {
        node.id: None
        for node in _own_nodes(statements)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    return list(found)


def contains(statements: Sequence[ast.stmt], *kinds: type[ast.stmt]) -> bool:
    """Whether ``statements`` contain a statement of one of ``kinds``, at any depth."""
    return any(isinstance(node, kinds) for node in _own_nodes(statements))


def _own_nodes(statements: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    pending: list[ast.AST] = list(reversed(statements))
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.Lambda)):
            pending.extend(reversed(list(ast.iter_child_nodes(node))))


class _Conditions(ast.NodeTransformer):
    """Replaces ``if``, ``and``, ``==`` by calls of helpers, which build nodes for expressions."""

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        self.generic_visit(node)
        branches = [_lazy(node.body), _lazy(node.orelse)]
        return ast.copy_location(_helper("select", node.test, *branches), node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        name = "both" if isinstance(node.op, ast.And) else "either"
        result = node.values[-1]
        for value in reversed(node.values[:-1]):
            result = ast.copy_location(_helper(name, value, _lazy(result)), node)
        return result

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.op, ast.Not):
            return ast.copy_location(_helper("negation", node.operand), node)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        operands = [node.left, *node.comparators]
        result: ast.expr | None = None
        for left, op, right in reversed(list(zip(operands, node.ops, operands[1:], strict=False))):
            pair = ast.copy_location(_compare(left, op, right), node)
            result = pair if result is None else _helper("both", pair, _lazy(result))
            ast.copy_location(result, node)
        return result or node


def _compare(left: ast.expr, op: ast.cmpop, right: ast.expr) -> ast.expr:
    if isinstance(op, ast.Eq):
        return _helper("same", left, right)
    if isinstance(op, ast.NotEq):
        return _helper("negation", _helper("same", left, right))
    return ast.Compare(left, [op], [right])


def _lazy(node: ast.expr) -> ast.expr:
    nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.copy_location(ast.Lambda(nothing, node), node)


def _helper(name: str, *args: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(PREFIX + name, ast.Load()), list(args), [])


def _select(cond: Any, true: Callable[[], Any], false: Callable[[], Any]) -> Any:
    if not isinstance(cond, Expr):
        return true() if cond else false()
    return If(cond, as_expr(true()), as_expr(false()), span=Span.of_caller())


def _both(left: Any, right: Callable[[], Any]) -> Any:
    if not isinstance(left, Expr):
        return left and right()
    return get_op("logical_and")(left, right())


def _either(left: Any, right: Callable[[], Any]) -> Any:
    if not isinstance(left, Expr):
        return left or right()
    return get_op("logical_or")(left, right())


def _negation(value: Any) -> Any:
    return get_op("logical_not")(value) if isinstance(value, Expr) else not value


def _same(left: Any, right: Any) -> Any:
    if isinstance(left, Expr) or isinstance(right, Expr):
        return get_op("equal")(left, right)
    return left == right


PREFIX = "__weft_"
# The names that the compiled expressions use.
HELPERS: dict[str, Any] = {
    PREFIX + "select": _select,
    PREFIX + "both": _both,
    PREFIX + "either": _either,
    PREFIX + "negation": _negation,
    PREFIX + "same": _same,
}
