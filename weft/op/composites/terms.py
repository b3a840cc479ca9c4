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

    emitter: TermEmitter
    expr: Expr

    def __add__(self, other: Term | float) -> Term:
        return self.emitter.call("add", self, other)

    def __radd__(self, other: float) -> Term:
        return self.emitter.call("add", other, self)

    def __sub__(self, other: Term | float) -> Term:
        return self.emitter.call("subtract", self, other)

    def __rsub__(self, other: float) -> Term:
        return self.emitter.call("subtract", other, self)

    def __mul__(self, other: Term | float) -> Term:
        return self.emitter.call("multiply", self, other)

    def __rmul__(self, other: float) -> Term:
        return self.emitter.call("multiply", other, self)

    def __truediv__(self, other: Term | float) -> Term:
        return self.emitter.call("divide", self, other)

    def __rtruediv__(self, other: float) -> Term:
        return self.emitter.call("divide", other, self)

    def __neg__(self) -> Term:
        return self.emitter.call("negative", self)

    def __lt__(self, other: Term | float) -> Term:
        return self.emitter.call("less", self, other)

    def __le__(self, other: Term | float) -> Term:
        return self.emitter.call("less_equal", self, other)

    def __gt__(self, other: Term | float) -> Term:
        return self.emitter.call("greater", self, other)

    def __ge__(self, other: Term | float) -> Term:
        return self.emitter.call("greater_equal", self, other)


@dataclass(frozen=True)
class TermEmitter:
    """Applies operators to terms by the typed calls of ``builder``."""

    builder: Builder

    def term(self, expr: Expr) -> Term:
        return Term(self, expr)

    def call(self, op: str, *operands: Term | float, **attrs: Any) -> Term:
        """One operator; numbers get the dtype of the first operand that is not boolean."""
        like = next((v.expr for v in operands if isinstance(v, Term) and not _is_bool(v.expr)),
                    None)
        args = [v.expr if isinstance(v, Term) else self._number(v, like, op) for v in operands]
        return Term(self, self.builder.call(get_op(op), *args, **attrs))

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
    """The result of ``composite`` for expressions; a tuple of expressions for several results."""
    emitter = TermEmitter(builder)
    values = [emitter.term(v) if isinstance(v, Expr) else v for v in operands]
    named = {k: emitter.term(v) if isinstance(v, Expr) else v for k, v in attrs.items()}
    result = composite(emitter, *values, **named)
    return tuple(r.expr for r in result) if isinstance(result, tuple) else result.expr
