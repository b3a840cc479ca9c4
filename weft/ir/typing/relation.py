"""The interface of type relations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from weft.ir.attrs import Attrs
from weft.ir.dtype import DType
from weft.ir.shape import ANY, Dim, dims_equal, may_be_equal
from weft.ir.types import TensorType, Type
from weft.support.errors import InternalError

A = TypeVar("A", bound=Attrs)


class RelationContext(Protocol):
    """One call under inference, as its operator's relation sees it.

    A relation reads the known types, states what follows from them, and returns True when it is
    done. It returns False while an argument that it needs is unknown; the solver calls it again
    when that argument changes. Statements unify, so types may flow from output to input.
    Each method ``expect_..`` checks one fact, and fails if it does not hold.
    """

    @property
    def op_name(self) -> str: ...

    @property
    def attrs(self) -> Attrs: ...

    @property
    def args(self) -> tuple[Type, ...]:
        """Argument types as far as known (``IncompleteType`` where not)."""
        ...

    @property
    def out(self) -> Type:
        """The result type as far as known."""
        ...

    def tensor(self, index: int) -> TensorType | None:
        """Argument ``index`` as a tensor type; ``None`` while unknown; fails on another kind."""
        ...

    def tensors(self, index: int) -> tuple[TensorType, ...] | None:
        """Argument ``index`` as a tuple of tensor types; ``None`` while any is unknown."""
        ...

    def output(self, type_: Type) -> None:
        """State that the result has this type."""
        ...

    def unify_arg(self, index: int, type_: Type) -> None:
        """State that argument ``index`` has this type."""
        ...

    def fail(self, message: str, *, arg: int | None = None, axis: int | None = None,
             expected: object = None, got: object = None, help: str | None = None) -> Any:
        """Record the error and end this relation (always raises)."""
        ...

    def attrs_as(self, kind: type[A]) -> A:
        """The attributes, as the record type that the operator declares."""
        if not isinstance(self.attrs, kind):
            raise InternalError(f"{self.op_name} has attributes of another operator",
                                expected=kind.__name__, got=type(self.attrs).__name__)
        return self.attrs

    def tensors_known(self, count: int) -> list[TensorType] | None:
        """The first ``count`` arguments as tensor types, ``None`` while one of them is unknown."""
        found = [self.tensor(i) for i in range(count)]
        known = [t for t in found if t is not None]
        return known if len(known) == count else None

    def expect_rank(self, arg: int, type_: TensorType, *ranks: int) -> None:
        if type_.ndim not in ranks:
            self.fail("wrong number of dimensions", arg=arg, got=f"{type_} (rank {type_.ndim})",
                      expected=f"rank {' or '.join(map(str, ranks))}")

    def expect_min_rank(self, arg: int, type_: TensorType, rank: int) -> None:
        if type_.ndim < rank:
            self.fail("too few dimensions", arg=arg, expected=f"rank {rank} or more",
                      got=f"{type_} (rank {type_.ndim})")

    def expect_same_dtype(self, arg: int, type_: TensorType, dtype: DType) -> None:
        if type_.dtype != dtype:
            self.fail("the arguments have different dtypes", arg=arg, expected=dtype,
                      got=type_.dtype, help="convert one of them with cast(x, dtype=...)")

    def expect_factor(self, right: TensorType, left: TensorType, out_dtype: DType | None) -> None:
        """Check the dtype of the right operand of a contraction: that of the left one; signed and
        unsigned bytes may be mixed if ``out_dtype`` is wider.
        """
        bytes_ = all(t.dtype.is_int and t.dtype.bits == 8 for t in (left, right))
        if not (bytes_ and out_dtype is not None and out_dtype.bits > 8):
            self.expect_same_dtype(1, right, left.dtype)

    def expect_float(self, arg: int, type_: TensorType) -> None:
        if not type_.dtype.is_float:
            self.fail("defined for floating point only", arg=arg, expected="a float dtype",
                      got=type_.dtype, help='convert the argument with cast(x, dtype="float32")')

    def expect_int(self, arg: int, type_: TensorType) -> None:
        if not type_.dtype.is_int:
            self.fail("defined for integers only", arg=arg, expected="an integer dtype",
                      got=type_.dtype)

    def expect_bool(self, arg: int, type_: TensorType) -> None:
        if not type_.dtype.is_bool:
            self.fail("defined for booleans only", arg=arg, expected="bool", got=type_.dtype,
                      help="compare with zero first, as in not_equal(x, 0)")

    def expect_number(self, arg: int, type_: TensorType) -> None:
        if type_.dtype.is_bool:
            self.fail("not defined for booleans", arg=arg, expected="a float or integer dtype",
                      got=type_.dtype)

    def expect_dim(self, arg: int, axis: int, got: Dim, expected: Dim, message: str, *,
                   why: str = "", help: str | None = None) -> Dim:
        """Fail unless the dimensions are equal, or one is unknown; return the better known."""
        if not may_be_equal(got, expected):
            self.fail(message, arg=arg, axis=axis, expected=f"{expected}{why}", got=got,
                      help=help or symbols_help(got, expected))
        return expected if got is ANY else got


Relation: TypeAlias = Callable[[RelationContext], bool]
AxesOf: TypeAlias = Callable[[Attrs], Sequence[int] | None]


def symbols_help(a: Dim, b: Dim) -> str | None:
    """What to do about two dimensions that only some sizes make equal."""
    if dims_equal(a, b) is False:
        return None
    return f"if {a} and {b} are always equal, give both the same size or symbol"
