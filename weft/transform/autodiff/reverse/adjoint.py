"""Adjoints of values; a zero adjoint is represented by ``None`` and costs nothing.

The adjoint of a tuple is an expression of its adjoint type, or a Python tuple with one adjoint for
each field. The adjoint of data is an expression (``adjoint_types``).
"""

from __future__ import annotations

from dataclasses import field
from typing import TypeAlias

from weft import ir, op
from weft.ir.visitor import Routine, run_routine
from weft.op.gradients import field_of, typed_zeros
from weft.support.dataclass import dataclass
from weft.support.errors import PassError
from weft.transform.analysis.graph import type_of
from weft.transform.autodiff.reverse.adjoint_types import UNIT, AdjointTypes, field_types

Adjoint: TypeAlias = "ir.Expr | tuple[Adjoint, ...] | None"
_Made: TypeAlias = "dict[tuple[object, ...], tuple[Adjoint, Adjoint | ir.Expr, ir.Expr]]"


def is_differentiable(type_: ir.Type | None) -> bool:
    """Whether a value of that type holds floating-point tensors outside of data types."""
    return type_ is not None and ir.holds_float(type_)


def field_adjoint(adjoint: Adjoint, index: int) -> Adjoint:
    """The adjoint of one field, from that of the tuple."""
    if isinstance(adjoint, tuple):
        return adjoint[index]
    return None if adjoint is None else field_of(adjoint, index)


def one_field(adjoint: Adjoint, index: int, count: int) -> Adjoint:
    """The adjoint of a tuple of ``count`` fields of which only field ``index`` is used."""
    return tuple(adjoint if i == index else None for i in range(count))


@dataclass(eq=False)
class Adjoints:
    """Arithmetic on adjoints; ``functions`` are the definitions that it needs, by name."""

    types: AdjointTypes = field(default_factory=AdjointTypes)
    functions: dict[str, ir.Function] = field(default_factory=dict)
    _sums: dict[ir.Type, str] = field(default_factory=dict)
    taken: frozenset[str] = frozenset()

    def sum_of(self, a: Adjoint, b: Adjoint) -> Adjoint:
        """The sum of the adjoints of two uses of a value."""
        return run_routine(self._sum(a, b, {}))

    def _sum(self, a: Adjoint, b: Adjoint,
             made: dict[tuple[int, int], tuple[Adjoint, Adjoint, Adjoint]]) -> Routine[Adjoint]:
        """``made`` memoizes sums by operands and keeps these alive, because adjoints share."""
        if a is None or b is None:
            return b if a is None else a
        type_ = a.checked_type if isinstance(a, ir.Expr) else None
        if isinstance(a, ir.Expr) and isinstance(type_, ir.TensorType) and isinstance(b, ir.Expr):
            return op.add(a, b, span=a.span).with_type(type_)
        if isinstance(a, ir.Expr) and isinstance(type_, ir.TypeCall) and isinstance(b, ir.Expr):
            return ir.Call(self._sum_function(type_), (a, b), span=a.span, checked_type=type_)
        known = made.get((id(a), id(b)))
        if known is None:
            count = _field_count(a) or _field_count(b) or 0
            fields = []
            for i in range(count):
                part = yield self._sum(field_adjoint(a, i), field_adjoint(b, i), made)
                fields.append(part)
            known = made[id(a), id(b)] = (a, b, tuple(fields))
        return known[2]

    def written(self, adjoint: Adjoint, value: ir.Expr) -> ir.Expr:
        """The adjoint of ``value`` as an expression of its adjoint type, with explicit zeros."""
        return run_routine(self._written(adjoint, value, self.types.of(type_of(value)), {}))

    def as_gradient(self, adjoint: Adjoint, value: ir.Expr) -> ir.Expr:
        """The adjoint of ``value``, which holds no data, as an expression of its own type."""
        if adjoint is None:
            return typed_zeros(value)
        if isinstance(adjoint, ir.Expr) and isinstance(value.checked_type, ir.TensorType):
            return adjoint
        return run_routine(self._written(adjoint, value, type_of(value), {}))

    def from_gradient(self, gradient: ir.Expr, type_: ir.Type) -> Adjoint:
        """The adjoint of a value of ``type_`` from a gradient of the same type."""
        if isinstance(type_, ir.TensorType) or self.types.of(type_) == type_:
            return gradient
        return run_routine(self._adopted(gradient, type_))

    def _adopted(self, gradient: ir.Expr, type_: ir.Type) -> Routine[Adjoint]:
        if isinstance(type_, ir.TupleType):
            fields = []
            for i, part in enumerate(type_.fields):
                fields.append((yield self._adopted(field_of(gradient, i), part)))
            return tuple(fields)
        return gradient if self.types.is_differentiable(type_) else None

    def _written(self, adjoint: Adjoint, value: ir.Expr, wanted: ir.Type,
                 made: _Made) -> Routine[ir.Expr]:
        """``adjoint`` as an expression of type ``wanted``: the type of adjoints, or of values."""
        if isinstance(adjoint, ir.Expr) and (
            not isinstance(wanted, ir.TupleType) or adjoint.checked_type == wanted
        ):
            return adjoint
        if isinstance(wanted, ir.TypeCall):
            zero = self.types.zero_constructor(wanted)
            return ir.Call(zero, (), type_args=wanted.args, span=value.span, checked_type=wanted)
        if not isinstance(wanted, ir.TupleType):
            return typed_zeros(value)
        if wanted == UNIT:
            return ir.Tuple((), span=value.span, checked_type=UNIT)
        # With symbolic shapes a tensor of zeros depends on the value, not on its type alone.
        key = (id(adjoint), wanted, None if ir.is_static(wanted) else value)
        known = made.get(key)
        if known is None:
            fields = []
            for i, part in enumerate(wanted.fields):
                of_field = field_of(value, i)
                fields.append((yield self._written(field_adjoint(adjoint, i), of_field, part,
                                                   made)))
            whole = ir.Tuple(tuple(fields), span=value.span, checked_type=wanted)
            # The key holds addresses, so the objects must stay alive.
            known = made[key] = (adjoint, value, whole)
        return known[2]

    # -- data ------------------------------------------------------------------------------------

    def fields_of_data(self, adjoint: ir.Expr, call: ir.Call,
                       constructor: ir.Constructor) -> ir.Expr:
        """The tuple of the adjoints of the arguments of ``call``, from that of its result."""
        type_ = adjoint.checked_type
        if not isinstance(type_, ir.TypeCall):
            raise PassError("the adjoint of data is not data", where=call.span, got=type_)
        parallel = self.types.constructor(constructor)
        wanted = ir.TupleType(field_types(parallel, type_, self.types.definition(type_)))
        fields = tuple(ir.Var(f"d{i}", t) for i, t in enumerate(wanted.fields))
        zeros = [run_routine(self._written(None, a, t, {}))
                 for a, t in zip(call.args, wanted.fields, strict=True)]
        lhs = ir.PatternConstructor(parallel, tuple(map(ir.PatternVar, fields)))
        clauses = (ir.Clause(lhs, ir.Tuple(fields, span=call.span, checked_type=wanted)),
                   ir.Clause(ir.PatternWildcard(), ir.Tuple(tuple(zeros), checked_type=wanted)))
        return ir.Match(adjoint, clauses, span=call.span, checked_type=wanted)

    def of_pattern(self, pattern: ir.Pattern, adjoints: dict[ir.Expr, Adjoint],
                   type_: ir.Type) -> Adjoint:
        """The adjoint of a matched value of ``type_`` from those of the variables it binds."""
        # Patterns are written by hand and short, which bounds this recursion.
        if isinstance(pattern, ir.PatternVar):
            found = adjoints.pop(pattern.var, None)
            return found if self.types.is_differentiable(type_) else None
        if isinstance(pattern, ir.PatternTuple) and isinstance(type_, ir.TupleType):
            fields = [self.of_pattern(p, adjoints, t)
                      for p, t in zip(pattern.patterns, type_.fields, strict=True)]
            return tuple(fields) if any(f is not None for f in fields) else None
        if isinstance(pattern, ir.PatternConstructor) and isinstance(type_, ir.TypeCall):
            return self._of_constructor(pattern, adjoints, type_)
        return None

    def _of_constructor(
        self, pattern: ir.PatternConstructor, adjoints: dict[ir.Expr, Adjoint], type_: ir.TypeCall
    ) -> Adjoint:
        made = self.types.of(type_)
        assert isinstance(made, ir.TypeCall)
        parallel = self.types.constructor(pattern.constructor)
        data = self.types.definitions[pattern.constructor.belongs_to.name]
        given = field_types(pattern.constructor, type_, data)
        parts = [self.of_pattern(p, adjoints, t)
                 for p, t in zip(pattern.patterns, given, strict=True)]
        if all(part is None for part in parts):
            return None
        wanted = field_types(parallel, made, self.types.definition(made))
        fields = [run_routine(self._written(part, _stand_in(p, t), w, {}))
                  for part, p, t, w in zip(parts, pattern.patterns, given, wanted, strict=True)]
        return ir.Call(parallel, tuple(fields), type_args=made.args, checked_type=made)

    def _sum_function(self, type_: ir.TypeCall) -> ir.GlobalVar:
        """The function that adds two adjoints of ``type_``."""
        name = self._sums.get(type_)
        signature = ir.FuncType((type_, type_), type_)
        if name is None:
            name = f"add_adjoint{len(self._sums)}"
            while name in self.taken:
                name += "_"
            self._sums[type_] = name
            self.functions[name] = self._sum_definition(type_, signature)
        return ir.GlobalVar(name, checked_type=signature)

    def _sum_definition(self, type_: ir.TypeCall, signature: ir.FuncType) -> ir.Function:
        a, b = ir.Var("a", type_), ir.Var("b", type_)
        pair = ir.TupleType((type_, type_))
        zero, *others = self.types.definition(type_).constructors
        nothing = ir.PatternConstructor(zero, ())
        clauses = [ir.Clause(ir.PatternTuple((nothing, ir.PatternWildcard())), b),
                   ir.Clause(ir.PatternTuple((ir.PatternWildcard(), nothing)), a)]
        for constructor in others:
            types = field_types(constructor, type_, self.types.definition(type_))
            left = tuple(ir.Var(f"a{i}", t) for i, t in enumerate(types))
            right = tuple(ir.Var(f"b{i}", t) for i, t in enumerate(types))
            sums = tuple(self._sum_of_fields(x, y, t)
                         for x, y, t in zip(left, right, types, strict=True))
            lhs = ir.PatternTuple(tuple(ir.PatternConstructor(constructor,
                                                              tuple(map(ir.PatternVar, side)))
                                        for side in (left, right)))
            clauses.append(ir.Clause(lhs, ir.Call(constructor, sums, type_args=type_.args,
                                                  checked_type=type_)))
        body = ir.Match(ir.Tuple((a, b), checked_type=pair), tuple(clauses), complete=False,
                        checked_type=type_)
        return ir.Function((a, b), body, type_, checked_type=signature)

    def _sum_of_fields(self, x: ir.Expr, y: ir.Expr, type_: ir.Type) -> ir.Expr:
        if isinstance(type_, ir.TupleType):
            return ir.Tuple(tuple(self._sum_of_fields(field_of(x, i), field_of(y, i), t)
                                  for i, t in enumerate(type_.fields)), checked_type=type_)
        total = self.sum_of(x, y)
        assert isinstance(total, ir.Expr)
        return total


def _stand_in(pattern: ir.Pattern, type_: ir.Type) -> ir.Expr:
    """An expression of the type of the part of a value that ``pattern`` matches."""
    return pattern.var if isinstance(pattern, ir.PatternVar) else ir.Var("unknown", type_)


def _field_count(adjoint: Adjoint) -> int | None:
    if isinstance(adjoint, tuple):
        return len(adjoint)
    type_ = adjoint.checked_type if adjoint is not None else None
    return len(type_.fields) if isinstance(type_, ir.TupleType) else None
