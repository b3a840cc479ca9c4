"""Unification of types, and relations that are retried as their inputs become known.

Incomplete types are bound in a substitution table in union-find fashion. A relation that is not
done waits for the incomplete types that it mentions; binding one of them puts it back on the
worklist, so a chain of n calls costs n steps in whichever direction types flow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from weft.ir.shape import AnyDim, Dim
from weft.ir.types import (
    CompositeType,
    FuncType,
    IncompleteType,
    TensorType,
    TupleType,
    Type,
    TypeVar,
    component_types,
    is_complete,
    rewrite_type,
)
from weft.ir.visitor import Routine, run_routine
from weft.support.dataclass import dataclass
from weft.support.errors import InternalError


@dataclass(frozen=True, slots=True)
class ErrorType(Type):
    """The type of an expression with a reported error; it unifies with every type."""

    def __str__(self) -> str:
        return "_"


ERROR = ErrorType()


class UnifyError(Exception):
    """Two types that do not unify; ``detail`` says where inside they differ."""

    def __init__(self, left: Type, right: Type, detail: str) -> None:
        self.left = left
        self.right = right
        self.detail = detail
        super().__init__(detail)


@dataclass(eq=False, slots=True)
class Deferred:
    """A relation on the worklist: ``attempt`` returns True when it is done."""

    attempt: Callable[[], bool]
    types: tuple[Type, ...]
    done: bool = False
    queued: bool = False


class TypeSolver:
    """A substitution for incomplete types, with a worklist of relations."""

    def __init__(self) -> None:
        self._bound: dict[IncompleteType, Type] = {}
        self._waiting: dict[IncompleteType, list[Deferred]] = {}
        self._ready: deque[Deferred] = deque()
        self._all: list[Deferred] = []
        self._bindings = 0

    # -- knowledge -------------------------------------------------------------------------

    def shallow(self, type_: Type) -> Type:
        """``type_``, or the type that it is bound to so far if incomplete."""
        if not isinstance(type_, IncompleteType):
            return type_
        trail = []
        current: Type = type_
        while isinstance(current, IncompleteType) and current in self._bound:
            trail.append(current)
            current = self._bound[current]
        for hole in trail[:-1]:
            self._bound[hole] = current
        return current

    def resolve(self, type_: Type) -> Type:
        """``type_`` with every bound incomplete type replaced, at any depth."""
        if is_complete(type_):
            return type_
        while True:
            filled = rewrite_type(type_, self._filled)
            # A bound type may contain incomplete types.
            if filled is type_ or is_complete(filled):
                return filled
            type_ = filled

    def _filled(self, type_: Type) -> Type | None:
        if isinstance(type_, IncompleteType):
            return self.shallow(type_)
        return type_ if is_complete(type_) else None

    def holes(self, type_: Type) -> list[IncompleteType]:
        """The unbound incomplete types in ``type_``."""
        found: dict[IncompleteType, None] = {}
        pending = [type_]
        seen: set[int] = set()
        while pending:
            current = self.shallow(pending.pop())
            if isinstance(current, IncompleteType):
                found[current] = None
            elif not is_complete(current) and id(current) not in seen:
                seen.add(id(current))
                pending.extend(reversed(component_types(current)))
        return list(found)

    def is_error(self, type_: Type) -> bool:
        """Whether ``type_`` is, or is a tuple that contains, an ``ErrorType``."""
        known = self.shallow(type_)
        if isinstance(known, TupleType):
            return any(self.shallow(f) is ERROR for f in known.fields)
        return known is ERROR

    # -- unification -----------------------------------------------------------------------

    def unify(self, left: Type, right: Type) -> Type:
        """Make both types equal and return the result; raises ``UnifyError``.

        A dimension known on one side is known in the result.
        """
        result = self._unify_flat(left, right)
        return run_routine(self._unify_components(left, right)) if result is None else result

    def _unify_flat(self, left: Type, right: Type) -> Type | None:
        """Unify types without components; ``None`` for two composite types of one kind."""
        if left is right:
            return left
        a, b = self.shallow(left), self.shallow(right)
        if a is b or a == b:
            return a
        if isinstance(a, IncompleteType):
            self._bind(a, b, left, right)
            return b
        if isinstance(b, IncompleteType):
            self._bind(b, a, right, left)
            return a
        if isinstance(a, ErrorType) or isinstance(b, ErrorType):
            return self._refined(left, right, ERROR)
        if isinstance(a, TensorType) and isinstance(b, TensorType):
            return self._refined(left, right, unify_tensors(a, b))
        if type(a) is type(b) and isinstance(a, CompositeType):
            return None
        raise UnifyError(self.resolve(a), self.resolve(b), "they are of different kinds")

    def _unify_components(self, left: Type, right: Type) -> Routine[Type]:
        a, b = self.shallow(left), self.shallow(right)
        if not isinstance(a, CompositeType) or not isinstance(b, CompositeType):
            raise InternalError(f"{a} and {b} have no component types to unify")
        self._check_counts(a, b)
        renamed = dict(zip(b.binds(), a.binds(), strict=True))
        components = []
        for x, q in zip(a.components(), b.components(), strict=True):
            y = substitute_type(q, renamed) if renamed else q
            flat = self._unify_flat(x, y)
            components.append((yield self._unify_components(x, y)) if flat is None else flat)
        return self._refined(left, right, a.with_components(tuple(components)))

    def _check_counts(self, a: CompositeType, b: CompositeType) -> None:
        mine, theirs = len(a.components()), len(b.components())
        if mine == theirs and len(a.binds()) == len(b.binds()):
            return
        if isinstance(a, FuncType):
            detail = "the numbers of parameters differ"
        elif isinstance(a, TupleType):
            detail = f"{mine} fields against {theirs}"
        else:
            detail = "they are of different kinds"
        raise UnifyError(self.resolve(a), self.resolve(b), detail)

    def _refined(self, left: Type, right: Type, result: Type) -> Type:
        """``result``, recorded for the incomplete types on either side."""
        self._refine(left, result)
        self._refine(right, result)
        return result

    def _bind(self, hole: IncompleteType, to: Type, left: Type, right: Type) -> None:
        if hole in self.holes(to):
            raise UnifyError(self.resolve(left), self.resolve(right), "the type contains itself")
        self._bound[hole] = to
        self._bindings += 1
        self._wake(hole)

    def _refine(self, type_: Type, result: Type) -> None:
        """Refine the binding of an incomplete type: ``(?, 3)`` met ``(2, 3)``."""
        root = type_
        while isinstance(root, IncompleteType):
            known = self._bound[root]
            if not isinstance(known, IncompleteType):
                self._bound[root] = result
                return
            root = known

    def _wake(self, hole: IncompleteType) -> None:
        for relation in self._waiting.pop(hole, ()):
            if not relation.done and not relation.queued:
                relation.queued = True
                self._ready.append(relation)

    # -- relations -------------------------------------------------------------------------

    def add(self, relation: Deferred) -> None:
        """Try ``relation`` now; keep it for later if it is not done."""
        self._attempt(relation)
        if not relation.done:
            self._all.append(relation)

    def run(self) -> None:
        """Retry relations until nothing changes."""
        while self._ready:
            relation = self._ready.popleft()
            relation.queued = False
            if not relation.done:
                self._attempt(relation)

    def stuck(self) -> list[Deferred]:
        """Relations that are still pending, in program order."""
        return [r for r in self._all if not r.done]

    def _attempt(self, relation: Deferred) -> None:
        while True:
            before = self._bindings
            relation.done = relation.attempt()
            if relation.done:
                return
            if before == self._bindings:
                break  # otherwise it bound a type, and may get further in the next run
        for type_ in relation.types:
            for hole in self.holes(type_):
                self._waiting.setdefault(hole, []).append(relation)


def unify_tensors(a: TensorType, b: TensorType) -> TensorType:
    """The unification of two tensor types; raises ``UnifyError``."""
    if a.dtype != b.dtype:
        raise UnifyError(a, b, f"dtype {a.dtype} against {b.dtype}")
    if a.ndim != b.ndim:
        raise UnifyError(a, b, f"rank {a.ndim} against {b.ndim}")
    dims = []
    for axis, (x, y) in enumerate(zip(a.shape, b.shape, strict=True)):
        dim = unify_dims(x, y)
        if dim is None:
            raise UnifyError(a, b, f"axis {axis}: {x} against {y}")
        dims.append(dim)
    return TensorType(tuple(dims), a.dtype)


def unify_dims(a: Dim, b: Dim) -> Dim | None:
    """The unification of two dimensions; ``None`` if they differ.

    A symbol stands for any size, so ``n`` unifies only with ``n`` and ``?``.
    """
    if isinstance(a, AnyDim):
        return b
    if isinstance(b, AnyDim) or a == b:
        return a
    return None


def join_types(a: Type, b: Type) -> Type | None:
    """The type of a value of type ``a`` or ``b``; ``None`` if no type covers both.

    Unlike in unification, a dimension known on one side only is unknown in the result.
    """
    return run_routine(_join(a, b))


def _join(a: Type, b: Type) -> Routine[Type | None]:
    if a == b:
        return a
    if isinstance(a, TensorType) and isinstance(b, TensorType):
        if a.dtype != b.dtype or a.ndim != b.ndim:
            return None
        joined = [_join_dims(x, y) for x, y in zip(a.shape, b.shape, strict=True)]
        known = tuple(d for d in joined if d is not None)
        return TensorType(known, a.dtype) if len(known) == len(joined) else None
    if isinstance(a, TupleType) and isinstance(b, TupleType) and len(a.fields) == len(b.fields):
        fields: list[Type] = []
        for x, y in zip(a.fields, b.fields, strict=True):
            field = yield _join(x, y)
            if field is None:
                return None
            fields.append(field)
        return TupleType(tuple(fields))
    return None


def _join_dims(a: Dim, b: Dim) -> Dim | None:
    if a == b:
        return a
    if isinstance(a, AnyDim):
        return a
    return b if isinstance(b, AnyDim) else None


def substitute_type(type_: Type, values: dict[TypeVar, Type] | dict[TypeVar, TypeVar]) -> Type:
    """``type_`` with type variables replaced."""
    return rewrite_type(type_, lambda t: values.get(t) if isinstance(t, TypeVar) else None)
