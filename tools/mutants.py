"""Mutants of a Python file: small changes of its meaning, each of which some test should notice.

The changes are the usual ones of mutation testing (DeMillo, Lipton and Sayward, 1978; the set is
near that of PIT): comparisons move by one or turn round, operators of arithmetic and logic are
exchanged, conditions are negated, integers grow by one, and a statement that raises is left out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}
_ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.FloorDiv: "*", ast.Div: "*", ast.Mod: "*",
    ast.LShift: ">>", ast.RShift: "<<", ast.BitAnd: "|", ast.BitOr: "&",
}
# Functions whose result is read by people alone, or that no behaviour depends on.
_FOR_PEOPLE = frozenset({"__repr__", "__str__", "__hash__", "debug"})


@dataclass(frozen=True)
class Mutant:
    """``after`` in place of the characters from ``start`` to ``end`` of the file at ``path``."""

    path: str
    line: int
    start: int
    end: int
    before: str
    after: str

    def applied_to(self, source: str) -> str:
        return source[: self.start] + self.after + source[self.end :]

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.before}  ->  {self.after}"


def mutants_of(path: str, source: str) -> list[Mutant]:
    """All mutants of a file in the order of the text; ``parses`` says whether one is a program."""
    return sorted(_Finder(path, source).all(), key=lambda m: (m.start, m.end, m.after))


def parses(mutant: Mutant, source: str) -> bool:
    """Whether the file is still a Python program."""
    try:
        ast.parse(mutant.applied_to(source))
    except SyntaxError:
        return False
    return True


class _Finder:
    def __init__(self, path: str, source: str) -> None:
        self._path = path
        self._source = source
        self._tree = ast.parse(source)
        lines = source.splitlines(keepends=True)
        self._starts = [0]
        for line in lines:
            self._starts.append(self._starts[-1] + len(line))
        self._lines = lines

    def all(self) -> Iterator[Mutant]:
        for node in self._behaviour(self._tree):
            yield from self._of(node)

    def _behaviour(self, root: ast.AST) -> Iterator[ast.AST]:
        """The nodes below ``root`` but for annotations, docstrings and what people alone read."""
        pending = [root]
        while pending:
            node = pending.pop()
            yield node
            skipped = {id(child) for child in self._skipped(node)}
            pending += [c for c in ast.iter_child_nodes(node) if id(c) not in skipped]

    @staticmethod
    def _skipped(node: ast.AST) -> Iterator[ast.AST]:
        for name in ("annotation", "returns"):
            part = getattr(node, name, None)
            if isinstance(part, ast.AST):
                yield part
        yield from getattr(node, "decorator_list", ())  # slots=True and the like
        for child in ast.iter_child_nodes(node):
            is_text = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
            is_hint = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)
            for_people = isinstance(child, ast.FunctionDef) and child.name in _FOR_PEOPLE
            if is_text or is_hint or for_people or isinstance(child, ast.JoinedStr):
                yield child
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in _FOR_PEOPLE:
            yield from node.args
        if isinstance(node, ast.Raise):  # what it says, not whether it is raised
            yield from ast.iter_child_nodes(node)

    def _of(self, node: ast.AST) -> Iterator[Mutant]:
        match node:
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                yield from self._between(left, right, _COMPARISONS[type(op)])
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
                yield from self._between(left, right, _ARITHMETIC[type(op)])
            case ast.BoolOp(op=op, values=[first, second, *_]):
                yield from self._between(first, second, "or" if isinstance(op, ast.And) else "and")
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield self._replace(node, self._text(operand))
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
                yield self._replace(test, f"(not ({self._text(test)}))")
            case ast.Constant(value=bool() as value):
                yield self._replace(node, str(not value))
            case ast.Constant(value=int() as value):
                yield self._replace(node, str(value + 1))
            case ast.Raise():
                yield self._replace(node, "pass")
            case _:
                return

    def _between(self, left: ast.AST, right: ast.AST, after: str) -> Iterator[Mutant]:
        """The operator between two operands replaced; brackets and breaks around it stay."""
        start, end = self._offset(left, at_end=True), self._offset(right, at_end=False)
        between = self._source[start:end]
        old = between.strip(" ()\n\\")
        if not old or "#" in between or old not in between:
            return
        at = start + between.index(old)
        yield self._made(left, at, at + len(old), after)

    def _replace(self, node: ast.AST, after: str) -> Mutant:
        return self._made(node, self._offset(node, at_end=False), self._offset(node, at_end=True),
                          after)

    def _made(self, node: ast.AST, start: int, end: int, after: str) -> Mutant:
        line = getattr(node, "lineno", 0)
        return Mutant(self._path, line, start, end, self._source[start:end], after)

    def _text(self, node: ast.AST) -> str:
        start, end = self._offset(node, at_end=False), self._offset(node, at_end=True)
        return self._source[start:end]

    def _offset(self, node: ast.AST, *, at_end: bool) -> int:
        """Where a node begins or ends, in characters; the tree counts in bytes of UTF-8."""
        line = getattr(node, "end_lineno" if at_end else "lineno")
        column = getattr(node, "end_col_offset" if at_end else "col_offset")
        text = self._lines[line - 1].encode()[:column].decode()
        return self._starts[line - 1] + len(text)
