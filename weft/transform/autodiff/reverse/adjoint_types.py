"""Types of adjoints: what the derivative of a scalar with respect to a value looks like.

===================== ==============================================================
value                 adjoint
===================== ==============================================================
floating-point tensor a tensor of the same type
other tensor          ``()``
tuple                 the tuple of the adjoints of its fields
data                  data of a parallel type: each constructor holds the adjoints of
                      its fields, and one more constructor stands for zero
===================== ==============================================================

The constructor for zero keeps differentiation linear in time: the parts of a list that a
computation does not read cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field

from weft import ir
from weft.support.dataclass import dataclass
from weft.support.errors import PassError
from weft.support.names import unused
from weft.transform.analysis.graph import parts_of

UNIT = ir.TupleType(())


@dataclass(eq=False)
class AdjointTypes:
    """Adjoints of the types of a module with the data types ``definitions``; made on demand."""

    definitions: Mapping[str, ir.TypeData] = field(default_factory=dict)
    made: dict[str, ir.TypeData] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)
    _known: dict[ir.Type, ir.Type] = field(default_factory=dict)
    _data_with_floats: frozenset[str] | None = None

    def is_differentiable(self, type_: ir.Type | None) -> bool:
        """Whether a value of that type holds floating-point tensors, in data too."""
        if isinstance(type_, ir.TensorType):
            return type_.dtype.is_float
        if type_ is None or ir.holds_float(type_):
            return type_ is not None
        return bool(self.definitions) and any(map(self._is_float, parts_of(type_)))

    def _is_float(self, part: ir.Type) -> bool:
        if isinstance(part, ir.TensorType):
            return part.dtype.is_float
        return isinstance(part, ir.GlobalTypeVar) and part.name in self._float_data()

    def _float_data(self) -> frozenset[str]:
        """The data types whose definitions mention floating-point tensors, directly or not."""
        if self._data_with_floats is None:
            self._data_with_floats = data_with(
                self.definitions, lambda p: isinstance(p, ir.TensorType) and p.dtype.is_float)
        return self._data_with_floats

    def of(self, type_: ir.Type) -> ir.Type:
        """The type of the adjoint of a value of ``type_``."""
        if isinstance(type_, ir.TensorType):
            return type_ if type_.dtype.is_float else UNIT
        known = self._known.get(type_)
        if known is None:
            known = self._known[type_] = ir.rewrite_type(type_, self._replaced)
        return known

    def _replaced(self, type_: ir.Type) -> ir.Type | None:
        if isinstance(type_, ir.TensorType):
            return type_ if type_.dtype.is_float else UNIT
        if isinstance(type_, (ir.FuncType, ir.RefType)):
            raise PassError("functions and references have no adjoint", got=type_,
                            help="defunctionalization removes functions")
        if isinstance(type_, ir.GlobalTypeVar):
            return ir.GlobalTypeVar(self._name(type_.name))
        return None

    def constructor(self, constructor: ir.Constructor) -> ir.Constructor:
        """The constructor of adjoints for values of ``constructor``."""
        return self._data(constructor.belongs_to.name).constructors[constructor.tag + 1]

    def zero_constructor(self, type_: ir.TypeCall) -> ir.Constructor:
        """The constructor for zero of ``type_``, a type of adjoints."""
        if not isinstance(type_.func, ir.GlobalTypeVar) or type_.func.name not in self.made:
            raise PassError("not a type of adjoints", got=type_)
        return self.made[type_.func.name].constructors[0]

    def definition(self, type_: ir.TypeCall) -> ir.TypeData:
        """The definition of ``type_``, a type of adjoints."""
        return self._data_of_adjoint(type_)

    def _data_of_adjoint(self, type_: ir.TypeCall) -> ir.TypeData:
        self.zero_constructor(type_)
        assert isinstance(type_.func, ir.GlobalTypeVar)
        return self.made[type_.func.name]

    def _data(self, name: str) -> ir.TypeData:
        return self.made[self._name(name)]

    def _name(self, data: str) -> str:
        """The name of the adjoint type, which is defined at the first use."""
        if data not in self._names:
            self._names[data] = unused(f"{data}Adjoint", self._type_names())
            self._define(self.definitions[data])
        return self._names[data]

    def _define(self, data: ir.TypeData) -> None:
        name = self._names[data.header.name]
        header = ir.GlobalTypeVar(name)
        zero = ir.Constructor(unused(f"{data.header.name}Zero", self._constructor_names()),
                              (),
                              header, 0)
        # Registered before its fields are known, because they may mention the type itself.
        self.made[name] = ir.TypeData(header, data.type_vars, (zero,))
        others = tuple(
            ir.Constructor(unused(f"{c.name}Adjoint", self._constructor_names()),
                           tuple(map(self.of, c.inputs)), header, c.tag + 1)
            for c in data.constructors
        )
        self.made[name] = ir.TypeData(header, data.type_vars, (zero, *others))

    def _type_names(self) -> set[str]:
        return {*self.definitions, *self.made}

    def _constructor_names(self) -> set[str]:
        every = (*self.definitions.values(), *self.made.values())
        return {c.name for data in every for c in data.constructors}


def field_types(constructor: ir.Constructor, type_: ir.TypeCall,
                data: ir.TypeData) -> tuple[ir.Type, ...]:
    """The types of the fields of ``constructor`` in a value of ``type_``, defined by ``data``."""
    values = dict(zip(data.type_vars, type_.args, strict=True))

    def replace(part: ir.Type) -> ir.Type | None:
        return values.get(part) if isinstance(part, ir.TypeVar) else None

    return tuple(ir.rewrite_type(t, replace) for t in constructor.inputs)


def data_with(definitions: Mapping[str, ir.TypeData], wanted: Callable[[ir.Type], bool]
              ) -> frozenset[str]:
    """The data types whose definitions mention a ``wanted`` type, directly or not."""
    parts = {name: [p for c in data.constructors for t in c.inputs for p in parts_of(t)]
             for name, data in definitions.items()}
    found = {name for name, mentioned in parts.items() if any(map(wanted, mentioned))}
    growing = True
    while growing:
        size = len(found)
        found |= {name for name, mentioned in parts.items()
                  if any(isinstance(p, ir.GlobalTypeVar) and p.name in found for p in mentioned)}
        growing = len(found) > size
    return frozenset(found)
