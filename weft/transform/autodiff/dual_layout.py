"""Values with tangents as one expression, for the results of branches and of blocks with lets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from weft.ir.expr import Expr
from weft.ir.types import TensorType, TupleType, Type
from weft.op.gradients import field_of
from weft.transform.analysis.graph import type_of
from weft.transform.autodiff.dual import (
    DualTypes,
    Pair,
    Value,
    is_active,
    is_simple,
    made_tuple,
    tangent_or_zeros,
)


@dataclass(frozen=True, slots=True)
class Layout:
    """How a value of ``type`` is one expression: ``(primal, tangent, ..)``, or its dual if packed.

    ``active`` are the fields of a tuple that have tangents; a tensor counts as one field.
    """

    type: Type
    types: DualTypes
    packed: bool
    active: tuple[int, ...] = ()

    @staticmethod
    def of(values: Sequence[Value], type_: Type, types: DualTypes) -> Layout:
        """The layout that holds each of ``values``, with no tangent that is zero in all."""
        if types.is_plain(type_) or not is_simple(type_):
            return Layout(type_, types, packed=True)
        if isinstance(type_, TupleType):
            active = tuple(i for i, field in enumerate(type_.fields)
                           if any(is_active(types.field(v, i, field)) for v in values))
        else:
            active = (0,) if any(map(is_active, values)) else ()
        return Layout(type_, types, packed=False, active=active)

    def joined(self, value: Value) -> Expr:
        """``value`` as one expression."""
        if self.packed:
            return self.types.packed(value, self.type)
        pair = self.types.split(value, self.type)
        if not self.active:
            return pair.primal
        if isinstance(self.type, TensorType):
            parts = [pair.primal, tangent_or_zeros(pair)]
        else:
            tangent = tangent_or_zeros(pair)
            parts = [pair.primal, *(field_of(tangent, i) for i in self.active)]
        return made_tuple(parts, TupleType(tuple(map(type_of, parts))), pair.primal.span)

    def parted(self, expr: Expr) -> Value:
        """The value that ``expr`` holds."""
        if self.packed:
            return self.types.unpacked(expr, self.type)
        if not self.active:
            return Pair(expr)
        primal = field_of(expr, 0)
        if isinstance(self.type, TensorType):
            return Pair(primal, field_of(expr, 1))
        assert isinstance(self.type, TupleType)
        found = {index: field_of(expr, i + 1) for i, index in enumerate(self.active)}
        return tuple(Pair(field_of(primal, i), found.get(i))
                     for i in range(len(self.type.fields)))
