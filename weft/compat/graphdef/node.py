"""The argument of a converter: a node with typed operands and methods to build expressions."""

from __future__ import annotations

import builtins
import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from weft import ir
from weft.compat.graphdef.definitions import (
    ForeignType,
    FunctionRef,
    NodeDef,
    ShapeAttr,
    attribute_text,
)
from weft.frontend.common.node import NodeBase
from weft.frontend.common.typed import inferred, tensor_type, typed
from weft.support.dataclass import dataclass
from weft.support.errors import WeftError

V = TypeVar("V")
_REQUIRED: Any = object()


class Functions(Protocol):
    """The functions that a node may call."""

    def expand(self, ref: FunctionRef, args: Sequence[ir.Expr]) -> tuple[ir.Expr, ...]:
        """The results of a function for ``args``."""

    def gradient(self, ref: FunctionRef, args: Sequence[ir.Expr]) -> tuple[ir.Expr, ...]:
        """The gradient of each argument of a function; ``args`` end with those of its results."""

    def unchanged(self, ref: FunctionRef, args: Sequence[ir.Expr]) -> frozenset[int]:
        """The positions of the arguments that the function returns unchanged."""


@dataclass(frozen=True)
class Node(NodeBase):
    """A node to convert. ``inputs`` are typed; ``values`` holds the small operands that are known.

    With ``folds``, calls of constants become constants at once.
    """

    proto: NodeDef
    span: ir.Span
    inputs: tuple[ir.Expr, ...]
    values: tuple[np.ndarray | None, ...]
    functions: Functions
    folds: bool = False

    @property
    def op(self) -> str:
        return self.proto.op

    def input(self, index: int) -> ir.Expr:
        if index >= len(self.inputs):
            raise self.fail(f"operand {index} is missing", got=f"{len(self.inputs)} operands")
        return self.inputs[index]

    def type(self, index: int = 0) -> ir.TensorType:
        return tensor_type(self.input(index))

    def shape(self, index: int = 0) -> ir.Shape:
        return self.type(index).shape

    def rank(self, index: int = 0) -> int:
        return self.type(index).ndim

    def array(self, index: int, what: str) -> np.ndarray:
        """The value of an operand; ``UnsupportedModelError`` if only run time determines it."""
        self.input(index)
        value = self.values[index]
        if value is None or value.dtype == object:
            raise self.unsupported(f"{what} (operand {index}) must be known at compile time",
                                   got=f"a computed {self.type(index)}",
                                   help="feed a constant, or fix the sizes of the inputs")
        return value

    def ints(self, index: int, what: str) -> tuple[int, ...]:
        """The value of an operand as whole numbers, in one dimension."""
        value = self.array(index, what)
        if value.dtype.kind not in "iu":
            raise self.fail(f"{what} (operand {index}) must be integers", got=str(value.dtype))
        return tuple(int(v) for v in value.reshape(-1))

    def dims(self, index: int, what: str) -> tuple[ir.KnownDim, ...]:
        """The value of an operand as sizes, which may be symbolic."""
        value = self.values[index] if index < len(self.values) else None
        if value is None or value.dtype != object:
            return self.ints(index, what)
        return tuple(v if isinstance(v, ir.SymDim) else int(v) for v in value.reshape(-1))

    def integer(self, index: int, what: str) -> int:
        found = self.ints(index, what)
        if len(found) != 1:
            raise self.fail(f"{what} (operand {index}) must be one number", got=str(found))
        return found[0]

    def axis(self, axis: int, rank: int | None = None) -> int:
        """As in the base; ``rank`` is that of the first operand by default."""
        return super().axis(axis, self.rank() if rank is None else rank)

    def attr(self, name: str, kind: builtins.type[V], default: Any = _REQUIRED) -> V:
        """The attribute ``name``, of Python type ``kind``."""
        value = self.proto.attrs.get(name, default)
        if value is _REQUIRED:
            raise self.fail(f"attribute {name!r} is missing")
        if isinstance(value, bytes) and kind is str:
            value = value.decode("utf-8", "replace")
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        fits = isinstance(value, kind) and (kind is not int or not isinstance(value, bool))
        if not fits and value is not default:
            raise self.fail(f"attribute {name!r} has the wrong type",
                            got=attribute_text(value), expected=kind.__name__)
        return value  # type: ignore[no-any-return]

    def sizes(self, name: str, default: Any = _REQUIRED) -> tuple[int, ...]:
        """The attribute ``name``, a list of integers."""
        value = tuple(self.attr(name, tuple, default))
        if not all(isinstance(v, int) for v in value):
            raise self.fail(f"attribute {name!r} is no list of integers",
                            got=attribute_text(value))
        return value

    def dtype(self, name: str) -> ir.DType:
        """The attribute ``name``, an element type that weft has."""
        value = self.proto.attrs.get(name)
        if isinstance(value, ForeignType):
            raise self.unsupported(f"weft has no element type {value}")
        return self.attr(name, ir.DType)

    def function(self, name: str) -> FunctionRef:
        return self.attr(name, FunctionRef)

    def shape_attr(self, name: str) -> tuple[int | None, ...] | None:
        value = self.attr(name, ShapeAttr, ShapeAttr(None))
        return value.dims

    def call(self, op: ir.Op, *args: Any, **attrs: Any) -> ir.Expr:
        """The typed call of a weft operator; arrays and numbers become constants."""
        try:
            call = op(*args, span=self.span, **attrs)
            return self.typed(call)
        except WeftError as error:
            raise error.at(str(self.span)) from None

    def typed(self, expr: ir.Call | ir.TupleGetItem) -> ir.Expr:
        return typed(expr) if self.folds or isinstance(expr, ir.TupleGetItem) else inferred(expr)

    def field(self, value: ir.Expr, index: int) -> ir.Expr:
        """One tensor of a tuple."""
        if isinstance(value, ir.Tuple):
            return value.fields[index]
        return self.typed(ir.TupleGetItem(value, index, span=self.span))

    def fields(self, value: ir.Expr, count: int) -> tuple[ir.Expr, ...]:
        return tuple(self.field(value, i) for i in range(count))

    def constant(self, value: Any, dtype: ir.DType | str = "int32") -> ir.Constant:
        return super().constant(value, dtype)


def static_shape(node: Node, shape: ir.Shape, what: str) -> tuple[int, ...]:
    """``shape`` as integers; ``UnsupportedModelError`` for a symbolic size."""
    if not all(isinstance(d, int) for d in shape):
        raise node.unsupported(f"{what} needs fixed sizes", got=str(shape),
                               help='give them: inputs={"x": (1, 224, 224, 3)}')
    return tuple(int(d) for d in shape)  # type: ignore[arg-type]


def element_count(shape: Sequence[ir.Dim]) -> int | None:
    """The number of elements, or ``None`` for a symbolic size."""
    known = [d for d in shape if isinstance(d, int)]
    return math.prod(known) if len(known) == len(shape) else None


def attrs_without_private(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes that an operator declares: those without a leading underscore."""
    return {name: value for name, value in attrs.items() if not name.startswith("_")}
