"""The arithmetic core of expressions: interned nodes, operators, constant folding.

Building the same expression twice gives the same object, so ``a is b`` is structural equality, and
memo tables are cheap. Variables are the exception: each ``Var(...)`` is distinct. Loop variables
and indices are int64. ``a + b`` folds constants and neutral elements; ``weft.tir.simplify`` does
the rest. Integers wrap on overflow.
"""

from __future__ import annotations

import functools
import itertools
import math
import pkgutil
import struct
import weakref
from _weakref import _remove_dead_weakref  # type: ignore[attr-defined]
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from weft.ir.dtype import DType, bool_, float32, float64, int64
from weft.support.dataclass import dataclass
from weft.support.errors import LoweringError

ExprLike: TypeAlias = "PrimExpr | int | float | bool"


class _Ref(weakref.ref):  # type: ignore[type-arg]
    """A weak reference with a key. ``weakref.KeyedRef`` is as slow to construct as a node."""

    __slots__ = ("key",)
    key: tuple[Any, ...]


_nodes: dict[tuple[Any, ...], _Ref] = {}


def _forget(ref: _Ref) -> None:
    # In one step, as ``WeakValueDictionary`` does: another thread may put a new node at the key.
    _remove_dead_weakref(_nodes, ref.key)


class _Interned(type):
    """Metaclass that returns the existing node with the same class and fields, if there is one."""

    def __call__(cls, *args: Any) -> Any:
        key = cls.intern_key(cls, *args)  # type: ignore[attr-defined]
        ref = _nodes.get(key)
        if ref is not None and (found := ref()) is not None:
            return found
        made = super().__call__(*args)
        new = _Ref(made, _forget)
        new.key = key
        while (ref := _nodes.setdefault(key, new)) is not new:
            found = ref()
            if found is not None:  # another thread has made it meanwhile
                return found
            _forget(ref)
        return made


def _fields_key(*key: Any) -> tuple[Any, ...]:
    return key


class PrimExpr(metaclass=_Interned):
    """Base of all expressions. ``dtype`` includes the number of lanes."""

    __slots__ = ("__weakref__",)
    if TYPE_CHECKING:
        dtype: DType

    intern_key: Any = staticmethod(_fields_key)  # of the class and the fields

    def __add__(self, other: ExprLike) -> PrimExpr:
        return add(self, as_prim(other, self.dtype))

    def __radd__(self, other: ExprLike) -> PrimExpr:
        return add(as_prim(other, self.dtype), self)

    def __sub__(self, other: ExprLike) -> PrimExpr:
        return sub(self, as_prim(other, self.dtype))

    def __rsub__(self, other: ExprLike) -> PrimExpr:
        return sub(as_prim(other, self.dtype), self)

    def __mul__(self, other: ExprLike) -> PrimExpr:
        return mul(self, as_prim(other, self.dtype))

    def __rmul__(self, other: ExprLike) -> PrimExpr:
        return mul(as_prim(other, self.dtype), self)

    def __truediv__(self, other: ExprLike) -> PrimExpr:
        return div(self, as_prim(other, self.dtype))

    def __rtruediv__(self, other: ExprLike) -> PrimExpr:
        return div(as_prim(other, self.dtype), self)

    def __floordiv__(self, other: ExprLike) -> PrimExpr:
        return floordiv(self, as_prim(other, self.dtype))

    def __mod__(self, other: ExprLike) -> PrimExpr:
        return floormod(self, as_prim(other, self.dtype))

    def __neg__(self) -> PrimExpr:
        return sub(const(0, self.dtype), self)

    def __lt__(self, other: ExprLike) -> PrimExpr:
        return compare(LT, self, other)

    def __le__(self, other: ExprLike) -> PrimExpr:
        return compare(LE, self, other)

    def __gt__(self, other: ExprLike) -> PrimExpr:
        return compare(GT, self, other)

    def __ge__(self, other: ExprLike) -> PrimExpr:
        return compare(GE, self, other)

    def equal(self, other: ExprLike) -> PrimExpr:
        """The expression ``self == other``; Python's ``==`` compares identity."""
        return compare(EQ, self, other)

    def not_equal(self, other: ExprLike) -> PrimExpr:
        return compare(NE, self, other)

    def astype(self, dtype: DType | str) -> PrimExpr:
        return cast(self, dtype)

    def __bool__(self) -> bool:
        raise TypeError(
            "the truth value of a symbolic expression is unknown; build conditions with .equal(), "
            "all_of, any_of or select"
        )

    def __str__(self) -> str:
        return print_node(self)

    def __repr__(self) -> str:
        return str(self)


@functools.cache
def _printer() -> Any:
    """The printer, which depends on this module."""
    return pkgutil.resolve_name("weft.tir.printer:as_text")


def print_node(node: Any) -> str:
    """The text of an expression, a statement or a function."""
    text: str = _printer()(node)
    return text


def expr_node(cls: type) -> type:
    # Not ``frozen``, which triples the time to build a node, and lowering builds 100,000. Fields
    # must not be assigned nevertheless: interning relies on it.
    return dataclass(slots=True, eq=False, repr=False)(cls)


_uids = itertools.count()


@expr_node
class Var(PrimExpr):
    """A scalar variable: loop variable, let-bound value, or symbolic size."""

    name: str
    dtype: DType = int64
    uid: int = field(default_factory=_uids.__next__)

    @staticmethod
    def intern_key(
        kind: type, name: str, dtype: DType = int64, uid: int | None = None
    ) -> tuple[Any, ...]:
        return (kind, name, dtype, uid if uid is not None else object())


@expr_node
class IntImm(PrimExpr):
    """An integer or boolean constant."""

    value: int
    dtype: DType = int64

    @staticmethod
    def intern_key(kind: type, value: int, dtype: DType = int64) -> tuple[Any, ...]:
        return (kind, value, dtype)


@expr_node
class FloatImm(PrimExpr):
    """A floating-point constant."""

    value: float
    dtype: DType = float32

    @staticmethod
    def intern_key(kind: type, value: float, dtype: DType = float32) -> tuple[Any, ...]:
        return (kind, struct.pack("<d", value), dtype)  # tells 0.0 from -0.0, and finds a NaN


@expr_node
class Binary(PrimExpr):
    """Base of operations with two operands of the same dtype."""

    a: PrimExpr
    b: PrimExpr

    dtype: DType = field(init=False)

    def __post_init__(self) -> None:
        self.dtype = self.a.dtype


@expr_node
class Add(Binary):
    """``a + b``; integers wrap."""


@expr_node
class Sub(Binary):
    """``a - b``; integers wrap."""


@expr_node
class Mul(Binary):
    """``a * b``; integers wrap."""


@expr_node
class Div(Binary):
    """Division; for integers, rounded towards zero."""


@expr_node
class FloorDiv(Binary):
    """Floor division. By zero it is 0; the smallest integer by -1 is itself."""


@expr_node
class FloorMod(Binary):
    """The remainder with the sign of the divisor; for integers, 0 if the divisor is 0."""


@expr_node
class Min(Binary):
    """The minimum; NaN if either operand is NaN."""


@expr_node
class Max(Binary):
    """The maximum; NaN if either operand is NaN."""


@expr_node
class Compare(Binary):
    """Base of comparisons; the result is bool, with as many lanes as the operands."""

    def __post_init__(self) -> None:
        self.dtype = bool_.vector(self.a.dtype.lanes)


@expr_node
class EQ(Compare):
    pass


@expr_node
class NE(Compare):
    pass


@expr_node
class LT(Compare):
    """``a < b``."""


@expr_node
class LE(Compare):
    pass


@expr_node
class GT(Compare):
    pass


@expr_node
class GE(Compare):
    """``a >= b``."""


@expr_node
class Cast(PrimExpr):
    """Conversion of values: floats truncate to integers, integers wrap."""

    dtype: DType
    value: PrimExpr


@expr_node
class Broadcast(PrimExpr):
    """A vector of ``lanes`` times the same scalar."""

    value: PrimExpr
    lanes: int

    dtype: DType = field(init=False)

    def __post_init__(self) -> None:
        self.dtype = self.value.dtype.vector(self.lanes)


TRUE = IntImm(1, bool_)


FALSE = IntImm(0, bool_)


def const(value: float | bool, dtype: DType | str = int64) -> PrimExpr:
    """A constant of ``dtype``, broadcast if it has lanes; integers wrap."""
    dtype = DType.of(dtype)
    if dtype.lanes > 1:
        return Broadcast(const(value, dtype.element), dtype.lanes)
    return FloatImm(float(value), dtype) if is_real(dtype) else _integer(int(value), dtype)


def wrap(value: int, dtype: DType) -> int:
    """``value`` wrapped to an integer dtype; for bool, whether it is nonzero."""
    if dtype.code == "bool":
        return int(value != 0)
    low = value & ((1 << dtype.bits) - 1)
    return low - (1 << dtype.bits) if dtype.code == "int" and low >> (dtype.bits - 1) else low


def _integer(value: int, dtype: DType) -> IntImm:
    is_usual = dtype is int64 and -(2**63) <= value < 2**63
    return IntImm(value if is_usual else wrap(value, dtype), dtype)


def is_real(dtype: DType) -> bool:
    return dtype.code.startswith(("float", "bfloat"))


def as_prim(value: ExprLike, dtype: DType | str | None = None) -> PrimExpr:
    """``value`` as an expression; a number becomes a constant (int64, float32 or bool)."""
    if isinstance(value, PrimExpr):
        return value
    if hasattr(value, "var"):  # an iteration variable of te
        return value.var
    if dtype is not None:
        return const(value, dtype)
    if isinstance(value, bool):
        return const(value, bool_)
    if isinstance(value, float):
        return const(value, float32)
    if hasattr(value, "__index__"):
        return const(value.__index__(), int64)
    raise LoweringError(f"not an expression: {value!r}", expected="a number or an expression")


def match_operands(a: PrimExpr, b: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """Broadcast a scalar operand to the lanes of the other.

    ``LoweringError`` for different element types.
    """
    if a.dtype is not b.dtype and a.dtype != b.dtype:
        if a.dtype.lanes == 1 and b.dtype.lanes > 1:
            a = Broadcast(a, b.dtype.lanes)
        elif b.dtype.lanes == 1 and a.dtype.lanes > 1:
            b = Broadcast(b, a.dtype.lanes)
        if a.dtype != b.dtype:
            raise LoweringError("operands have different dtypes", expected=a.dtype, got=b.dtype,
                                help="convert one of them with .astype(dtype)")
    return a, b


def int_value(e: PrimExpr) -> int | None:
    """The value of an integer constant; ``None`` for other expressions."""
    return e.value if type(e) is IntImm else None


def int_values(a: PrimExpr, b: PrimExpr) -> tuple[int | None, int | None]:
    return int_value(a), int_value(b)


def add(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    a, b = match_operands(a, b)
    x, y = int_values(a, b)
    if x is not None and y is not None:
        return _integer(x + y, a.dtype)
    if x == 0:
        return b
    return a if y == 0 else Add(a, b)


def sub(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    a, b = match_operands(a, b)
    x, y = int_values(a, b)
    if x is not None and y is not None:
        return _integer(x - y, a.dtype)
    if a is b and not is_real(a.dtype):
        return const(0, a.dtype)
    return a if y == 0 else Sub(a, b)


def mul(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    a, b = match_operands(a, b)
    x, y = int_values(a, b)
    if x is not None and y is not None:
        return _integer(x * y, a.dtype)
    if x == 0 or y == 1:
        return a
    return b if y == 0 or x == 1 else Mul(a, b)


def div(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    a, b = match_operands(a, b)
    return Div(a, b)


def floordiv(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """The quotient of integers, rounded down, folded where it is known."""
    a, b = match_operands(a, b)
    x, y = int_values(a, b)
    if y == 0:
        return const(0, a.dtype)
    if x is not None and y is not None:
        return _integer(x // y, a.dtype)
    return a if y == 1 or x == 0 else FloorDiv(a, b)


def floormod(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """What ``floordiv`` leaves: of the sign of ``b``."""
    a, b = match_operands(a, b)
    x, y = int_values(a, b)
    if y == 0:
        return const(0, a.dtype)
    if x is not None and y is not None:
        return _integer(x % y, a.dtype)
    return const(0, a.dtype) if y == 1 else FloorMod(a, b)


_FOLD = {
    EQ: lambda x, y: x == y,
    NE: lambda x, y: x != y,
    LT: lambda x, y: x < y,
    LE: lambda x, y: x <= y,
    GT: lambda x, y: x > y,
    GE: lambda x, y: x >= y,
}


def compare(node: type, a: PrimExpr, b: ExprLike) -> PrimExpr:
    a, other = match_operands(a, as_prim(b, a.dtype))
    x, y = int_values(a, other)
    if x is not None and y is not None:
        return TRUE if _FOLD[node](x, y) else FALSE
    return node(a, other)


def _rounded(value: float, dtype: DType) -> float:
    """``value`` rounded to a floating dtype."""
    if dtype is float64:
        return value
    with np.errstate(all="ignore"):
        return float(dtype.numpy.type(value))


def cast(value: PrimExpr, dtype: DType | str) -> PrimExpr:
    """``value`` converted to the element type of ``dtype``; it keeps its lanes."""
    target = DType.of(dtype).element.vector(value.dtype.lanes)
    if value.dtype == target:
        return value
    if isinstance(value, IntImm) and not target.is_small_float:
        return const(value.value, target)
    if isinstance(value, FloatImm) and target.code in ("float", "bfloat"):
        return FloatImm(_rounded(_rounded(value.value, value.dtype), target), target)
    if isinstance(value, FloatImm) and target.is_int and math.isfinite(value.value):
        return _integer(int(value.value), target)
    return Cast(target, value)
