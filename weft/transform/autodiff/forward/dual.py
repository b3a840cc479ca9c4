"""Values of forward mode: a value with its tangent, and the types of packed pairs.

A tensor of floating point becomes the pair of itself and its tangent, of the same type. Tuples,
functions, references and data types hold such pairs instead of their tensors, so the dual of
``List[Tensor[(), float32]]`` is ``List[(Tensor[(), float32], Tensor[(), float32])]``. A generic
function does not change: its type parameters stand for dual types (Wadler 1989).

Operators take the two halves separately; a zero tangent is ``None`` and costs nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from weft import ir
from weft.ir.visitor import Routine, run_routine
from weft.op.gradients import field_of, typed_zeros
from weft.support.dataclass import dataclass
from weft.support.names import unused
from weft.transform.analysis.graph import type_of


@dataclass(frozen=True, slots=True)
class Pair:
    """A value and its tangent of the same type; ``None`` is zero, or a type without tangents."""

    primal: ir.Expr
    tangent: ir.Expr | None = None


@dataclass(frozen=True, slots=True)
class Packed:
    """A value of dual type, which contains its tangents; ``type`` is the original type."""

    expr: ir.Expr
    type: ir.Type


# A Python tuple holds the values of the fields of a tuple.
Value: TypeAlias = "Pair | Packed | tuple[Value, ...]"


class DualTypes:
    """The dual of every type, and dual definitions of data types with fields of floating point."""

    def __init__(self, definitions: Mapping[str, ir.TypeData]) -> None:
        self.definitions = definitions
        self._known: dict[ir.Type, ir.Type] = {}
        self._renamed: dict[str, ir.GlobalTypeVar] = {}
        changed = True
        while changed:  # a definition changes if one that it refers to does
            changed = False
            for name, data in definitions.items():
                inputs = [t for c in data.constructors for t in c.inputs]
                if name not in self._renamed and any(self.of(t) != t for t in inputs):
                    self._renamed[name] = ir.GlobalTypeVar(unused(f"{name}_dual", definitions))
                    self._known.clear()
                    changed = True
        self._constructors = {
            name: tuple(
                ir.Constructor(f"{c.name}_dual", tuple(map(self.of, c.inputs)), header, c.tag,
                               span=c.span)
                for c in definitions[name].constructors)
            for name, header in self._renamed.items()
        }

    def of(self, type_: ir.Type) -> ir.Type:
        """The dual of ``type_``."""
        known = self._known.get(type_)
        if known is None:
            known = self._known[type_] = ir.rewrite_type(type_, self._of_leaf)
        return known

    def _of_leaf(self, type_: ir.Type) -> ir.Type | None:
        if isinstance(type_, ir.TensorType):
            return ir.TupleType((type_, type_)) if type_.dtype.is_float else type_
        if isinstance(type_, ir.GlobalTypeVar):
            return self._renamed.get(type_.name, type_)
        return self._known.get(type_)

    def is_plain(self, type_: ir.Type) -> bool:
        """Whether values of ``type_`` hold no tangent."""
        return self.of(type_) == type_

    def constructor(self, constructor: ir.Constructor) -> ir.Constructor:
        """The constructor of the dual data type."""
        made = self._constructors.get(constructor.belongs_to.name)
        if made is None:
            return constructor
        dual = made[constructor.tag]
        if constructor.checked_type is not None:
            dual = dual.with_type(self.of(constructor.checked_type))
        return dual

    def new_definitions(self) -> dict[str, ir.TypeData]:
        """The dual definitions, by name."""
        return {
            header.name: ir.TypeData(header, self.definitions[name].type_vars,
                                     self._constructors[name])
            for name, header in self._renamed.items()
        }

    def packed(self, value: Value, type_: ir.Type) -> ir.Expr:
        """``value`` as an expression of the dual of ``type_``, with explicit zeros."""
        return run_routine(self._pack(value, type_, {}))

    def _pack(self, value: Value, type_: ir.Type,
              made: dict[int, tuple[Value, ir.Expr]]) -> Routine[ir.Expr]:
        if isinstance(value, Packed):
            return value.expr
        if isinstance(value, Pair) and self.is_plain(type_):
            return value.primal
        known = made.get(id(value))  # values share; the table keeps them alive
        if known is not None:
            return known[1]
        if isinstance(value, Pair) and isinstance(type_, ir.TensorType):
            fields = [value.primal, tangent_or_zeros(value)]
        else:
            fields = []
            for index, field in enumerate(_fields_of(type_)):
                fields.append((yield self._pack(field_value(value, index), field, made)))
        dual = self.of(type_)
        packed = made_tuple(fields, dual, span_of(value))
        made[id(value)] = (value, packed)
        return packed

    def unpacked(self, expr: ir.Expr, type_: ir.Type) -> Value:
        """The value that ``expr``, of the dual of ``type_``, holds."""
        if self.is_plain(type_):
            return Pair(expr)
        if isinstance(type_, ir.TensorType):
            return Pair(field_of(expr, 0), field_of(expr, 1))
        return Packed(expr, type_)

    def field(self, value: Value, index: int, type_: ir.Type) -> Value:
        """Field ``index``, of ``type_``, of a value of tuple type."""
        if isinstance(value, Packed):
            return self.unpacked(field_of(value.expr, index), type_)
        return field_value(value, index)

    def split(self, value: Value, type_: ir.Type) -> Pair:
        """The two halves of a value of tensors and tuples of tensors."""
        return run_routine(self._split(value, type_, {}))

    def _split(self, value: Value, type_: ir.Type,
               made: dict[int, tuple[Value, Pair]]) -> Routine[Pair]:
        if isinstance(value, Pair):
            return value
        known = made.get(id(value))
        if known is not None:
            return known[1]
        halves = []
        for index, field in enumerate(_fields_of(type_)):
            halves.append((yield self._split(self.field(value, index, field), field, made)))
        span = span_of(value)
        primal = made_tuple([h.primal for h in halves], type_, span)
        pair = Pair(primal)
        if any(h.tangent is not None for h in halves):
            tangents = tuple(map(tangent_or_zeros, halves))
            pair = Pair(primal, made_tuple(tangents, type_, span))
        made[id(value)] = (value, pair)
        return pair


def field_value(value: Value, index: int) -> Value:
    """One field of a value that is not packed."""
    if isinstance(value, Pair):
        primal = field_of(value.primal, index)
        # The tangent of integers is zeros, as one field of the tangent of a tuple.
        if value.tangent is None or not ir.holds_float(type_of(primal)):
            return Pair(primal)
        return Pair(primal, field_of(value.tangent, index))
    if isinstance(value, Packed):
        return Packed(field_of(value.expr, index), _fields_of(value.type)[index])
    return value[index]


def is_active(value: Value) -> bool:
    """Whether ``value`` may have a tangent other than zero."""
    pending, seen = [value], set()
    while pending:
        current = pending.pop()
        if isinstance(current, Packed) or (isinstance(current, Pair)
                                           and current.tangent is not None):
            return True
        if isinstance(current, tuple) and id(current) not in seen:
            seen.add(id(current))
            pending.extend(current)
    return False


def is_simple(type_: ir.Type) -> bool:
    """Whether ``type_`` consists of tensors and tuples alone."""
    pending, seen = [type_], set()
    while pending:
        current = pending.pop()
        if isinstance(current, ir.TupleType):
            if current not in seen:
                seen.add(current)
                pending.extend(current.fields)
        elif not isinstance(current, ir.TensorType):
            return False
    return True


def is_atom(expr: ir.Expr) -> bool:
    return isinstance(expr, (ir.Var, ir.Constant))


def tangent_or_zeros(pair: Pair) -> ir.Expr:
    """The tangent of ``pair``, with explicit zeros."""
    return typed_zeros(pair.primal) if pair.tangent is None else pair.tangent


def span_of(value: Value) -> ir.Span | None:
    while isinstance(value, tuple):
        if not value:
            return None
        value = value[0]
    return value.primal.span if isinstance(value, Pair) else _packed(value).span


def _packed(value: Value) -> ir.Expr:
    assert isinstance(value, Packed)
    return value.expr


def retyped(var: ir.Var, type_: ir.Type) -> ir.Var:
    """A new variable with the name of ``var``, of ``type_``."""
    return dataclasses.replace(var, annotation=type_, checked_type=type_)


def function_type(expr: ir.Expr) -> ir.FuncType:
    found = type_of(expr)
    assert isinstance(found, ir.FuncType)
    return found


def _fields_of(type_: ir.Type) -> tuple[ir.Type, ...]:
    return type_.fields if isinstance(type_, ir.TupleType) else ()


def made_tuple(fields: Sequence[ir.Expr], type_: ir.Type, span: ir.Span | None) -> ir.Expr:
    """A tuple; the tuple ``x`` itself for ``(x.0, x.1, ..)``."""
    first = fields[0] if fields else None
    if isinstance(first, ir.TupleGetItem):
        whole = first.tuple_value
        if whole.checked_type == type_ and all(
            isinstance(f, ir.TupleGetItem) and f.tuple_value is whole and f.index == i
            for i, f in enumerate(fields)
        ):
            return whole
    return ir.Tuple(tuple(fields), span=span, checked_type=type_)
