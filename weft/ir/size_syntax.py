"""The sizes that users write for inputs: ``"batch"``, ``"1 <= seq <= 2048"``, ``"past + seq"``.

A bound is a Python comparison of a name with numbers, ``%`` demands a multiple, and ``and`` joins
both: ``"seq <= 2048 and seq % 8 == 0"``. The text of a symbol with its range, ``"seq{1..16}"``, is
read as well.
"""

from __future__ import annotations

import ast
import keyword
import math
import operator
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from weft.ir import size_range
from weft.support.errors import TypeInferenceError

T = TypeVar("T")
_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}
# The distance of a strict bound from the inclusive bound with the same meaning.
_FROM_BELOW: Mapping[type[ast.cmpop], int] = {ast.LtE: 0, ast.Lt: 1}
_FROM_ABOVE: Mapping[type[ast.cmpop], int] = {ast.GtE: 0, ast.Gt: 1}


def parse_size(text: str, symbol: Callable[[str], T]) -> T:
    """The size that a text means; ``symbol`` makes a dimension of a symbol's text.

    Raises ``TypeInferenceError`` for a text that is not a size, and for bounds that no size meets.
    """
    # Python normalises the names in the expressions below to NFKC.
    text = unicodedata.normalize("NFKC", text)
    if size_range.is_symbol(text):
        if not is_size_name(size_range.name_of(text)):
            raise _refused(text)
        return symbol(text)
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        raise _refused(text) from None
    if isinstance(tree, (ast.Compare, ast.BoolOp)):
        return symbol(_bounded(tree, text))
    size: T | int = _evaluated(tree, symbol, text)
    if isinstance(size, int):
        raise _refused(text)
    return size


def is_size_name(name: str) -> bool:
    """Whether a name may be a symbol in texts of users: no keyword, dtype or value.

    Its characters are letters, digits and ``_``, in the form that Python gives to names (NFKC).
    """
    return (name.isidentifier() and size_range.is_symbol(name) and not keyword.iskeyword(name)
            and not size_range.is_reserved(name) and unicodedata.is_normalized("NFKC", name))


def _refused(text: str) -> TypeInferenceError:
    return TypeInferenceError(
        f"not a dimension: {text!r}",
        expected='a size >= 0, a symbol such as "batch", bounds such as "1 <= batch <= 64", an '
                 'expression such as "past + seq", or None for any size',
    )


def _evaluated(tree: ast.expr, symbol: Callable[[str], Any], text: str) -> Any:
    match tree:
        case ast.Name(id=name) if is_size_name(name):
            return symbol(name)
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            return number
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            a, b = _evaluated(left, symbol, text), _evaluated(right, symbol, text)
            if isinstance(op, ast.FloorDiv) and not (isinstance(b, int) and b > 0):
                raise _refused(text)
            return _ARITHMETIC[type(op)](a, b)
    raise _refused(text)


def _bounded(tree: ast.expr, text: str) -> str:
    """The text of the symbol that a comparison, or comparisons joined by ``and``, bound."""
    parts = tree.values if isinstance(tree, ast.BoolOp) else [tree]
    if isinstance(tree, ast.BoolOp) and not isinstance(tree.op, ast.And):
        raise _refused(text)
    names: set[str] = set()
    sizes = size_range.ANY_SIZE
    for part in parts:
        if not isinstance(part, ast.Compare):
            raise _refused(text)
        operands = [part.left, *part.comparators]
        for left, op, right in zip(operands, part.ops, operands[1:], strict=False):
            name, found = _compared(left, op, right, text)
            names.add(name)
            sizes = common_range(name, sizes, found)
    if len(names) != 1 or not all(map(is_size_name, names)):
        raise _refused(text)
    found = size_range.symbol_text(names.pop(), sizes)
    size_range.range_of(found)  # raises for an empty range, and for sizes beyond int64
    return found


def _compared(left: ast.expr, op: ast.cmpop, right: ast.expr,
              text: str) -> tuple[str, size_range.SizeRange]:
    match left, right:
        case ast.Name(id=name), ast.Constant(value=int(bound)) if type(op) in _FROM_BELOW:
            return name, size_range.SizeRange(0, bound - _FROM_BELOW[type(op)])
        case ast.Name(id=name), ast.Constant(value=int(bound)) if type(op) in _FROM_ABOVE:
            return name, size_range.SizeRange(max(bound + _FROM_ABOVE[type(op)], 0))
        case ast.Constant(value=int(bound)), ast.Name(id=name) if type(op) in _FROM_BELOW:
            return name, size_range.SizeRange(max(bound + _FROM_BELOW[type(op)], 0))
        case ast.Constant(value=int(bound)), ast.Name(id=name) if type(op) in _FROM_ABOVE:
            return name, size_range.SizeRange(0, bound - _FROM_ABOVE[type(op)])
        case (ast.BinOp(left=ast.Name(id=name), op=ast.Mod(), right=ast.Constant(value=int(n))),
              ast.Constant(value=0)) if isinstance(op, ast.Eq) and n > 0:
            return name, size_range.SizeRange(0, None, n)
    raise _refused(text)


def common_range(name: str, a: size_range.SizeRange,
                 b: size_range.SizeRange) -> size_range.SizeRange:
    """The sizes in both ranges; ``TypeInferenceError`` if there are none."""
    low, multiple = max(a.low, b.low), math.lcm(a.multiple, b.multiple)
    highs = [r.high for r in (a, b) if r.high is not None]
    high = min(highs, default=None)
    if high is not None and (high < 0 or high // multiple * multiple < low):
        raise TypeInferenceError(f"the bounds of {name} contradict each other",
                                 expected="bounds that some size meets", got=f"{a} and {b}")
    return size_range.SizeRange(low, high, multiple)
