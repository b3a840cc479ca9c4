"""Commutative reducers: sum, product, min, max, any, all, argmin and argmax."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias, overload

from weft.ir.dtype import DType
from weft.support.dataclass import dataclass
from weft.support.errors import LoweringError
from weft.te.tensor import REDUCE, IterVar
from weft.tir import expr as tir
from weft.tir.expr import CommReducer, ExprLike, PrimExpr, Reduce, Var, as_prim, const

Axes: TypeAlias = "IterVar | Sequence[IterVar]"
Values: TypeAlias = tuple[PrimExpr, ...]
Combine: TypeAlias = Callable[[Values, Values], Values]
Identity: TypeAlias = Callable[[tuple[DType, ...]], Values]


@dataclass(frozen=True, slots=True)
class Reducer:
    """A commutative, associative combiner of tuples of ``arity`` values, with its identity.

    Call it inside ``te.compute`` with an expression (or a tuple of them) and the reduction axes.
    ``where`` restricts the reduction to the points at which the condition holds. Raises
    ``LoweringError`` for another number of expressions or for axes that are not reduction axes.
    """

    name: str
    arity: int
    combine: Combine
    identity: Identity

    @overload
    def __call__(self, source: ExprLike, axis: Axes, where: PrimExpr | None = ...) -> Reduce: ...

    @overload
    def __call__(
        self, source: Sequence[ExprLike], axis: Axes, where: PrimExpr | None = ...
    ) -> tuple[Reduce, ...]: ...

    def __call__(self, source: ExprLike | Sequence[ExprLike], axis: Axes,
                 where: PrimExpr | None = None) -> Reduce | tuple[Reduce, ...]:
        values = tuple(source) if isinstance(source, Sequence) else (source,)
        exprs = tuple(as_prim(v) for v in values)
        if len(exprs) != self.arity:
            raise LoweringError(
                f"te.{self.name} reduces tuples of {self.arity}",
                expected=f"{self.arity} expressions", got=f"{len(exprs)} expressions",
            )
        axes = self._axes(axis)
        combiner = self.combiner(tuple(e.dtype for e in exprs))
        condition = tir.TRUE if where is None else where
        results = tuple(Reduce(combiner, exprs, axes, condition, i) for i in range(self.arity))
        return results if isinstance(source, Sequence) else results[0]

    def _axes(self, axis: Axes) -> tuple[IterVar, ...]:
        axes = (axis,) if isinstance(axis, IterVar) else tuple(axis)
        for a in axes:
            if not isinstance(a, IterVar) or a.kind != REDUCE:
                raise LoweringError(f"te.{self.name} over an axis that is not a reduction axis",
                                    expected="te.reduce_axis(...)", got=a)
        if not axes or len({id(a) for a in axes}) != len(axes):
            raise LoweringError(f"te.{self.name} needs one or more different axes", got=axes)
        return axes

    def combiner(self, dtypes: tuple[DType, ...]) -> CommReducer:
        lhs = tuple(Var(f"x{i}", d) for i, d in enumerate(dtypes))
        rhs = tuple(Var(f"y{i}", d) for i, d in enumerate(dtypes))
        return CommReducer(lhs, rhs, self.combine(lhs, rhs), self.identity(dtypes))


def comm_reducer(combine: Callable[..., PrimExpr | Values],
                 identity: Callable[..., PrimExpr | Values], name: str = "reduce",
                 arity: int = 1) -> Reducer:
    """A custom reducer from ``combine(x, y)`` and ``identity(dtype)``.

    With ``arity`` above 1, ``x`` and ``y`` are tuples, ``identity`` takes one dtype per element,
    and both functions return tuples. ``combine`` must be associative and commutative, because
    schedules reorder reductions.
    """
    if arity == 1:
        return Reducer(name, 1, lambda x, y: (_one(combine(x[0], y[0])),),
                       lambda dtypes: (as_prim(_one(identity(dtypes[0])), dtypes[0]),))
    return Reducer(name, arity, lambda x, y: _many(combine(x, y)),
                   lambda dtypes: _many(identity(*dtypes)))


def _one(value: PrimExpr | Values) -> PrimExpr:
    return value[0] if isinstance(value, tuple) else value


def _many(value: PrimExpr | Values) -> Values:
    return value if isinstance(value, tuple) else (value,)


def min_value(dtype: DType) -> PrimExpr:
    """The smallest value of ``dtype``: minus infinity for floats."""
    if dtype.is_float:
        # Not the smallest finite number, which would win a maximum of minus infinities.
        return const(-math.inf, dtype)
    if dtype.is_bool or dtype.code == "uint":
        return const(0, dtype)
    return const(-(1 << (dtype.bits - 1)), dtype)


def max_value(dtype: DType) -> PrimExpr:
    """The largest value of ``dtype``: infinity for floats."""
    if dtype.is_float:
        return const(math.inf, dtype)
    if dtype.is_bool:
        return const(1, dtype)
    return const((1 << (dtype.bits - (dtype.code == "int"))) - 1, dtype)


def _simple(name: str, combine: Callable[[PrimExpr, PrimExpr], PrimExpr],
            identity: Callable[[DType], PrimExpr]) -> Reducer:
    return comm_reducer(combine, identity, name)


sum = _simple("sum", lambda x, y: x + y, lambda d: const(0, d))
prod = _simple("prod", lambda x, y: x * y, lambda d: const(1, d))
max = _simple("max", tir.maximum, min_value)
min = _simple("min", tir.minimum, max_value)
any = _simple("any", tir.any_of, lambda d: const(0, d))
all = _simple("all", tir.all_of, lambda d: const(1, d))


def _arg_combine(better: Callable[[PrimExpr, PrimExpr], PrimExpr]) -> Combine:
    """Pairs (index, value): NaN beats every number, as in NumPy; the smaller index breaks ties."""

    def combine(x: Values, y: Values) -> Values:
        (i, a), (j, b) = x, y
        wins, ties = better(a, b), a.equal(b)
        if a.dtype.is_float:
            nan_a, nan_b = _is_nan(a), _is_nan(b)
            wins = tir.any_of(wins, tir.all_of(nan_a, tir.not_(nan_b)))
            wins = tir.all_of(wins, tir.any_of(nan_a, tir.not_(nan_b)))
            ties = tir.any_of(ties, tir.all_of(nan_a, nan_b))
        left = tir.any_of(wins, tir.all_of(ties, i < j))
        return tir.select(left, i, j), tir.select(left, a, b)

    return combine


def _is_nan(value: PrimExpr) -> PrimExpr:
    return tir.call("bool", "isnan", value)


# The largest index is the identity, so that every element beats it in a tie, even one that equals
# the identity's value (an argmax of minus infinities).
argmax = Reducer("argmax", 2, _arg_combine(lambda a, b: a > b),
                 lambda dtypes: (max_value(dtypes[0]), min_value(dtypes[1])))
argmin = Reducer("argmin", 2, _arg_combine(lambda a, b: a < b),
                 lambda dtypes: (max_value(dtypes[0]), max_value(dtypes[1])))


def combined(combiner: CommReducer, old: Sequence[PrimExpr], new: Sequence[PrimExpr]
             ) -> tuple[PrimExpr, ...]:
    """The results of combining the values ``old`` and ``new``."""
    from weft.tir import substitute

    values: dict[Var, PrimExpr] = dict(zip(combiner.lhs, old, strict=True))
    values.update(zip(combiner.rhs, new, strict=False))
    return tuple(substitute(e, values) for e in combiner.result)
