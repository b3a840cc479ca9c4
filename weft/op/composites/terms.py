"""Composites over typed expressions, as front ends and the catalogue build them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from weft.ir import Expr, Op, TensorType, get_op
from weft.support.dataclass import dataclass
from weft.support.errors import InternalError


class Builder(Protocol):
    """What builds typed calls: the node that a front end converts."""

    def call(self, operator: Op, /, *args: Any, **attrs: Any) -> Expr:
        """The typed call of an operator."""

    def scalar_like(self, value: float, other: Expr, /) -> Expr:
        """A scalar with the dtype of ``other``."""


@dataclass(frozen=True, eq=False)
class Term:
    """A typed expression with arithmetic; numbers get the dtype of the other operand."""

    builder: Builder
    expr: Expr

    def apply(self, op: str, *others: Term | float, **attrs: Any) -> Term:
        """An operator whose first operand is this term."""
        return TermEmitter(self.builder).call(op, self, *others, **attrs)

    def __add__(self, other: Term | float) -> Term:
        return self.apply("add", other)

    def __radd__(self, other: float) -> Term:
        return TermEmitter(self.builder).call("add", other, self)

    def __sub__(self, other: Term | float) -> Term:
        return self.apply("subtract", other)

    def __rsub__(self, other: float) -> Term:
        return TermEmitter(self.builder).call("subtract", other, self)

    def __mul__(self, other: Term | float) -> Term:
        return self.apply("multiply", other)

    def __rmul__(self, other: float) -> Term:
        return TermEmitter(self.builder).call("multiply", other, self)

    def __truediv__(self, other: Term | float) -> Term:
        return self.apply("divide", other)

    def __rtruediv__(self, other: float) -> Term:
        return TermEmitter(self.builder).call("divide", other, self)

    def __neg__(self) -> Term:
        return self.apply("negative")

    def __lt__(self, other: Term | float) -> Term:
        return self.apply("less", other)

    def __le__(self, other: Term | float) -> Term:
        return self.apply("less_equal", other)

    def __gt__(self, other: Term | float) -> Term:
        return self.apply("greater", other)

    def __ge__(self, other: Term | float) -> Term:
        return self.apply("greater_equal", other)


@dataclass(frozen=True)
class TermEmitter:
    """Applies operators to terms by the typed calls of ``builder``."""

    builder: Builder

    def call(self, op: str, *operands: Term | float, **attrs: Any) -> Term:
        """One operator; numbers get the dtype of the first operand that is not boolean."""
        like = next((v.expr for v in operands if isinstance(v, Term) and not _is_bool(v.expr)),
                    None)
        args = [v.expr if isinstance(v, Term) else self._number(v, like, op) for v in operands]
        return Term(self.builder, self.builder.call(get_op(op), *args, **attrs))

    def _number(self, value: float, like: Expr | None, op: str) -> Expr:
        if like is None:
            raise InternalError(f"{op} has a number and no operand that decides its dtype")
        return self.builder.scalar_like(value, like)

    def detached(self, value: Term) -> Term:
        """``value`` as a constant of the gradient."""
        return self.call("annotation.stop_gradient", value)


def _is_bool(expr: Expr) -> bool:
    return isinstance(expr.checked_type, TensorType) and expr.checked_type.dtype.is_bool


def composed(builder: Builder, composite: Callable[..., Any], *operands: Any, **attrs: Any) -> Any:
    """The result of ``composite`` for expressions; a tuple of expressions for several results.

    An operand may be a tuple of expressions.
    """
    emitter = TermEmitter(builder)
    values = [_term(builder, v) for v in operands]
    named = {k: _term(builder, v) for k, v in attrs.items()}
    result = composite(emitter, *values, **named)
    return tuple(r.expr for r in result) if isinstance(result, tuple) else result.expr


def _term(builder: Builder, value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple([_term(builder, v) for v in value])
    return Term(builder, value) if isinstance(value, Expr) else value
