"""Expressions of the functional IR.

Nodes are frozen and compare by identity. Sharing is meaningful: a program is a DAG. ``replace``
makes a changed node without ``checked_type``; inference sets it again, for new nodes only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from numbers import Real
from typing import Any, TypeVar

import numpy as np

from weft.ir.attrs import NO_ATTRS, Attrs
from weft.ir.deferred import Array, Deferred
from weft.ir.dtype import DType
from weft.ir.shape import as_shape
from weft.ir.span import Span
from weft.ir.types import GlobalTypeVar, TensorType, Type, is_complete
from weft.ir.types import TypeVar as IrTypeVar
from weft.support.dataclass import dataclass, replace
from weft.support.errors import OptionError
from weft.support.markup import text_html

E = TypeVar("E", bound="Expr")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Expr:
    """Base of all expressions. ``checked_type`` is set by inference, ``None`` before it."""

    span: Span | None = None
    checked_type: Type | None = field(default=None, repr=False)

    def replace(self: E, **changes: Any) -> E:
        """A node with changed fields; ``self`` if every field is identical."""
        for name, value in changes.items():
            if getattr(self, name) is not value:
                changes.setdefault("checked_type", None)
                return replace(self, **changes)
        return self

    def with_type(self: E, type_: Type) -> E:
        """The same node with its type set."""
        if self.checked_type == type_:
            return self
        return replace(self, checked_type=type_)

    def __str__(self) -> str:
        return text_of(self)

    def _repr_html_(self) -> str:
        return html_of(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {id(self):#x}>"

    # Python's operators build calls, except ``==``, which compares identity; use ``op.equal``.
    def __add__(self, other: Any) -> Expr:
        return OPERATORS.apply("add", self, other)

    def __radd__(self, other: Any) -> Expr:
        return OPERATORS.apply("add", other, self)

    def __sub__(self, other: Any) -> Expr:
        return OPERATORS.apply("sub", self, other)

    def __rsub__(self, other: Any) -> Expr:
        return OPERATORS.apply("sub", other, self)

    def __mul__(self, other: Any) -> Expr:
        return OPERATORS.apply("mul", self, other)

    def __rmul__(self, other: Any) -> Expr:
        return OPERATORS.apply("mul", other, self)

    def __truediv__(self, other: Any) -> Expr:
        return OPERATORS.apply("truediv", self, other)

    def __rtruediv__(self, other: Any) -> Expr:
        return OPERATORS.apply("truediv", other, self)

    def __floordiv__(self, other: Any) -> Expr:
        return OPERATORS.apply("floordiv", self, other)

    def __mod__(self, other: Any) -> Expr:
        return OPERATORS.apply("mod", self, other)

    def __pow__(self, other: Any) -> Expr:
        return OPERATORS.apply("pow", self, other)

    def __matmul__(self, other: Any) -> Expr:
        return OPERATORS.apply("matmul", self, other)

    def __lt__(self, other: Any) -> Expr:
        return OPERATORS.apply("lt", self, other)

    def __le__(self, other: Any) -> Expr:
        return OPERATORS.apply("le", self, other)

    def __gt__(self, other: Any) -> Expr:
        return OPERATORS.apply("gt", self, other)

    def __ge__(self, other: Any) -> Expr:
        return OPERATORS.apply("ge", self, other)

    def __and__(self, other: Any) -> Expr:
        return OPERATORS.apply("and", self, other)

    def __or__(self, other: Any) -> Expr:
        return OPERATORS.apply("or", self, other)

    def __neg__(self) -> Expr:
        return OPERATORS.apply("neg", self)

    def __invert__(self) -> Expr:
        return OPERATORS.apply("invert", self)

    def __abs__(self) -> Expr:
        return OPERATORS.apply("abs", self)

    def __getitem__(self, index: int) -> Expr:
        return OPERATORS.apply("getitem", self, index)

    def __call__(self, *args: Any) -> Any:
        """A call of this function, variable, global or constructor."""
        return OPERATORS.apply("call", self, *args)

    def __iter__(self) -> Any:
        """The fields of a tuple of known length: ``a, b = op.split(x, ...)``.

        Raises ``TypeError`` for other expressions. (Without this method, ``__getitem__`` would
        make every expression an endless iterable.)
        """
        return OPERATORS.apply("iter", self)

    # Makes NumPy leave ``array + x`` to ``__radd__``.
    __array_ufunc__ = None


class _Operators:
    """The meaning of Python's operators; the builder, a higher layer, installs it."""

    apply: Any = None


OPERATORS = _Operators()


class _Text:
    """The text printer, a higher layer, installs itself here when ``weft.ir`` is imported."""

    render: Any = staticmethod(object.__repr__)


def install_printer(function: Any) -> None:
    _Text.render = staticmethod(function)


def text_of(node: Any) -> str:
    """The text form of an expression or module."""
    return _Text.render(node)


def html_of(node: Any) -> str:
    """The text form for notebooks: types as comments, large constants without their data."""
    return text_html(_Text.render(node, metadata=False, types=True))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Var(Expr):
    """A local variable, identified by its node; the name is for readers.

    A variable with a complete annotation is typed from the start.
    """

    name: str
    annotation: Type | None = None

    def __post_init__(self) -> None:
        annotation = self.annotation
        if self.checked_type is None and annotation is not None and is_complete(annotation):
            object.__setattr__(self, "checked_type", annotation)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class GlobalVar(Expr):
    """A function of the module, by name."""

    name: str


# Constants of at most this size are copied rather than kept as views.
_SMALL_BYTES = 4096


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Constant(Expr):
    """A tensor value; the array is read-only. Small arrays are C-contiguous.

    Large ones may be views, so that passes that transpose or pack weights do not copy them, or
    made from a ``Deferred``: ``data`` then computes the array, and ``content`` does not.
    """

    data: np.ndarray
    deferred: Deferred | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.data, Deferred):
            object.__setattr__(self, "deferred", self.data)
            object.__delattr__(self, "data")
        else:
            self._keep(np.asarray(self.data))
        if self.checked_type is None:
            object.__setattr__(self, "checked_type", self.tensor_type)

    def __getattr__(self, name: str) -> Any:
        """``data``, whose slot is empty as long as it is deferred; any thread may read it."""
        pending = self.deferred if name == "data" else None
        if pending is not None:
            self._keep(np.asarray(pending))
            object.__setattr__(self, "deferred", None)  # in this order: ``content`` reads both
        return object.__getattribute__(self, name)

    def _keep(self, data: np.ndarray) -> None:
        if not data.flags.c_contiguous and data.nbytes <= _SMALL_BYTES:
            data = data.copy(order="C")
        if data.flags.writeable:
            data = data.view()
            data.flags.writeable = False
        object.__setattr__(self, "data", data)

    @property
    def content(self) -> Array:
        """``data``, or what will compute it: for its shape, dtype, size and views."""
        pending = self.deferred
        return self.data if pending is None else pending

    @property
    def tensor_type(self) -> TensorType:
        content = self.content
        return TensorType(tuple(content.shape), DType.of(content.dtype))

    @property
    def is_scalar(self) -> bool:
        return self.content.ndim == 0


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tuple(Expr):
    """Several values as one, of any types."""

    fields: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TupleGetItem(Expr):
    """The value number ``index`` of a tuple, counted from 0."""

    tuple_value: Expr
    index: int


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Call(Expr):
    """``op`` applied to ``args``; ``op`` is an ``Op``, a function, a global or a constructor.

    ``type_args`` are the type arguments that the program gives for a generic callee;
    ``checked_type_args`` are all of them, set by inference like ``checked_type``.
    """

    op: Expr
    args: tuple[Expr, ...]
    attrs: Attrs = NO_ATTRS
    type_args: tuple[Type, ...] = ()
    checked_type_args: tuple[Type, ...] = field(default=(), repr=False)


class _Walked(Expr):  # type: ignore[bad-class-definition] - no data class of its own
    """An expression with room for what a walk over its nodes has found (``visitor.walk_of``)."""

    __slots__ = ("walk",)
    walk: Any


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Function(_Walked):
    """``attrs`` marks functions for passes: ``primitive=True`` becomes one kernel after fusion."""

    params: tuple[Var, ...]
    body: Expr
    ret_type: Type | None = None
    type_params: tuple[IrTypeVar, ...] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Let(Expr):
    """``var`` is in scope in ``body``, and for recursion in a ``value`` that is a function."""

    var: Var
    value: Expr
    body: Expr


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class If(Expr):
    """One of two values, by a boolean tensor without dimensions."""

    cond: Expr
    true_branch: Expr
    false_branch: Expr


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RefCreate(Expr):
    """A new reference, which holds ``value``."""

    value: Expr


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RefRead(Expr):
    """What a reference holds now."""

    ref: Expr


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RefWrite(Expr):
    """Lets a reference hold another value; the result is the empty tuple."""

    ref: Expr
    value: Expr


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Constructor(Expr):
    """A constructor of an algebraic data type; ``tag`` is its index in the definition."""

    name: str
    inputs: tuple[Type, ...]
    belongs_to: GlobalTypeVar
    tag: int


@dataclass(frozen=True, slots=True)
class TypeData:
    """The definition of an algebraic data type."""

    header: GlobalTypeVar
    type_vars: tuple[IrTypeVar, ...]
    constructors: tuple[Constructor, ...]


class Pattern:
    """Base of match patterns."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, eq=False)
class PatternWildcard(Pattern):
    """Matches everything and binds nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class PatternVar(Pattern):
    """Matches everything and binds it to a variable."""

    var: Var


@dataclass(frozen=True, slots=True, eq=False)
class PatternConstructor(Pattern):
    """Matches what ``constructor`` made of values that match ``patterns``."""

    constructor: Constructor
    patterns: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True, eq=False)
class PatternTuple(Pattern):
    """Matches tuples, field by field."""

    patterns: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Clause:
    """A case of a match: the pattern, and the value where it is the first that matches."""

    lhs: Pattern
    rhs: Expr


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Match(Expr):
    """``complete`` asks inference to check that every case is covered."""

    data: Expr
    clauses: tuple[Clause, ...]
    complete: bool = True


def var(name: str, shape: Sequence[object] | None = None, dtype: DType | str = "float32") -> Var:
    """A variable, annotated with a tensor type if ``shape`` is given."""
    annotation = None if shape is None else TensorType(as_shape(shape), DType.of(dtype))
    return Var(name, annotation, span=Span.of_caller())


def const(value: Any, dtype: DType | str | None = None) -> Constant:
    """A constant; Python floats become float32 and ints int32 unless ``dtype`` is given.

    Raises ``OptionError`` for Python numbers outside the range of an integer dtype. Arrays are
    converted by NumPy's rules; floats are rounded, to infinity beyond the largest.
    """
    if isinstance(value, Constant):
        return value
    if not isinstance(value, (np.ndarray, np.generic)):
        _check_fits(value, _default_dtype(value) if dtype is None else DType.of(dtype))
    array = np.asarray(value, None if dtype is None else DType.of(dtype).numpy)
    if array is value and array.flags.writeable:
        array = array.copy()  # the caller may keep writing to it
    if dtype is None and not isinstance(value, (np.ndarray, np.generic)):
        default = {np.dtype("float64"): np.float32, np.dtype("int64"): np.int32}
        array = array.astype(default.get(array.dtype, array.dtype))
    return Constant(array, span=Span.of_caller())


def _default_dtype(value: Any) -> DType:
    return DType.of("float32" if np.asarray(value).dtype.kind == "f" else "int32")


def _check_fits(value: Any, dtype: DType) -> None:
    """Raise ``OptionError`` for Python numbers that ``dtype``, an integer, cannot hold."""
    if not dtype.is_int:
        return
    signed = int(dtype.code == "int")
    low, high = -signed << (dtype.bits - 1), (1 << (dtype.bits - signed)) - 1
    numbers: list[Any] = [n for n in np.asarray(value, object).flat if isinstance(n, Real)]
    for number in numbers:
        if not (low <= number <= high and number == int(number)):
            raise OptionError(f"number out of range of {dtype}", got=repr(number),
                              expected=f"a whole number from {low} to {high}",
                              help='give another dtype, as in const(value, "int64")')
