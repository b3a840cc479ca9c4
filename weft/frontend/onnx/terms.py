"""Arithmetic operators on expressions: ``a * x + b``."""

from __future__ import annotations

from typing import TypeAlias

from weft import op
from weft.frontend.onnx.node import Node
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.support.dataclass import dataclass


@dataclass(frozen=True)
class Term:
    """An expression with operators; numbers are converted to the dtype of the other operand."""

    node: Node
    expr: Expr

    def __add__(self, other: Operand) -> Term:
        return self._with(op.add, self, other)

    def __radd__(self, other: Operand) -> Term:
        return self._with(op.add, other, self)

    def __sub__(self, other: Operand) -> Term:
        return self._with(op.subtract, self, other)

    def __rsub__(self, other: Operand) -> Term:
        return self._with(op.subtract, other, self)

    def __mul__(self, other: Operand) -> Term:
        return self._with(op.multiply, self, other)

    def __rmul__(self, other: Operand) -> Term:
        return self._with(op.multiply, other, self)

    def __truediv__(self, other: Operand) -> Term:
        return self._with(op.divide, self, other)

    def __rtruediv__(self, other: Operand) -> Term:
        return self._with(op.divide, other, self)

    def power(self, exponent: Operand) -> Term:
        return self._with(op.power, self, exponent)

    def raised_from(self, base: float) -> Term:
        """Return ``base`` to the power of this term."""
        return self._with(op.power, base, self)

    def above(self, other: Operand) -> Term:
        return self._with(op.greater, self, other)

    def sqrt(self) -> Term:
        return Term(self.node, self.node.call(op.sqrt, self.expr))

    def where(self, yes: Operand, no: Term) -> Term:
        """Select ``yes`` where this term is true, else ``no``."""
        first = yes.expr if isinstance(yes, Term) else self.node.scalar_like(yes, no.expr)
        return Term(self.node, self.node.call(op.where, self.expr, first, no.expr))

    def _with(self, operator: Op, a: Operand, b: Operand) -> Term:
        left, right = (
            v.expr if isinstance(v, Term) else self.node.scalar_like(v, self.expr) for v in (a, b)
        )
        return Term(self.node, self.node.call(operator, left, right))


Operand: TypeAlias = Term | float
