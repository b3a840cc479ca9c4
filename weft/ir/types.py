"""Types of the functional IR: immutable values with value equality."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from weft.ir.dtype import DType
from weft.ir.shape import AnyDim, Dim, Shape, as_shape
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
        """The shape as integers; raises ``TypeInferenceError`` if a dimension is not fixed."""
        if not all(isinstance(d, int) for d in self.shape):
            raise TypeInferenceError(f"the shape of {self} is not fixed")
        return self.shape  # type: ignore[return-value]

    def __str__(self) -> str:
        dims = ", ".join(map(str, self.shape))
        return f"Tensor[({dims}{',' if self.ndim == 1 else ''}), {self.dtype}]"


@dataclass(frozen=True, slots=True)
class TypeVar(Type):
    """A type parameter of a generic function or data type; ``uid`` tells namesakes apart."""

    name: str
    uid: int = field(default_factory=itertools.count().__next__)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class IncompleteType(Type):
    """A hole that inference fills; ``uid`` is its identity."""

    uid: int = field(default_factory=itertools.count().__next__)

    def __str__(self) -> str:
        return "_"


@dataclass(frozen=True, slots=True)
class GlobalTypeVar(Type):
    """The name of an algebraic data type."""

    name: str

    def __str__(self) -> str:
        return self.name


Piece: TypeAlias = "str | Type"


@dataclass(frozen=True, slots=True, eq=False)
class CompositeType(Type):
    """Base of types made of types.

    Tuples may be nested ten thousand deep, and share their parts: what is asked of every node of
    a program (whether it has holes, its hash) is computed once, from that of the parts, and
    comparison and text keep stacks of their own.
    """

    complete: bool = field(init=False, repr=False)
    hash_value: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        parts = self.parts()
        object.__setattr__(self, "complete", all(map(is_complete, parts)))
        object.__setattr__(self, "hash_value", hash((type(self).__name__, self.binds(), parts)))

    def parts(self) -> tuple[Type, ...]:
        """The types that this one is directly made of."""
        raise InternalError(f"{type(self).__name__} does not say what it is made of")

    def with_parts(self, parts: tuple[Type, ...]) -> Type:
        """The same kind of type, made of ``parts``."""
        raise InternalError(f"{type(self).__name__} cannot be rebuilt from {len(parts)} parts")

    def binds(self) -> tuple[TypeVar, ...]:
        """Type parameters that are in scope in the parts."""
        return ()

    def pieces(self) -> list[Piece]:
        """The text, with types in place of theirs."""
        raise InternalError(f"{type(self).__name__} has no text")

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
        # Hashes differ from process to process.
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
        left, right = x.parts(), y.parts()
        if len(left) != len(right):
            return False
        pending.extend(zip(left, right, strict=True))
    return True


def type_text(root: Type, *, limit: int | None = None) -> str:
    """The text of ``root``; with ``limit``, its beginning, a little longer than that.

    Types share parts and text does not: the text of a type of 60 tuples may have 2**60 parts.
    """
    written: list[str] = []
    length = 0
    stack: list[Piece] = [root]
    while stack and (limit is None or length <= limit):
        piece = stack.pop()
        if isinstance(piece, CompositeType):
            stack.extend(reversed(piece.pieces()))
        else:
            written.append(str(piece))
            length += len(written[-1])
    return "".join(written)


def _listed(types: Sequence[Type]) -> list[Piece]:
    pieces: list[Piece] = []
    for type_ in types:
        pieces += [", ", type_] if pieces else [type_]
    return pieces


@dataclass(frozen=True, slots=True, eq=False)
class TupleType(CompositeType):
    """``static`` and ``holds_float`` are those of the fields: ``is_static``, ``holds_float``."""

    fields: tuple[Type, ...]
    static: bool = field(init=False, repr=False)
    holds_float: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        CompositeType.__post_init__(self)  # super() does not know a class with slots
        object.__setattr__(self, "static", all(map(is_static, self.fields)))
        object.__setattr__(self, "holds_float", any(map(holds_float, self.fields)))

    def parts(self) -> tuple[Type, ...]:
        return self.fields

    def with_parts(self, parts: tuple[Type, ...]) -> Type:
        return TupleType(parts)

    def pieces(self) -> list[Piece]:
        return ["(", *_listed(self.fields), ",)" if len(self.fields) == 1 else ")"]


@dataclass(frozen=True, slots=True, eq=False)
class FuncType(CompositeType):
    arg_types: tuple[Type, ...]
    ret_type: Type
    type_params: tuple[TypeVar, ...] = ()

    def parts(self) -> tuple[Type, ...]:
        return (*self.arg_types, self.ret_type)

    def with_parts(self, parts: tuple[Type, ...]) -> Type:
        return FuncType(parts[:-1], parts[-1], self.type_params)

    def binds(self) -> tuple[TypeVar, ...]:
        return self.type_params

    def pieces(self) -> list[Piece]:
        generics = f"[{', '.join(map(str, self.type_params))}]" if self.type_params else ""
        return [f"fn{generics}(", *_listed(self.arg_types), ") -> ", self.ret_type]


@dataclass(frozen=True, slots=True, eq=False)
class RefType(CompositeType):
    value: Type

    def parts(self) -> tuple[Type, ...]:
        return (self.value,)

    def with_parts(self, parts: tuple[Type, ...]) -> Type:
        return RefType(parts[0])

    def pieces(self) -> list[Piece]:
        return ["ref(", self.value, ")"]


@dataclass(frozen=True, slots=True, eq=False)
class TypeCall(CompositeType):
    """A data type applied to its arguments: ``List[Tensor[(), int32]]``."""

    func: Type
    args: tuple[Type, ...]

    def parts(self) -> tuple[Type, ...]:
        return (self.func, *self.args)

    def with_parts(self, parts: tuple[Type, ...]) -> Type:
        return TypeCall(parts[0], parts[1:])

    def pieces(self) -> list[Piece]:
        return [self.func, "[", *_listed(self.args), "]"] if self.args else [self.func]


def component_types(type_: Type) -> tuple[Type, ...]:
    """The types that ``type_`` is directly made of."""
    return type_.parts() if isinstance(type_, CompositeType) else ()


def is_complete(type_: Type) -> bool:
    """Whether no hole is left anywhere in ``type_``."""
    if isinstance(type_, CompositeType):
        return type_.complete
    return not isinstance(type_, IncompleteType)


def rewrite_type(root: Type, replace: Callable[[Type], Type | None]) -> Type:
    """``root`` with parts replaced by what ``replace`` makes of them.

    Where it returns ``None`` the type is kept, and its parts are looked at. Shared parts are
    rewritten once, and keep their identity where nothing in them changes.
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
        parts = current.parts()
        waiting = [p for p in parts if id(p) not in done]
        if waiting:
            stack.extend(waiting)
            continue
        new = tuple(done[id(p)] for p in parts)
        same = all(a is b for a, b in zip(parts, new, strict=True))
        done[id(current)] = current if same else current.with_parts(new)
    return done[id(root)]


def is_static(type_: Type) -> bool:
    """Whether ``type_`` is a tensor, or tuples of tensors, of which every size is known."""
    if isinstance(type_, TensorType):
        return all(isinstance(d, int) for d in type_.shape)
    return isinstance(type_, TupleType) and type_.static


def holds_float(type_: Type) -> bool:
    """Whether ``type_`` is a tensor of floating point, or a tuple with such in it."""
    if isinstance(type_, TensorType):
        return type_.dtype.is_float
    return isinstance(type_, TupleType) and type_.holds_float


def has_any(dims: Sequence[Dim]) -> bool:
    return any(isinstance(d, AnyDim) for d in dims)
