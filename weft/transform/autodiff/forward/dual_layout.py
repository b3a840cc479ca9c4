"""Values with tangents as one expression, for the results of branches and of blocks with lets."""

from __future__ import annotations

from collections.abc import Sequence

from weft.ir import Expr, TensorType, TupleType, Type
from weft.op.gradients import field_of
from weft.support.dataclass import dataclass
from weft.transform.analysis.graph import type_of
from weft.transform.autodiff.forward import dual


@dataclass(frozen=True, slots=True)
class Layout:
    """The form of a value of ``type`` as one expression: ``(primal, tangent, ..)``, or its dual if
    packed.

    ``active`` are the fields of a tuple that have tangents; a tensor counts as one field.
    """

    type: Type
    types: dual.DualTypes
    packed: bool
    active: tuple[int, ...] = ()

    @staticmethod
    def of(values: Sequence[dual.Value], type_: Type, types: dual.DualTypes) -> Layout:
        """The layout that holds each of ``values``, without tangents that are zero in all."""
        if types.is_plain(type_) or not dual.is_simple(type_):
            return Layout(type_, types, packed=True)
        if isinstance(type_, TupleType):
            active = tuple(i for i, field in enumerate(type_.fields)
                           if any(dual.is_active(types.field(v, i, field)) for v in values))
        else:
            active = (0,) if any(map(dual.is_active, values)) else ()
        return Layout(type_, types, packed=False, active=active)

    def parts(self, value: dual.Value) -> list[Expr]:
        """``value`` and its tangents that are not zero."""
        if self.packed:
            return [self.types.packed(value, self.type)]
        pair = self.types.split(value, self.type)
        if not self.active:
            return [pair.primal]
        tangent = dual.tangent_or_zeros(pair)
        if isinstance(self.type, TensorType):
            return [pair.primal, tangent]
        return [pair.primal, *(field_of(tangent, i) for i in self.active)]

    def value(self, parts: Sequence[Expr]) -> dual.Value:
        """The value that consists of ``parts``."""
        primal, *tangents = parts
        if self.packed:
            return self.types.unpacked(primal, self.type)
        if not self.active:
            return dual.Pair(primal)
        if isinstance(self.type, TensorType):
            return dual.Pair(primal, tangents[0])
        found = dict(zip(self.active, tangents, strict=True))
        assert isinstance(self.type, TupleType)
        return tuple(dual.Pair(field_of(primal, i), found.get(i))
                     for i in range(len(self.type.fields)))

    def joined(self, value: dual.Value) -> Expr:
        """``value`` as one expression."""
        parts = self.parts(value)
        if len(parts) == 1:
            return parts[0]
        return dual.made_tuple(parts, TupleType(tuple(map(type_of, parts))), parts[0].span)

    def parted(self, expr: Expr) -> dual.Value:
        """The value that ``expr``, of the type of ``joined``, holds."""
        count = 1 + len(self.active)
        return self.value([expr] if count == 1 else [field_of(expr, i) for i in range(count)])
