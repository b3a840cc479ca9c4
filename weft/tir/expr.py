"""The expressions of loop programs and their folding constructors.

The arithmetic core is in ``weft.tir.node``; this module re-exports it, and adds conditions,
vectors, loads, calls and reductions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

from weft.ir.dtype import DType, bool_, float32, int64
from weft.support.dataclass import dataclass
from weft.tir.node import (
    EQ,
    FALSE,
    GE,
    GT,
    LE,
    LT,
    NE,
    TRUE,
    Add,
    Binary,
    Broadcast,
    Cast,
    Compare,
    Div,
    ExprLike,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    PrimExpr,
    Sub,
    Var,
    add,
    as_prim,
    cast,
    compare,
    const,
    div,
    expr_node,
    floordiv,
    floormod,
    int_value,
    int_values,
    match_operands,
    mul,
    sub,
    wrap,
)

__all__ = ["EQ", "FALSE", "GE", "GT", "LE", "LT", "NE", "TRUE", "Add", "And", "Binary", "Broadcast",
           "BufferLoad", "Call", "Cast", "CommReducer", "Compare", "Div", "ExprLike", "FloatImm",
           "FloorDiv", "FloorMod", "IntImm", "Let", "Max", "Min", "Mul", "Not", "Or", "PrimExpr",
           "ProducerLoad", "Ramp", "Reduce", "Select", "Shuffle", "StringImm", "Sub", "Var",
           "access_lanes", "add", "all_of", "any_of", "as_prim", "bool_", "call", "cast", "compare",
           "const", "div", "float32", "floordiv", "floormod", "if_then_else",
           "int64", "int_value", "maximum", "minimum", "mul", "not_", "select", "sub", "sum_of",
           "truth_of", "wrap"]


@expr_node
class StringImm(PrimExpr):
    """A text, an argument of intrinsics."""

    value: str

    dtype: DType = field(init=False)

    def __post_init__(self) -> None:
        self.dtype = DType("handle", 64)


@expr_node
class And(Binary):
    pass


@expr_node
class Or(Binary):
    pass


@expr_node
class Not(PrimExpr):
    a: PrimExpr

    dtype: DType = field(init=False)

    def __post_init__(self) -> None:
        self.dtype = self.a.dtype


@expr_node
class Select(PrimExpr):
    """Select by condition. Both values are evaluated; use ``if_then_else`` to guard loads."""

    condition: PrimExpr
    true_value: PrimExpr
    false_value: PrimExpr

    dtype: DType = field(init=False)

    def __post_init__(self) -> None:
        self.dtype = self.true_value.dtype


@expr_node
class Ramp(PrimExpr):
    """The vector ``base, base + stride, ...`` of ``lanes`` elements."""

    base: PrimExpr
    stride: PrimExpr
    lanes: int

    dtype: DType = field(init=False)

    def __post_init__(self) -> None:
        self.dtype = self.base.dtype.vector(self.lanes)


@expr_node
class Shuffle(PrimExpr):
    """The lanes ``indices`` of the concatenated ``vectors``."""

    vectors: tuple[PrimExpr, ...]
    indices: tuple[int, ...]

    dtype: DType = field(init=False)

    def __post_init__(self) -> None:
        self.dtype = self.vectors[0].dtype.element.vector(len(self.indices))


@expr_node
class Let(PrimExpr):
    var: Var
    value: PrimExpr
    body: PrimExpr

    dtype: DType = field(init=False)

    def __post_init__(self) -> None:
        self.dtype = self.body.dtype


def access_lanes(indices: Sequence[PrimExpr]) -> int:
    """The number of elements that an access with ``indices`` moves: 1, or the lanes of a vector."""
    return max((i.dtype.lanes for i in indices), default=1)


@expr_node
class BufferLoad(PrimExpr):
    """An element of ``buffer``, or a vector of elements if an index is a vector.

    Lanes where ``predicate`` (bool, as many lanes) is false are not read, and are zero.
    """

    buffer: Any  # weft.tir.buffer.Buffer
    indices: tuple[PrimExpr, ...]
    predicate: PrimExpr | None = None
    dtype: DType = field(init=False)

    @staticmethod
    def intern_key(
        kind: type, buffer: Any, indices: tuple[PrimExpr, ...], predicate: PrimExpr | None = None
    ) -> tuple[Any, ...]:
        return (kind, buffer, indices, predicate)

    def __post_init__(self) -> None:
        self.dtype = self.buffer.dtype.vector(access_lanes(self.indices))


@expr_node
class Call(PrimExpr):
    """A call of the intrinsic ``name`` (see ``weft.tir.intrinsics``): ``exp``, ``fma``, ...

    ``if_then_else(condition, a, b)`` evaluates only one of ``a`` and ``b``. The first operand of
    ``call_extern`` is the symbol, a ``StringImm``.
    """

    dtype: DType
    name: str
    args: tuple[PrimExpr, ...]


@expr_node
class ProducerLoad(PrimExpr):
    """An element of a tensor expression (``weft.te.Tensor``); lowering makes it a load."""

    producer: Any
    indices: tuple[PrimExpr, ...]

    dtype: DType = field(init=False)

    def __post_init__(self) -> None:
        self.dtype = self.producer.dtype


@dataclass(frozen=True, slots=True, eq=False)
class CommReducer:
    """The combiner of a commutative reduction over tuples.

    ``result`` combines ``lhs`` and ``rhs``; ``identity`` is the initial value.
    """

    lhs: tuple[Var, ...]
    rhs: tuple[Var, ...]
    result: tuple[PrimExpr, ...]
    identity: tuple[PrimExpr, ...]


@expr_node
class Reduce(PrimExpr):
    """Result ``index`` of the reduction of ``source`` over ``axes`` where ``condition`` holds.

    ``axes`` are ``weft.te`` iteration variables. Allowed only as the root of a compute body.
    """

    combiner: CommReducer
    source: tuple[PrimExpr, ...]
    axes: tuple[Any, ...]
    condition: PrimExpr
    index: int

    dtype: DType = field(init=False)

    def __post_init__(self) -> None:
        self.dtype = self.source[self.index].dtype


def minimum(a: ExprLike, b: ExprLike) -> PrimExpr:
    """The smaller of two values, folded where it is known; NaN if one is NaN."""
    return _extremum(Min, min, a, b)


def maximum(a: ExprLike, b: ExprLike) -> PrimExpr:
    """The larger of two values, folded where it is known; NaN if one is NaN."""
    return _extremum(Max, max, a, b)


def _extremum(node: type, fold: Any, a: ExprLike, b: ExprLike) -> PrimExpr:
    if not isinstance(a, PrimExpr):
        a = as_prim(a, b.dtype if isinstance(b, PrimExpr) else None)
    a, b = match_operands(a, as_prim(b, a.dtype))
    x, y = int_values(a, b)
    if x is not None and y is not None:
        return IntImm(fold(x, y), a.dtype)
    return a if a is b else node(a, b)


def all_of(*conditions: PrimExpr) -> PrimExpr:
    """The conjunction of all conditions; true if there are none."""
    result = TRUE
    for c in conditions:
        if c is FALSE:
            return FALSE
        if c is not TRUE and c is not result:
            result = c if result is TRUE else And(*match_operands(result, c))
    return result


def any_of(*conditions: PrimExpr) -> PrimExpr:
    """The disjunction of all conditions; false if there are none."""
    result = FALSE
    for c in conditions:
        if c is TRUE:
            return TRUE
        if c is not FALSE and c is not result:
            result = c if result is FALSE else Or(*match_operands(result, c))
    return result


def not_(a: PrimExpr) -> PrimExpr:
    """The opposite of a condition, folded where it is known."""
    if a is TRUE or a is FALSE:
        return FALSE if a is TRUE else TRUE
    return a.a if type(a) is Not else Not(a)


def truth_of(condition: PrimExpr) -> bool | None:
    """The value of a constant condition that is the same in all lanes; else ``None``."""
    if type(condition) is Broadcast:
        condition = condition.value
    return bool(condition.value) if type(condition) is IntImm else None


def select(condition: PrimExpr, true_value: ExprLike, false_value: ExprLike) -> PrimExpr:
    """``true_value`` or ``false_value`` by ``condition``, per lane; both are evaluated."""
    t, f = _sides(true_value, false_value)
    known = truth_of(condition)
    if known is not None or t is f:
        return f if known is False else t
    if condition.dtype.lanes == 1 and t.dtype.lanes > 1:
        condition = Broadcast(condition, t.dtype.lanes)
    return Select(condition, t, f)


def if_then_else(condition: PrimExpr, true_value: ExprLike, false_value: ExprLike) -> PrimExpr:
    """``true_value`` or ``false_value``; the other one, including its loads, is not evaluated."""
    t, f = _sides(true_value, false_value)
    if condition is TRUE or condition is FALSE:
        return f if condition is FALSE else t
    return Call(t.dtype, "if_then_else", (condition, t, f))


def _sides(true_value: ExprLike, false_value: ExprLike) -> tuple[PrimExpr, PrimExpr]:
    if not isinstance(true_value, PrimExpr):
        true_value = as_prim(
            true_value, false_value.dtype if isinstance(false_value, PrimExpr) else None
        )
    return match_operands(true_value, as_prim(false_value, true_value.dtype))


def call(dtype: DType | str, name: str, *args: ExprLike) -> PrimExpr:
    """A call of an intrinsic with a given result dtype; Python numbers become immediates."""
    return Call(DType.of(dtype), name, tuple(as_prim(a) for a in args))


def sum_of(values: Sequence[PrimExpr]) -> PrimExpr:
    total: PrimExpr = const(0)
    for value in values:
        total = total + value
    return total
