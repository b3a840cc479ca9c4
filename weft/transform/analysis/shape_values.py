"""The values of integer tensors that a program computes from shapes, over symbolic sizes.

``shape_of`` of a tensor of type ``(n, 4)`` is ``[n, 4]``; ``concatenate``, ``take``, sums, products
and quotients of such tensors have values of the same kind. Operators say by their hook
``shape_value`` how they compute one (``op.shape_values``).
"""

from __future__ import annotations

import numpy as np

from weft.ir import AnyDim, Call, Constant, Expr, Op, SymDim, TensorType, Tuple, TupleGetItem
from weft.op.shape_values import MAX_ELEMENTS, Undecided, Value, Values
from weft.support.errors import WeftError
from weft.transform.analysis.graph import known_type, traits_of


class ShapeValues:
    """Values of typed expressions; those of operands are computed first and kept."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Expr, Values | None]] = {}

    def of(self, expr: Expr) -> Value | None:
        """The value of a tensor whose operands have been visited; ``None`` if it is unknown."""
        found = self._values(expr)
        return found if isinstance(found, np.ndarray) else None

    def visit(self, expr: Expr) -> Value | None:
        """Compute and keep the value of an expression; its operands must have been visited."""
        if id(expr) not in self._known:
            self._known[id(expr)] = expr, self._evaluate(expr)
        return self.of(expr)

    def _values(self, expr: Expr) -> Values | None:
        if isinstance(expr, Constant):
            content = expr.content
            small = content.size <= MAX_ELEMENTS and content.dtype.kind in "iub"
            return expr.data.astype(object) if small else None
        return self._known.get(id(expr), (expr, None))[1]

    def _evaluate(self, expr: Expr) -> Values | None:
        if isinstance(expr, TupleGetItem):
            whole = self._values(expr.tuple_value)
            return whole[expr.index] if isinstance(whole, tuple) else None
        if isinstance(expr, Tuple):
            fields = tuple(f for f in map(self.of, expr.fields) if f is not None)
            return fields if len(fields) == len(expr.fields) else None
        if not isinstance(expr, Call):
            return None
        rule = expr.op.hook("shape_value") if isinstance(expr.op, Op) else None
        if rule is None or not _holds_integers(expr):
            return None
        needed = () if traits_of(expr).reads_shape_only else expr.args
        args = [self._values(a) for a in needed]
        if any(a is None for a in args):
            return None
        try:
            found: Values | None = rule(expr, args)
        except (Undecided, WeftError):
            return None
        return found


def _holds_integers(call: Call) -> bool:
    """Whether the result is of integers or booleans."""
    found = known_type(call)
    fields = getattr(found, "fields", (found,))
    return all(isinstance(t, TensorType) and (t.dtype.is_int or t.dtype.is_bool)
               for t in fields)


def is_fixed(value: Value) -> bool:
    """Whether a value has no symbols."""
    return not any(isinstance(v, (SymDim, AnyDim)) for v in value.flat)


def is_determined(value: Value) -> bool:
    """Whether symbols determine all elements."""
    return not any(isinstance(v, AnyDim) for v in value.flat)
