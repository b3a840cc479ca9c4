"""Expressions over the symbolic sizes of a program, as text: ``"2*batch*floordiv(seq + 1, 2)"``.

Manifests hold shapes, offsets and amounts of memory as such texts. The grammar is that of Python
restricted to decimal integers, names, ``+ - * //``, parentheses, and ``floordiv``, ``max`` and
``min``. Names are those of symbols, Python's keywords among them. A text is checked before it
becomes code, and the code has no builtins.
"""

from __future__ import annotations

import ast
import functools
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from weft.support.dataclass import dataclass
from weft.support.errors import ArtifactError

# A size that is fixed, or the text of one that symbols determine.
Size: TypeAlias = "int | str"

# Machine code computes sizes as int64.
MAX_SIZE = (1 << 63) - 1

# Function -> the least and the largest number of its arguments.
_FUNCTIONS = {"floordiv": (2, 2), "max": (2, None), "min": (2, None)}
_NODES = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.USub, ast.Add, ast.Sub, ast.Mult,
          ast.FloorDiv, ast.Name, ast.Load, ast.Constant, ast.Call)
_TOKEN = re.compile(r"(?P<call>floordiv|max|min)(?= *\()|(?P<name>[^\W\d]\w*)|\d+|//|[-+*(), ]")
_ENTRY = re.compile(r"_\d+")
_MAX_LENGTH = 20_000
_MAX_DEPTH = 1_000


def evaluate(size: Size, symbols: Mapping[str, int]) -> int:
    """The value of a size; ``ArtifactError`` for another text or an unknown symbol."""
    if isinstance(size, int):
        return size
    try:
        return compiled(size)(symbols)
    except (KeyError, ZeroDivisionError) as error:
        raise ArtifactError("a size cannot be computed", got=f"{size[:80]}: {error}") from None


def names_in(size: Size) -> frozenset[str]:
    """The symbols in a size; ``ArtifactError`` for anything outside the grammar."""
    if isinstance(size, int):
        return frozenset()
    return frozenset(node.id for node in _symbol_nodes(parsed(size)))


def with_names(size: Size, names: Mapping[str, str]) -> Size:
    """A size with the texts ``names`` for symbols."""
    if isinstance(size, int) or not names:
        return size
    found = _TOKEN.finditer(size)
    return "".join(f"({names[token[0]]})" if token["name"] in names else token[0]
                   for token in found)


def is_entry_name(name: str) -> bool:
    """Whether a name is that of an entry in a table of sizes: ``_0``, ``_1``, and so on."""
    return _ENTRY.fullmatch(name) is not None


def table_function(sizes: Sequence[Size], names: Sequence[str]
                   ) -> Callable[[Mapping[str, int]], tuple[int, ...]]:
    """A function of the symbols that computes a table of sizes.

    An entry may refer to earlier ones as ``_0``, ``_1``, and so on. One function for all entries
    takes a microsecond for some dozens of them. It raises ``OverflowError`` for an entry beyond
    ``MAX_SIZE``, and ``ZeroDivisionError``. Raises ``ArtifactError`` for unknown symbols.
    """
    body = [_lookup(name) for name in names]
    known = set(names)
    for number, size in enumerate(sizes):
        if unknown := names_in(size) - known:
            raise ArtifactError("a size over unknown symbols", got=", ".join(sorted(unknown)),
                                expected=f"one of {', '.join(names)}")
        known.add(f"_{number}")
        entry = _local(f"_{number}")
        body.append(ast.Assign([ast.Name(entry, ast.Store())], _over_locals(parsed(str(size)))))
        if not isinstance(size, int):
            body.append(_limit(entry))
    entries: list[ast.expr] = [ast.Name(_local(f"_{n}"), ast.Load()) for n in range(len(sizes))]
    return _function([*body, ast.Return(ast.Tuple(entries, ast.Load()))])


@functools.lru_cache(maxsize=4096)
def compiled(text: str) -> Callable[[Mapping[str, int]], int]:
    """The text as a function of the symbols."""
    names = sorted(names_in(text))
    return _function([*map(_lookup, names), ast.Return(_over_locals(parsed(text)))])


def parsed(text: str) -> ast.Expression:
    """The checked syntax tree of a size; ``ArtifactError`` for anything outside the grammar."""
    try:
        source, names = _with_numbered_names(text)
        tree = ast.parse(source, mode="eval")
        _check(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ArtifactError("not a size", got=f"{text[:80]!r}: {error}",
                            expected="sums and products of integers and symbols") from None
    for node in _symbol_nodes(tree):
        node.id = names[int(node.id[1:])]
    return tree


def _with_numbered_names(text: str) -> tuple[str, list[str]]:
    """The text with ``v0``, ``v1``, ... for the symbols, and their names.

    Python's own rules for names (keywords, Unicode normalisation) do not apply to symbols.
    """
    if len(text) > _MAX_LENGTH:
        raise ValueError(f"{len(text)} characters")
    parts: list[str] = []
    names: list[str] = []
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise ValueError(f"unexpected {text[at]!r}")
        at = found.end()
        if found["name"] is None:
            parts.append(found[0])
        else:
            parts.append(f"v{len(names)}")
            names.append(found[0])
    return "".join(parts).strip(), names


def _check(tree: ast.Expression) -> None:
    """Raise ``ValueError`` for a tree outside the grammar, and for a deep one."""
    level: list[ast.AST] = [tree]
    depth = 0
    while level:
        depth += 1
        if depth > _MAX_DEPTH:
            raise ValueError(f"more than {_MAX_DEPTH} levels")
        for node in level:
            if not _is_known(node):
                raise ValueError(type(node).__name__)
        level = [child for node in level for child in ast.iter_child_nodes(node)]


def _is_known(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return type(node.value) is int
    if isinstance(node, ast.Call):
        if not isinstance(node.func, ast.Name) or node.func.id not in _FUNCTIONS or node.keywords:
            return False
        least, most = _FUNCTIONS[node.func.id]
        return least <= len(node.args) and (most is None or len(node.args) <= most)
    return isinstance(node, _NODES)


def _symbol_nodes(tree: ast.AST) -> Iterator[ast.Name]:
    """The names of a tree, apart from those of functions."""
    nodes = list(ast.walk(tree))
    functions = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    return (node for node in nodes if isinstance(node, ast.Name) and id(node) not in functions)


def _over_locals(tree: ast.Expression) -> ast.expr:
    for node in _symbol_nodes(tree):
        node.id = _local(node.id)
    return tree.body


def _local(name: str) -> str:
    """The variable for a symbol, which no function is called."""
    return f"s_{name}"


def _lookup(name: str) -> ast.stmt:
    """``s_n = _sizes["n"]``."""
    value = ast.Subscript(ast.Name("_sizes", ast.Load()), ast.Constant(name), ast.Load())
    return ast.Assign([ast.Name(_local(name), ast.Store())], value)


def _limit(entry: str) -> ast.stmt:
    """``if entry > MAX_SIZE: overflow()``; repeated squares would take all memory."""
    test = ast.Compare(ast.Name(entry, ast.Load()), [ast.Gt()], [ast.Constant(MAX_SIZE)])
    return ast.If(test, [ast.Expr(ast.Call(ast.Name("overflow", ast.Load()), [], []))], [])


def _overflow() -> None:
    raise OverflowError("a size beyond int64")


def _function(body: list[ast.stmt]) -> Callable[[Mapping[str, int]], Any]:
    """A function of ``_sizes`` with these statements, which call the functions of sizes alone."""
    module = ast.parse("def sizes(_sizes): pass")
    module.body[0].body = body  # type: ignore[attr-defined]
    scope: dict[str, Any] = {"__builtins__": {}, "max": max, "min": min,
                             "floordiv": operator.floordiv, "overflow": _overflow}
    try:
        code = compile(ast.fix_missing_locations(module), "<sizes>", "exec")
    except RecursionError as error:
        raise ArtifactError("not a size", got=str(error)) from None
    exec(code, scope)  # noqa: S102 - ``parsed`` has checked all nodes
    return scope["sizes"]


@dataclass(frozen=True, slots=True)
class SymbolSpec:
    """A symbolic size of a program, its range, and the input axis that determines it.

    The axis has ``scale * symbol + offset`` elements. The symbol is a multiple of ``multiple``.
    """

    name: str
    input: int
    axis: int
    low: int = 0
    high: int | None = None
    multiple: int = 1
    scale: int = 1
    offset: int = 0
