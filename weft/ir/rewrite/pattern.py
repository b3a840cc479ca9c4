"""Patterns over expressions, written with the operators themselves::

    relu(relu(any_("x")).named("inner"))
    multiply(conv2d(any_("x"), const("w"), groups=1), const("c"))
    add(any_("x"), any_("y")) | subtract(any_("x"), any_("y"))

A pattern with attributes matches calls with equal ones; one without matches any. Operands of
commutative operators match in either order. A name used twice must match the same expression.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field as dataclass_field
from typing import Any

import numpy as np

from weft.ir.dtype import DType
from weft.ir.expr import OPERATORS, Call, Expr, Function
from weft.ir.op import Op, Operand, get_op
from weft.ir.shape import as_dim
from weft.ir.structural import encode_value
from weft.ir.traits import OpTraits
from weft.ir.types import TensorType, Type
from weft.support.dataclass import dataclass
from weft.support.errors import AttrsError

Condition = Callable[[Expr], bool]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Term(Operand):
    """Base of patterns. ``name`` captures the match, which must satisfy ``conditions``."""

    name: str | None = None
    conditions: tuple[Condition, ...] = ()

    def named(self, name: str) -> Term:
        """The same pattern, captured as ``name``."""
        return _with(self, name=name)

    def where(self, condition: Condition) -> Term:
        """Matches only expressions for which ``condition`` holds."""
        return _with(self, conditions=(*self.conditions, condition))

    def of_dtype(self, dtype: DType | str) -> Term:
        """Matches only tensors of ``dtype`` (by inferred type)."""
        wanted = DType.of(dtype)
        return self.where(lambda e: getattr(e.checked_type, "dtype", None) == wanted)

    def applied(self, op: Op, args: tuple[Any, ...], attrs: Mapping[str, Any]) -> Term:
        known = {name for name, _ in _attribute_fields(op)}
        unknown = [name for name in attrs if name not in known]
        if unknown:
            raise AttrsError(f"{op.name} has no attribute {', '.join(map(repr, unknown))}",
                             expected=", ".join(sorted(known)) or "no attributes")
        return CallTerm(op, tuple(as_term(a) for a in args), dict(attrs))

    def of_type(self, type_: Type) -> Term:
        """Matches only expressions of the inferred type ``type_``."""
        return self.where(lambda e: e.checked_type == type_)

    def of_shape(self, *dims: object) -> Term:
        """Matches only tensors of this shape; ``None`` stands for any size of an axis."""
        return self.where(lambda e: _has_shape(e.checked_type, dims))

    def with_attr(self, name: str, value: Any) -> Term:
        """Matches only calls and functions whose attribute ``name`` is ``value``.

        A function instead of a value is a predicate on it.
        """
        return self.where(lambda e: _has_attr(e, name, value))

    def dominates(self, path: Term, child: Term) -> Term:
        """Matches ``child`` if all uses of this lead to it, through nodes that match ``path``.

        The uses depend on the program around the expression; see ``match``.
        """
        return DominatorTerm(self, path, child)

    def __call__(self, *args: Any) -> Term:
        """Calls whose callee matches this pattern."""
        return ApplyTerm(self, tuple(as_term(a) for a in args))

    def __or__(self, other: Term) -> Term:
        return AltTerm((self, other))

    def __add__(self, other: Any) -> Term:
        return OPERATORS.apply("add", self, other)

    def __radd__(self, other: Any) -> Term:
        return OPERATORS.apply("add", other, self)

    def __sub__(self, other: Any) -> Term:
        return OPERATORS.apply("sub", self, other)

    def __rsub__(self, other: Any) -> Term:
        return OPERATORS.apply("sub", other, self)

    def __mul__(self, other: Any) -> Term:
        return OPERATORS.apply("mul", self, other)

    def __rmul__(self, other: Any) -> Term:
        return OPERATORS.apply("mul", other, self)

    def __truediv__(self, other: Any) -> Term:
        return OPERATORS.apply("truediv", self, other)

    def __rtruediv__(self, other: Any) -> Term:
        return OPERATORS.apply("truediv", other, self)

    def __neg__(self) -> Term:
        return OPERATORS.apply("neg", self)

    def __getitem__(self, index: int) -> Term:
        return FieldTerm(self, index)

    __array_ufunc__ = None


def _with(term: Term, **changes: Any) -> Any:
    fields = {f: getattr(term, f) for f in term.__dataclass_fields__}
    return type(term)(**{**fields, **changes})


def _has_shape(type_: Type | None, dims: Sequence[object]) -> bool:
    if not isinstance(type_, TensorType) or type_.ndim != len(dims):
        return False
    return all(w is None or as_dim(w) == d for w, d in zip(dims, type_.shape, strict=True))


def _has_attr(expr: Expr, name: str, value: Any) -> bool:
    if isinstance(expr, Call):
        attrs = dict(expr.attrs.items())
    else:
        attrs = dict(expr.attrs) if isinstance(expr, Function) else {}
    if name not in attrs:
        return False
    if callable(value):
        return bool(value(attrs[name]))
    return encode_value(attrs[name]) == encode_value(value)


def _attribute_fields(op: Op) -> list[tuple[str, Any]]:
    return list(op.attrs_type.__dataclass_fields__.items())


@dataclass(frozen=True, slots=True, eq=False)
class AnyTerm(Term):
    """Matches every expression."""


@dataclass(frozen=True, slots=True, eq=False)
class VarTerm(Term):
    """Matches variables."""


@dataclass(frozen=True, slots=True, eq=False)
class ConstTerm(Term):
    """Matches constants; with ``value``, those whose every element equals it."""

    value: float | int | bool | None = None


@dataclass(frozen=True, slots=True, eq=False)
class CallTerm(Term):
    """Matches calls of ``op``.

    ``attrs`` maps names to values, or to predicates on values.
    """

    op: Op
    args: tuple[Term, ...]
    attrs: Mapping[str, Any] = dataclass_field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class OneOfTerm(Term):
    """Matches calls of any of ``ops`` on operands that match ``args``."""

    ops: tuple[Op, ...]
    args: tuple[Term, ...]


@dataclass(frozen=True, slots=True, eq=False)
class TraitTerm(Term):
    """Matches calls of operators with certain traits on operands that match ``args``."""

    holds: Callable[[OpTraits], bool]
    args: tuple[Term, ...]


@dataclass(frozen=True, slots=True, eq=False)
class TupleTerm(Term):
    """Matches tuples with these fields; any tuple if ``fields`` is ``None``."""

    fields: tuple[Term, ...] | None


@dataclass(frozen=True, slots=True, eq=False)
class FieldTerm(Term):
    """Matches ``value.index``; every field if ``index`` is ``None``."""

    value: Term
    index: int | None


@dataclass(frozen=True, slots=True, eq=False)
class ExprTerm(Term):
    """Matches expressions structurally equal to ``expr``; an operator matches itself."""

    expr: Expr


@dataclass(frozen=True, slots=True, eq=False)
class ApplyTerm(Term):
    """Matches calls whose callee matches ``callee``; ``args=None``: with any arguments."""

    callee: Term
    args: tuple[Term, ...] | None


@dataclass(frozen=True, slots=True, eq=False)
class FunctionTerm(Term):
    """Matches functions; ``params=None``: with any parameters."""

    params: tuple[Term, ...] | None
    body: Term


@dataclass(frozen=True, slots=True, eq=False)
class LetTerm(Term):
    """Matches lets."""

    var: Term
    value: Term
    body: Term


@dataclass(frozen=True, slots=True, eq=False)
class IfTerm(Term):
    """Matches conditionals."""

    cond: Term
    true_branch: Term
    false_branch: Term


@dataclass(frozen=True, slots=True, eq=False)
class DominatorTerm(Term):
    """Matches ``child`` if all uses of the match of ``parent`` lead to it (post-dominance).

    The nodes between them, if any, match ``path``.
    """

    parent: Term
    path: Term
    child: Term


@dataclass(frozen=True, slots=True, eq=False)
class AltTerm(Term):
    """Matches if any of ``options`` matches, tried in order."""

    options: tuple[Term, ...]


def any_(name: str | None = None) -> Term:
    """Any expression, captured as ``name``."""
    return AnyTerm(name=name)


def var_(name: str | None = None) -> Term:
    """Any variable."""
    return VarTerm(name=name)


def const(name: str | None = None, value: float | bool | None = None) -> Term:
    """A constant; with ``value``, one filled with it."""
    return ConstTerm(value, name=name)


def call(ops: Sequence[Op], *args: Any) -> Term:
    """A call of any of several operators."""
    return OneOfTerm(tuple(ops), tuple(as_term(a) for a in args))


def call_where(holds: Callable[[OpTraits], bool], *args: Any) -> Term:
    """A call of any operator whose traits satisfy ``holds``."""
    return TraitTerm(holds, tuple(as_term(a) for a in args))


def tuple_(*fields: Any) -> Term:
    """A tuple with exactly these fields."""
    return TupleTerm(tuple(as_term(f) for f in fields))


def expr_(expr: Expr) -> Term:
    """Exactly ``expr``, up to names of bound variables."""
    return ExprTerm(expr)


def op_(name: str) -> Term:
    """The operator ``name``, to be called: ``op_("add")(any_("x"), any_("y"))``."""
    return ExprTerm(get_op(name))


def any_tuple(name: str | None = None) -> Term:
    """A tuple of any number of fields."""
    return TupleTerm(None, name=name)


def field(value: Any, index: int | None = None) -> Term:
    """Field ``index`` of a value; any field without it."""
    return FieldTerm(as_term(value), index)


def function(params: Sequence[Any] | None, body: Any) -> Term:
    """A function; ``params=None`` allows any parameters."""
    terms = None if params is None else tuple(as_term(p) for p in params)
    return FunctionTerm(terms, as_term(body))


def let_(variable: Any, value: Any, body: Any) -> Term:
    """A let."""
    return LetTerm(as_term(variable), as_term(value), as_term(body))


def if_(cond: Any, true_branch: Any, false_branch: Any) -> Term:
    """A conditional."""
    return IfTerm(as_term(cond), as_term(true_branch), as_term(false_branch))


def optional(wrap: Callable[[Term], Term], inner: Term) -> Term:
    """``wrap(inner)``, or ``inner`` alone: the names captured by ``wrap`` may then be missing."""
    return AltTerm((wrap(inner), inner))


def as_term(value: Any) -> Term:
    """Patterns unchanged, sequences as tuple patterns, numbers as constants filled with them."""
    if isinstance(value, Term):
        return value
    if isinstance(value, (tuple, list)):
        return tuple_(*value)
    if isinstance(value, (bool, int, float, np.number)):
        return ConstTerm(value)  # type: ignore[arg-type]
    raise AttrsError("invalid pattern",
                     expected='any_("x"), const("c"), a number, or an operator applied to such',
                     got=type(value).__name__)


def root_ops(term: Term) -> frozenset[str] | None:
    """Names of the operators that a match can start with; ``None`` if unrestricted."""
    if isinstance(term, CallTerm):
        return frozenset((term.op.name,))
    if isinstance(term, OneOfTerm):
        return frozenset(op.name for op in term.ops)
    if isinstance(term, ApplyTerm) and isinstance(term.callee, ExprTerm):
        callee = term.callee.expr
        return frozenset((callee.name,)) if isinstance(callee, Op) else None
    if isinstance(term, DominatorTerm):
        return root_ops(term.child)
    if isinstance(term, AltTerm):
        found: set[str] = set()
        for option in term.options:
            names = root_ops(option)
            if names is None:
                return None
            found |= names
        return frozenset(found)
    return None


def starts_of(term: Term) -> list[str]:
    """What a match needs at its root: ``operator:operand,operand``; ``*`` for any expression.

    The operands are operators, the calls of which are among the arguments in any order.
    """
    if isinstance(term, AltTerm):
        return [start for option in term.options for start in starts_of(option)]
    names = root_ops(term)
    if names is None:
        return ["*"]
    args = term.args if isinstance(term, (CallTerm, OneOfTerm)) else ()
    operands = ",".join(sorted({arg.op.name for arg in args if isinstance(arg, CallTerm)}))
    return [f"{name}:{operands}" for name in sorted(names)]


def may_start_at(term: Term, operator: Op | None) -> bool:
    """Whether a match can start with a call of ``operator``, as far as its traits tell.

    ``None`` stands for a root that is no call of an operator.
    """
    if not isinstance(term, TraitTerm):
        return True
    return operator is not None and term.holds(operator.traits)


def captured_names(term: Term) -> tuple[str, ...]:
    """Every name that a match may bind, in order."""
    found: dict[str, None] = {}
    pending = [term]
    while pending:
        current = pending.pop(0)
        if current.name is not None:
            found[current.name] = None
        pending.extend(subterms(current))
    return tuple(found)


_SUBTERMS: dict[type[Term], Callable[[Any], tuple[Term, ...]]] = {
    CallTerm: lambda t: t.args,
    OneOfTerm: lambda t: t.args,
    TraitTerm: lambda t: t.args,
    ApplyTerm: lambda t: (t.callee, *(t.args or ())),
    TupleTerm: lambda t: t.fields or (),
    FieldTerm: lambda t: (t.value,),
    AltTerm: lambda t: t.options,
    FunctionTerm: lambda t: (*(t.params or ()), t.body),
    LetTerm: lambda t: (t.var, t.value, t.body),
    IfTerm: lambda t: (t.cond, t.true_branch, t.false_branch),
    DominatorTerm: lambda t: (t.parent, t.path, t.child),
}


def subterms(term: Term) -> tuple[Term, ...]:
    """The patterns that ``term`` is made of."""
    made_of = _SUBTERMS.get(type(term))
    return made_of(term) if made_of is not None else ()
