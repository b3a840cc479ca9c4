"""Types of the functional IR: immutable values with value equality."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from weft.ir.dtype import DType
from weft.ir.shape import AnyDim, Dim, Shape, as_shape
from weft.support.errors import TypeInferenceError


class Type:
    """Base class of all types."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class TensorType(Type):
    """A tensor of known rank; rank 0 is a scalar."""

    shape: Shape
    dtype: DType

    @staticmethod
    def of(shape: Sequence[object], dtype: DType | str = "float32") -> TensorType:
        return TensorType(as_shape(shape), DType.of(dtype))

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def concrete_shape(self) -> tuple[int, ...]:
        """The shape as integers; raises ``TypeInferenceError`` if a dimension is not fixed."""
        if not all(isinstance(d, int) for d in self.shape):
            raise TypeInferenceError(f"the shape of {self} is not fixed")
        return self.shape  # type: ignore[return-value]

    def __str__(self) -> str:
        dims = ", ".join(map(str, self.shape))
        return f"Tensor[({dims}{',' if self.ndim == 1 else ''}), {self.dtype}]"


@dataclass(frozen=True, slots=True)
class TupleType(Type):
    fields: tuple[Type, ...]

    def __str__(self) -> str:
        inner = ", ".join(map(str, self.fields))
        return f"({inner}{',' if len(self.fields) == 1 else ''})"


@dataclass(frozen=True, slots=True)
class TypeVar(Type):
    """A type parameter of a generic function or data type; ``uid`` tells namesakes apart."""

    name: str
    uid: int = field(default_factory=itertools.count().__next__)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class FuncType(Type):
    arg_types: tuple[Type, ...]
    ret_type: Type
    type_params: tuple[TypeVar, ...] = ()

    def __str__(self) -> str:
        generics = f"[{', '.join(map(str, self.type_params))}]" if self.type_params else ""
        return f"fn{generics}({', '.join(map(str, self.arg_types))}) -> {self.ret_type}"


@dataclass(frozen=True, slots=True)
class RefType(Type):
    value: Type

    def __str__(self) -> str:
        return f"ref({self.value})"


@dataclass(frozen=True, slots=True)
class GlobalTypeVar(Type):
    """The name of an algebraic data type."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class TypeCall(Type):
    """A data type applied to its arguments: ``List[Tensor[(), int32]]``."""

    func: Type
    args: tuple[Type, ...]

    def __str__(self) -> str:
        args = ", ".join(map(str, self.args))
        return f"{self.func}[{args}]" if args else str(self.func)


@dataclass(frozen=True, slots=True)
class IncompleteType(Type):
    """A hole that inference fills; ``uid`` is its identity."""

    uid: int = field(default_factory=itertools.count().__next__)

    def __str__(self) -> str:
        return "_"


def component_types(type_: Type) -> tuple[Type, ...]:
    """The types that ``type_`` is directly made of."""
    if isinstance(type_, TupleType):
        return type_.fields
    if isinstance(type_, FuncType):
        return (*type_.arg_types, type_.ret_type)
    if isinstance(type_, RefType):
        return (type_.value,)
    if isinstance(type_, TypeCall):
        return (type_.func, *type_.args)
    return ()


def is_complete(type_: Type) -> bool:
    """Whether no hole is left anywhere in ``type_``."""
    if isinstance(type_, TensorType):
        return True
    pending = [type_]
    while pending:
        current = pending.pop()
        if isinstance(current, IncompleteType):
            return False
        pending.extend(component_types(current))
    return True


def is_static(type_: Type) -> bool:
    """Whether every dimension below ``type_`` is an integer."""
    pending = [type_]
    while pending:
        current = pending.pop()
        if isinstance(current, TensorType):
            if not all(isinstance(d, int) for d in current.shape):
                return False
        elif isinstance(current, TupleType):
            pending.extend(current.fields)
        else:
            return False
    return True


def has_any(dims: Sequence[Dim]) -> bool:
    return any(isinstance(d, AnyDim) for d in dims)
