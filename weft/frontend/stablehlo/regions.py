"""What the regions of reductions, scatters and sorts compute, where it is known by its form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from weft import op
from weft.frontend.common import arrays
from weft.frontend.common.typed import shape_in, tensor_type
from weft.frontend.stablehlo.node import Body, Node, Value, constant_in
from weft.frontend.stablehlo.syntax import Literal, Operation
from weft.frontend.stablehlo.types import array_of, dtype_of
from weft.ir.dtype import DType
from weft.ir.expr import Call, Constant, Expr
from weft.ir.op import Op
from weft.support.dataclass import dataclass

# A value of a region: ``("arg", 0)``, ``("const", 1.0)`` or an operation with its operands.
Tree: TypeAlias = "tuple[Any, ...]"

_COMMUTATIVE = ("add", "multiply", "maximum", "minimum", "and", "or", "xor")
_MOST_NODES = 200


def trees(body: Body) -> tuple[Tree, ...] | None:
    """What a region returns, in terms of its arguments; ``None`` for large or nested regions."""
    region = body.region
    known: dict[str, Tree] = {name: ("arg", n) for n, name in enumerate(region.parameters)}
    if len(region.operations) > _MOST_NODES:
        return None
    for operation in region.operations[:-1]:
        made = None if operation.regions or len(operation.results) != 1 \
            else _tree(operation, known, body)
        if made is None:
            return None
        known[operation.results[0]] = made
    returned = [_operand(name, known, body) for name in region.returned()]
    return None if None in returned else tuple(t for t in returned if t is not None)


def _operand(name: str, known: dict[str, Tree], body: Body) -> Tree | None:
    """An operand; of those from outside, constants alone."""
    if name in known:
        return known[name]
    value = constant_in(body.outer.get(name))
    return None if value is None or value.size != 1 else ("const", value.reshape(-1)[0])


def _tree(operation: Operation, known: dict[str, Tree], body: Body) -> Tree | None:
    name = operation.name.partition(".")[2]
    operands = [_operand(operand, known, body) for operand in operation.operands]
    if None in operands:
        return None
    if name == "constant":
        value = operation.attributes.get("value")
        return ("const", array_of(value).reshape(-1)[0]) if isinstance(value, Literal) else None
    if name == "compare":
        return (name, str(operation.attributes.get("comparison_direction")),
                str(operation.attributes.get("compare_type") or ""), *operands)
    if name == "convert" and operation.operand_types == operation.result_types:
        return operands[0]
    return (name, *operands)


def combination(tree: Tree, position: int, count: int) -> str | None:
    """The operation that combines argument ``position`` with the one ``count`` further on."""
    name, operands = tree[0], tree[1:3]
    wanted = ("arg", position), ("arg", position + count)
    if name in _COMMUTATIVE and operands in (wanted, wanted[::-1]):
        return str(name)
    return None


def combinations(body: Body, count: int) -> tuple[str | None, ...]:
    """What combines each of ``count`` operands, where the region treats them apart."""
    found = trees(body)
    if found is None or len(found) != count:
        return (None,) * count
    return tuple(combination(tree, n, count) for n, tree in enumerate(found))


@dataclass(frozen=True, slots=True)
class Monoid:
    """A reduction of weft, its operator on two operands, and the neutral element by dtype."""

    reduce: Op
    combine: Op
    neutral: Callable[[DType], Any]
    scatter: str


def _lowest(dtype: DType) -> Any:
    return -np.inf if dtype.is_float else int(np.iinfo(dtype.numpy).min)


def _highest(dtype: DType) -> Any:
    return np.inf if dtype.is_float else int(np.iinfo(dtype.numpy).max)


_NUMBERS = {
    "add": Monoid(op.sum, op.add, lambda _: 0, "add"),
    "multiply": Monoid(op.prod, op.multiply, lambda _: 1, "mul"),
    "maximum": Monoid(op.max, op.maximum, _lowest, "max"),
    "minimum": Monoid(op.min, op.minimum, _highest, "min"),
}
_ANY = Monoid(op.any, op.logical_or, lambda _: False, "max")
_ALL = Monoid(op.all, op.logical_and, lambda _: True, "min")
_TRUTHS = {"add": _ANY, "or": _ANY, "maximum": _ANY, "multiply": _ALL, "and": _ALL,
           "minimum": _ALL}


def monoid_of(name: str | None, dtype: DType) -> Monoid | None:
    """The reduction of a combination of elements of ``dtype``; ``None`` if weft has none."""
    return None if name is None else (_TRUTHS if dtype.is_bool else _NUMBERS).get(name)


def is_neutral(value: Expr, monoid: Monoid, dtype: DType) -> bool:
    """Whether ``value`` is a constant that the monoid ignores."""
    return isinstance(value, Constant) and value.data.size == 1 \
        and bool(value.data.reshape(()) == monoid.neutral(dtype))


def lifted(node: Node, body: Body, arguments: Sequence[Value], shape: Sequence[Any]) -> list[Expr]:
    """The region of scalars applied to whole tensors; results get ``shape``."""
    results = body.convert(*arguments, lifted=True)
    return [node.broadcast(result, shape) for result in results]


# Extremes with their positions, as JAX writes argmax and argmin.

def extreme_with_position(body: Body) -> str | None:
    """``"GT"`` for argmax, ``"LT"`` for argmin: NaN wins, then the extreme, then the first."""
    found = trees(body)
    if found is None or len(found) != 2:
        return None
    for direction in ("GT", "LT"):
        for kind in ("FLOAT", "SIGNED", "UNSIGNED"):
            for index in ("SIGNED", "UNSIGNED"):
                if found == _extreme_trees(direction, kind, index):
                    return direction
    return None


def _extreme_trees(direction: str, kind: str, index: str) -> tuple[Tree, Tree]:
    a, i, b, j = (("arg", n) for n in range(4))
    wins = ("or", ("compare", direction, kind, a, b), ("compare", "NE", kind, a, a))
    tie = ("and", ("compare", "EQ", kind, a, b), ("compare", "LT", index, i, j))
    return ("select", wins, a, b), ("select", ("or", wins, tie), i, j)


def counts_along(x: Expr, axis: int) -> bool:
    """Whether ``x`` is known to hold the positions along an axis."""
    shape = shape_in(x)
    if isinstance(x, Constant):
        line = arrays.arange(shape[axis])
        line = line.reshape([-1 if a == axis else 1 for a in range(len(shape))])
        return bool((x.data == line).all())
    while isinstance(x, Call) and isinstance(x.op, Op) and x.op.name in ("broadcast_to", "reshape"):
        inner = tensor_type(x.args[0])
        kept = [n for n in inner.shape if n != 1]
        if x.op.name == "reshape" and kept not in ([], [shape[axis]]):
            return False
        if x.op.name == "broadcast_to" and (inner.ndim != len(shape)
                                            or inner.shape[axis] != shape[axis]):
            return False
        x = x.args[0]
    attrs: Any = x.attrs if isinstance(x, Call) else None
    return isinstance(x, Call) and isinstance(x.op, Op) and x.op.name == "arange" \
        and (attrs.start, attrs.step) == (0, 1)


# Comparators of sorts.

@dataclass(frozen=True, slots=True)
class SortKey:
    """One operand that decides the order; ``is_total`` for IEEE's total order of floats."""

    operand: int
    is_ascending: bool
    is_total: bool


def sort_keys(body: Body) -> list[SortKey] | None:
    """The keys of a comparator, the most significant first; ``None`` for other regions."""
    found = trees(body)
    if found is None or len(found) != 1:
        return None
    keys: list[SortKey] = []
    tree = found[0]
    while True:
        head, rest = (tree, None) if tree[0] == "compare" else _lexicographic(tree)
        key = None if head is None else _sort_key(head)
        if key is None:
            return None
        keys.append(key)
        if rest is None:
            return keys
        tree = rest


def _lexicographic(tree: Tree) -> tuple[Tree | None, Tree | None]:
    """``a < b or (a == b and rest)``: the comparison and the rest."""
    if tree[0] != "or" or tree[2][0] != "and":
        return None, None
    first, equal, rest = tree[1], tree[2][1], tree[2][2]
    if first[0] != "compare" or equal[0] != "compare" or equal[1] != "EQ" \
            or first[3:] != equal[3:]:
        return None, None
    return first, rest


def _sort_key(tree: Tree) -> SortKey | None:
    """The key of one comparison of two elements of one operand."""
    _, direction, kind, a, b = tree
    if direction not in ("LT", "GT"):
        return None
    (left, plain), (right, also) = _canonical(a), _canonical(b)
    if left is None or right is None or plain != also or left // 2 != right // 2 or left == right:
        return None
    is_ascending = (direction == "LT") == (left < right)
    return SortKey(left // 2, is_ascending, kind == "TOTALORDER" and plain)


def _canonical(tree: Tree) -> tuple[int | None, bool]:
    """The argument behind JAX's one NaN and one zero, and whether it is bare."""
    if tree[0] == "arg":
        return tree[1], True
    if tree[0] != "select" or tree[2][0] != "const" or tree[2][1] == tree[2][1]:
        return None, False
    inner = tree[3]
    is_nan = tree[1][0] == "compare" and tree[1][1] == "NE" and tree[1][3] == tree[1][4]
    if not is_nan or inner[0] != "select" or inner[2] != ("const", 0) or inner[3] != tree[1][3]:
        return None, False
    if inner[1][0] != "compare" or inner[1][1] != "EQ" or inner[1][3] != inner[3]:
        return None, False
    return (inner[3][1], False) if inner[3][0] == "arg" else (None, False)


def element_dtype(node: Node, operand: int) -> DType:
    """The dtype of an operand as the text says it."""
    found = dtype_of(node.operand_types[operand])
    if found is None:
        raise node.unsupported("a type that weft lacks", got=str(node.operand_types[operand]))
    return found
