"""Types of the functional IR: immutable values with value equality."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TypeAlias

from weft.ir.dtype import DType
from weft.ir.shape import AnyDim, Dim, Shape, as_shape
from weft.support.dataclass import dataclass
from weft.support.errors import InternalError, TypeInferenceError


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
        """The shape as integers; raises ``TypeInferenceError`` if a dimension is not static."""
        if not all(isinstance(d, int) for d in self.shape):
            raise TypeInferenceError(f"the shape of {self} is not static")
        return self.shape  # type: ignore[return-value]

    def __str__(self) -> str:
        dims = ", ".join(map(str, self.shape))
        return f"Tensor[({dims}{',' if self.ndim == 1 else ''}), {self.dtype}]"


@dataclass(frozen=True, slots=True)
class TypeVar(Type):
    """A type parameter of a generic function or data type; ``uid`` distinguishes equal names."""

    name: str
    uid: int = field(default_factory=itertools.count().__next__)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class IncompleteType(Type):
    """An unknown type for inference to fill; ``uid`` is its identity."""

    uid: int = field(default_factory=itertools.count().__next__)

    def __str__(self) -> str:
        return "_"


@dataclass(frozen=True, slots=True)
class GlobalTypeVar(Type):
    """The name of an algebraic data type."""

    name: str

    def __str__(self) -> str:
        return self.name


TextSegment: TypeAlias = "str | Type"


@dataclass(frozen=True, slots=True, eq=False)
class CompositeType(Type):
    """Base of types with component types.

    Tuples may be nested ten thousand deep and share components. Therefore properties that every
    node of a program needs (completeness, the hash) are computed once, from those of the
    components, and comparison and printing use explicit stacks.
    """

    complete: bool = field(init=False, repr=False)
    hash_value: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        components = self.components()
        object.__setattr__(self, "complete", all(map(is_complete, components)))
        key = type(self).__name__, self.binds(), components
        object.__setattr__(self, "hash_value", hash(key))

    def components(self) -> tuple[Type, ...]:
        """The direct component types."""
        raise InternalError(f"{type(self).__name__} does not define its component types")

    def with_components(self, components: tuple[Type, ...]) -> Type:
        """The same kind of type with other components."""
        raise InternalError(f"{type(self).__name__} cannot be rebuilt from {len(components)} types")

    def binds(self) -> tuple[TypeVar, ...]:
        """Type parameters that are in scope in the components."""
        return ()

    def text_segments(self) -> list[TextSegment]:
        """The text, with component types to be filled in."""
        raise InternalError(f"{type(self).__name__} cannot be printed")

    def __hash__(self) -> int:
        return self.hash_value

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, CompositeType) or self.hash_value != other.hash_value:
            return False
        return _same_type(self, other)

    def __str__(self) -> str:
        return type_text(self)

    def __reduce__(self) -> tuple[object, ...]:
        # Hashes differ between processes.
        made = (f for f in dataclasses.fields(self) if f.init)
        return type(self), tuple(getattr(self, f.name) for f in made)


def _same_type(a: CompositeType, b: CompositeType) -> bool:
    pending: list[tuple[Type, Type]] = [(a, b)]
    seen: set[tuple[int, int]] = set()
    while pending:
        x, y = pending.pop()
        if x is y or (id(x), id(y)) in seen:
            continue
        if not isinstance(x, CompositeType) or not isinstance(y, CompositeType):
            if x != y:
                return False
            continue
        if x.hash_value != y.hash_value or type(x) is not type(y) or x.binds() != y.binds():
            return False
        seen.add((id(x), id(y)))
        left, right = x.components(), y.components()
        if len(left) != len(right):
            return False
        pending.extend(zip(left, right, strict=True))
    return True


def type_text(root: Type, *, limit: int | None = None) -> str:
    """The text of ``root``; with ``limit``, at least that many characters of its beginning.

    Types share components, but text does not: that of a type of 60 tuples may be 2**60 long.
    """
    written: list[str] = []
    length = 0
    stack: list[TextSegment] = [root]
    while stack and (limit is None or length <= limit):
        segment = stack.pop()
        if isinstance(segment, CompositeType):
            stack.extend(reversed(segment.text_segments()))
        else:
            written.append(str(segment))
            length += len(written[-1])
    return "".join(written)


def _listed(types: Sequence[Type]) -> list[TextSegment]:
    segments: list[TextSegment] = []
    for type_ in types:
        segments += [", ", type_] if segments else [type_]
    return segments


@dataclass(frozen=True, slots=True, eq=False)
class TupleType(CompositeType):
    """``static`` and ``holds_float`` cache ``is_static`` and ``holds_float``."""

    fields: tuple[Type, ...]
    static: bool = field(init=False, repr=False)
    holds_float: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        CompositeType.__post_init__(self)  # super() does not work in slotted dataclasses
        object.__setattr__(self, "static", all(map(is_static, self.fields)))
        object.__setattr__(self, "holds_float", any(map(holds_float, self.fields)))

    def components(self) -> tuple[Type, ...]:
        return self.fields

    def with_components(self, components: tuple[Type, ...]) -> Type:
        return TupleType(components)

    def text_segments(self) -> list[TextSegment]:
        return ["(", *_listed(self.fields), ",)" if len(self.fields) == 1 else ")"]


@dataclass(frozen=True, slots=True, eq=False)
class FuncType(CompositeType):
    """The type of functions; ``type_params`` are the type variables of generic ones."""

    arg_types: tuple[Type, ...]
    ret_type: Type
    type_params: tuple[TypeVar, ...] = ()

    def components(self) -> tuple[Type, ...]:
        return (*self.arg_types, self.ret_type)

    def with_components(self, components: tuple[Type, ...]) -> Type:
        return FuncType(components[:-1], components[-1], self.type_params)

    def binds(self) -> tuple[TypeVar, ...]:
        return self.type_params

    def text_segments(self) -> list[TextSegment]:
        generics = f"[{', '.join(map(str, self.type_params))}]" if self.type_params else ""
        return [f"fn{generics}(", *_listed(self.arg_types), ") -> ", self.ret_type]


@dataclass(frozen=True, slots=True, eq=False)
class RefType(CompositeType):
    """The type of references to values of one type."""

    value: Type

    def components(self) -> tuple[Type, ...]:
        return (self.value,)

    def with_components(self, components: tuple[Type, ...]) -> Type:
        return RefType(components[0])

    def text_segments(self) -> list[TextSegment]:
        return ["ref(", self.value, ")"]


@dataclass(frozen=True, slots=True, eq=False)
class TypeCall(CompositeType):
    """A data type applied to its arguments: ``List[Tensor[(), int32]]``."""

    func: Type
    args: tuple[Type, ...]

    def components(self) -> tuple[Type, ...]:
        return (self.func, *self.args)

    def with_components(self, components: tuple[Type, ...]) -> Type:
        return TypeCall(components[0], components[1:])

    def text_segments(self) -> list[TextSegment]:
        return [self.func, "[", *_listed(self.args), "]"] if self.args else [self.func]


def component_types(type_: Type) -> tuple[Type, ...]:
    """The direct component types of ``type_``."""
    return type_.components() if isinstance(type_, CompositeType) else ()


def is_complete(type_: Type) -> bool:
    """Whether ``type_`` contains no incomplete type."""
    if isinstance(type_, CompositeType):
        return type_.complete
    return not isinstance(type_, IncompleteType)


def rewrite_type(root: Type, replace: Callable[[Type], Type | None]) -> Type:
    """``root`` with component types replaced by the results of ``replace``.

    Where it returns ``None``, the type is kept and its components are visited. Shared components
    are rewritten once, and unchanged ones keep their identity.
    """
    done: dict[int, Type] = {}
    stack = [root]
    while stack:
        current = stack[-1]
        if id(current) in done:
            stack.pop()
            continue
        replaced = replace(current)
        if replaced is not None or not isinstance(current, CompositeType):
            done[id(current)] = current if replaced is None else replaced
            continue
        components = current.components()
        waiting = [c for c in components if id(c) not in done]
        if waiting:
            stack.extend(waiting)
            continue
        new = tuple(done[id(c)] for c in components)
        same = all(a is b for a, b in zip(components, new, strict=True))
        done[id(current)] = current if same else current.with_components(new)
    return done[id(root)]


def is_static(type_: Type) -> bool:
    """Whether ``type_`` is a tensor, or nested tuples of tensors, with static shapes."""
    if isinstance(type_, TensorType):
        return all(isinstance(d, int) for d in type_.shape)
    return isinstance(type_, TupleType) and type_.static


def is_flat(type_: Type | None) -> bool:
    """Whether the type is a tensor or a (nested) tuple of tensors."""
    pending: list[Type | None] = [type_]
    while pending:
        current = pending.pop()
        if isinstance(current, TupleType):
            pending.extend(current.fields)
        elif not isinstance(current, TensorType):
            return False
    return True


def holds_float(type_: Type) -> bool:
    """Whether ``type_`` is a tensor of floating point, or a tuple that contains one."""
    if isinstance(type_, TensorType):
        return type_.dtype.is_float
    return isinstance(type_, TupleType) and type_.holds_float


def has_negative_size(type_: Type) -> bool:
    """Whether ``type_`` is a tensor with a size below 0, or a tuple that contains one."""
    pending = [type_]
    while pending:
        current = pending.pop()
        if isinstance(current, TupleType):
            pending.extend(current.fields)
        elif isinstance(current, TensorType) and any(
                isinstance(size, int) and size < 0 for size in current.shape):
            return True
    return False


def has_any(dims: Sequence[Dim]) -> bool:
    """Whether one of the dimensions is known only at run time."""
    return any(isinstance(d, AnyDim) for d in dims)
