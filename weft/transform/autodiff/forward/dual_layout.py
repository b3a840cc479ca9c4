"""Values with tangents as one expression, for the results of branches and of blocks with lets."""

from __future__ import annotations

from collections.abc import Sequence

from weft.ir.expr import Expr
from weft.ir.types import TensorType, TupleType, Type
from weft.op.gradients import field_of
from weft.support.dataclass import dataclass
from weft.transform.analysis.graph import type_of
from weft.transform.autodiff.forward.dual import (
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

    def parts(self, value: Value) -> list[Expr]:
        """``value`` and its tangents that are not zero."""
        if self.packed:
            return [self.types.packed(value, self.type)]
        pair = self.types.split(value, self.type)
        if not self.active:
            return [pair.primal]
        tangent = tangent_or_zeros(pair)
        if isinstance(self.type, TensorType):
            return [pair.primal, tangent]
        return [pair.primal, *(field_of(tangent, i) for i in self.active)]

    def value(self, parts: Sequence[Expr]) -> Value:
        """The value that consists of ``parts``."""
        primal, *tangents = parts
        if self.packed:
            return self.types.unpacked(primal, self.type)
        if not self.active:
            return Pair(primal)
        if isinstance(self.type, TensorType):
            return Pair(primal, tangents[0])
        found = dict(zip(self.active, tangents, strict=True))
        assert isinstance(self.type, TupleType)
        return tuple(Pair(field_of(primal, i), found.get(i))
                     for i in range(len(self.type.fields)))

    def joined(self, value: Value) -> Expr:
        """``value`` as one expression."""
        parts = self.parts(value)
        if len(parts) == 1:
            return parts[0]
        return made_tuple(parts, TupleType(tuple(map(type_of, parts))), parts[0].span)

    def parted(self, expr: Expr) -> Value:
        """The value that ``expr``, of the type of ``joined``, holds."""
        count = 1 + len(self.active)
        return self.value([expr] if count == 1 else [field_of(expr, i) for i in range(count)])
