"""Expressions over the symbolic sizes of a program, as text: ``"2*batch*floordiv(seq + 1, 2)"``.

Manifests hold shapes, offsets and amounts of memory as such texts. The grammar is that of Python
restricted to integers, names, ``+ - * //``, parentheses, and ``floordiv``, ``max`` and ``min``.
"""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from weft.support.errors import ArtifactError

# A size that is fixed, or the text of one that symbols determine.
Size: TypeAlias = "int | str"

_FUNCTIONS = ("floordiv", "max", "min")
_NODES = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.USub, ast.Add, ast.Sub, ast.Mult,
          ast.FloorDiv, ast.Name, ast.Load, ast.Constant, ast.Call)
_MAX_LENGTH = 20_000


def evaluate(size: Size, symbols: Mapping[str, int]) -> int:
    """The value of a size; ``ArtifactError`` for another text or an unknown symbol."""
    if isinstance(size, int):
        return size
    try:
        return compiled(size)(symbols)
    except (KeyError, ZeroDivisionError) as error:
        raise ArtifactError("a size cannot be computed", got=f"{size}: {error}") from None


def names_in(size: Size) -> frozenset[str]:
    """The symbols in a size."""
    if isinstance(size, int):
        return frozenset()
    return frozenset(node.id for node in ast.walk(parsed(size))
                     if isinstance(node, ast.Name)) - set(_FUNCTIONS)


def table_function(sizes: Sequence[Size], names: Sequence[str]
                   ) -> Callable[[Mapping[str, int]], tuple[int, ...]]:
    """A function of the symbols that computes a table of sizes.

    An entry may refer to earlier ones as ``_0``, ``_1``, and so on. One function for all entries
    takes a microsecond for some dozens of them.
    """
    body: list[ast.stmt] = [ast.Assign([ast.Name(_local(name), ast.Store())],
                                       _Lookup().visit(ast.Name(name, ast.Load())))
                            for name in names]
    for number, size in enumerate(sizes):
        tree = parsed(str(size))
        value = _Local().visit(tree.body)
        body.append(ast.Assign([ast.Name(_local(f"_{number}"), ast.Store())], value))
    entries: list[ast.expr] = [ast.Name(_local(f"_{n}"), ast.Load()) for n in range(len(sizes))]
    body.append(ast.Return(ast.Tuple(entries, ast.Load())))
    module = ast.parse("def sizes(_sizes): pass")
    function = module.body[0]
    function.body = body  # type: ignore[attr-defined]
    scope = _scope()
    exec(compile(ast.fix_missing_locations(module), "<sizes>", "exec"), scope)  # noqa: S102
    return scope["sizes"]


@functools.lru_cache(maxsize=4096)
def compiled(text: str) -> Callable[[Mapping[str, int]], int]:
    """The text as a function of the symbols."""
    tree = _Lookup().visit(parsed(text))
    lambda_ = ast.parse("lambda _sizes: 0", mode="eval")
    lambda_.body.body = tree.body  # type: ignore[attr-defined]
    code = compile(ast.fix_missing_locations(lambda_), "<size>", "eval")
    return eval(code, _scope())  # noqa: S307 - the tree consists of the nodes checked above


def _scope() -> dict[str, Any]:
    return {"__builtins__": {}, "max": max, "min": min, "floordiv": operator.floordiv}


def parsed(text: str) -> ast.Expression:
    """The checked syntax tree of a size; ``ArtifactError`` for anything outside the grammar."""
    try:
        if len(text) > _MAX_LENGTH:
            raise ValueError(f"{len(text)} characters")
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ArtifactError("not a size", got=f"{text[:80]!r}: {error}") from None
    for node in ast.walk(tree):
        good = isinstance(node, _NODES)
        if isinstance(node, ast.Constant):
            good = type(node.value) is int
        elif isinstance(node, ast.Call):
            good = isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS \
                and not node.keywords
        if not good:
            raise ArtifactError("not a size", got=repr(text[:80]),
                                expected="sums and products of integers and symbols")
    return tree


def _local(name: str) -> str:
    """The variable for a symbol, which no function is called."""
    return f"s_{name}"


class _Local(ast.NodeTransformer):
    """Replaces each name by a variable of the function."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        return ast.Call(node.func, [self.visit(a) for a in node.args], [])

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(_local(node.id), ast.Load())


class _Lookup(ast.NodeTransformer):
    """Replaces each name by a lookup in ``_sizes``."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        return ast.Call(node.func, [self.visit(a) for a in node.args], [])

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Subscript(ast.Name("_sizes", ast.Load()), ast.Constant(node.id), ast.Load())
