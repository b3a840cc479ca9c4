"""Conversion of loops to tail-recursive functions of the IR."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from weft import op
from weft.frontend.common import arrays
from weft.frontend.common.node import NodeBase
from weft.frontend.common.recursion import tail_recursion, with_parameters
from weft.frontend.common.typed import tensor_type
from weft.ir import ANY, AnyDim, Dim, DType, KnownDim, SymDim, TensorType
from weft.ir.expr import Constant, Expr, Var
from weft.support.dataclass import dataclass
from weft.support.errors import UnsupportedModelError

# Iteration limit for the types of loop-carried values to reach a fixed point.
_MAX_ROUNDS_OF_TYPING = 4


@dataclass(frozen=True)
class Loop:
    """A loop that runs while its condition holds and ``i < trip_count``.

    ``step(i, condition, carried)`` returns the next condition, the next loop-carried values, and
    the scan outputs of the iteration. ``going`` is the initial condition, ``known`` the values
    from outside that the body may read. ``length`` is the trip count as a dimension, if it is a
    size.
    """

    node: NodeBase
    trip_count: Expr
    going: Expr
    carried: tuple[Expr, ...]
    step: Callable[[Expr, Expr, Sequence[Expr]], Sequence[Expr]]
    known: Iterable[object]
    length: Dim | None = None


@dataclass(frozen=True)
class _Iteration:
    """The loop body, converted for loop variables of given types."""

    variables: tuple[Var, ...]
    condition: Expr
    carried: tuple[Expr, ...]
    scanned: tuple[Expr, ...]


def run_loop(loop: Loop) -> list[Expr]:
    """Convert a loop; return the final loop-carried values and the stacked scan outputs.

    Scan outputs are stacked along a new axis 0. Raises ``UnsupportedModelError`` if a loop-carried
    value changes its rank or dtype.
    """
    node = loop.node
    once = _typed_round(loop)
    fixed = _static_trip_count(loop, once)
    sums = [_Collected(node, tensor_type(part), fixed) for part in once.scanned]
    i, condition, *state = once.variables
    collected = tuple(Var(f"scan{n}", s.type, checked_type=s.type) for n, s in enumerate(sums))
    variables = (i, condition, *state, *collected)
    following = (
        node.call(op.add, i, node.constant(1, "int64")),
        once.condition,
        *once.carried,
        *(s.with_part(total, part, i)
          for s, total, part in zip(sums, collected, once.scanned, strict=True)),
    )
    first = (node.constant(0, "int64"), loop.going, *loop.carried, *(s.empty() for s in sums))
    goes_on = node.call(op.logical_and, condition, node.call(op.less, i, loop.trip_count))
    (goes_on, *following), given = with_parameters(node.span, (goes_on, *following), loop.known)
    result = tail_recursion(node.span, (*variables, *given), goes_on, (*following, *given),
                            (*first, *given.values()))
    positions = range(2, len(variables))
    return [node.field(result, position) for position in positions]


def _typed_round(loop: Loop) -> _Iteration:
    """Convert the body with types that hold for all iterations; varying sizes become ``ANY``."""
    types = [_carried_type(loop.node, value) for value in loop.carried]
    for _ in range(_MAX_ROUNDS_OF_TYPING):
        once = _converted(loop, types)
        joined = [
            _joined(loop.node, before, _carried_type(loop.node, after))
            for before, after in zip(types, once.carried, strict=True)
        ]
        if joined == types:
            return once
        types = joined
    raise UnsupportedModelError("the shapes of loop-carried values do not converge",
                                where=loop.node.span)  # fmt: skip


def _carried_type(node: NodeBase, value: Expr) -> TensorType:
    if not isinstance(value.checked_type, TensorType):
        raise UnsupportedModelError(
            f"{node.op} carries a sequence, and its trip count is not a constant",
            where=node.span,
            help="make the trip count a constant",
        )
    return value.checked_type


def _converted(loop: Loop, types: Sequence[TensorType]) -> _Iteration:
    index, flag = (TensorType((), DType.of(name)) for name in ("int64", "bool"))
    names = ["i", "going", *(f"carried{n}" for n in range(len(types)))]
    variables = tuple(
        Var(name, type_, span=loop.node.span, checked_type=type_)
        for name, type_ in zip(names, (index, flag, *types), strict=True)
    )
    results = loop.step(variables[0], variables[1], variables[2:])
    if len(results) < len(types) + 1:
        raise loop.node.fail("the loop body has too few outputs",
                             expected=f"{len(types) + 1} or more", got=str(len(results)))
    condition, *rest = results
    return _Iteration(variables, condition, tuple(rest[: len(types)]), tuple(rest[len(types) :]))


def _joined(node: NodeBase, before: TensorType, after: TensorType) -> TensorType:
    if before.dtype != after.dtype or before.ndim != after.ndim:
        raise UnsupportedModelError(
            f"a loop-carried value of {node.op} changes its type",
            where=node.span,
            expected=str(before),
            got=str(after),
        )
    pairs = zip(before.shape, after.shape, strict=True)
    return TensorType(tuple(b if b == a else ANY for b, a in pairs), before.dtype)


def _static_trip_count(loop: Loop, once: _Iteration) -> KnownDim | None:
    """Return the trip count if it is a size and the condition is always true, else ``None``."""
    count = _value_of(loop.trip_count)
    known = [_value_of(e) for e in (loop.going, once.condition)]
    unchanged = once.condition is once.variables[1] and known[0] is not None and bool(known[0])
    always = unchanged or all(value is not None and bool(value) for value in known)
    if not always:
        return None
    if count is not None:
        return int(count)
    return loop.length if isinstance(loop.length, SymDim) else None


def _value_of(expr: Expr) -> Any:
    return expr.data if isinstance(expr, Constant) else None


@dataclass(frozen=True)
class _Collected:
    """A scan output during the loop; preallocated if the trip count is known, else appended to."""

    node: NodeBase
    part: TensorType
    trip_count: KnownDim | None

    @property
    def type(self) -> TensorType:
        return TensorType((ANY if self.trip_count is None else self.trip_count, *self.part.shape),
                          self.part.dtype)  # fmt: skip

    def empty(self) -> Expr:
        known = () if self.trip_count is None else (self.trip_count, *self.part.shape)
        if any(isinstance(d, SymDim) for d in known) and not any(
                isinstance(d, AnyDim) for d in known):
            return self.node.call(op.zeros, shape=known, dtype=self.part.dtype)
        sizes = tuple(d if isinstance(d, int) else 0 for d in self.part.shape)
        count = self.trip_count if isinstance(self.trip_count, int) else 0
        zeros = arrays.zeros((count, *sizes), self.part.dtype.numpy)
        return Constant(zeros, span=self.node.span)

    def with_part(self, total: Expr, part: Expr, i: Expr) -> Expr:
        node = self.node
        if self.trip_count is None:
            row = node.call(op.expand_dims, part, axis=0, num_newaxis=1)
            return node.tuple_call(op.concatenate, [total, row], axis=0)
        position = node.call(op.reshape, i, newshape=(1,))
        return node.call(op.scatter_nd, total, position, part, mode="update")
