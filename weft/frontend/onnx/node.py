"""The argument of a converter: an ONNX node with typed inputs and methods to build expressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeAlias

import numpy as np

from weft.frontend.common.node import NodeBase
from weft.frontend.common.random_keys import RandomKeys
from weft.frontend.common.typed import tensor_type, typed
from weft.frontend.onnx.attributes import Attributes
from weft.frontend.onnx.shape_value import ShapeValue
from weft.frontend.onnx.size_data import size_data
from weft.ir.dtype import DType
from weft.ir.expr import Constant, Expr, Tuple, TupleGetItem
from weft.ir.shape import Dim, Shape
from weft.ir.span import Span
from weft.support.dataclass import dataclass
from weft.support.errors import InvalidModelError, UnsupportedModelError


@dataclass(frozen=True)
class Absent:
    """An optional value without an element."""


ABSENT = Absent()
# An expression is a tensor, or a tuple of tensors for a sequence.
Value: TypeAlias = "Expr | ShapeValue | Absent"


class Body(Protocol):
    """A subgraph of a node: the body of a branch or a loop."""

    @property
    def input_count(self) -> int: ...

    @property
    def size(self) -> int:
        """The number of nodes, including nested subgraphs."""

    def convert(self, inputs: Sequence[Value]) -> list[Value]:
        """Return the outputs for these inputs; each call builds new expressions."""


@dataclass(frozen=True)
class Node(NodeBase):
    """A node to convert; ``inputs`` holds ``None`` for omitted optional inputs.

    ``output_count`` is the number of outputs up to the last named one, ``outputs_read`` up to the
    last used one. ``bodies`` holds the subgraphs by attribute name, ``known`` the values of the
    graph that are converted so far. ``keys`` is ``None`` in the body of a loop or branch.
    ``declared`` are the sizes that the model declares for each output, where it declares them.
    """

    op: str
    span: Span
    inputs: tuple[Value | None, ...]
    attrs: Attributes
    output_count: int
    outputs_read: int
    opset: int
    folder: Path | None
    bodies: Mapping[str, Body]
    known: Mapping[str, Value]
    keys: RandomKeys | None
    declared: tuple[tuple[Dim | None, ...] | None, ...] = ()

    def has_input(self, index: int) -> bool:
        return index < len(self.inputs) and self.inputs[index] is not None

    def input(self, index: int) -> Expr:
        """Return input ``index``, sizes as data; ``InvalidModelError`` if it is missing."""
        if not self.has_input(index):
            raise InvalidModelError(f"{self.op}: input {index} is missing", where=self.span)
        value = self.inputs[index]
        if isinstance(value, ShapeValue):
            return size_data(value, self.span)
        if not isinstance(value, Expr):
            raise self.fail(f"input {index} is an optional value without an element")
        return value

    def all_inputs(self) -> list[Expr]:
        """Return the inputs of a variadic operator; at least one, and none may be omitted."""
        return [self.input(i) for i in range(max(1, len(self.inputs)))]

    def body(self, name: str) -> Body:
        """Return the subgraph in attribute ``name``."""
        if name not in self.bodies:
            raise self.fail(f"attribute {name!r} is missing")
        return self.bodies[name]

    def shape(self, index: int = 0) -> Shape:
        return tensor_type(self.input(index)).shape

    def rank(self, index: int = 0) -> int:
        return len(self.shape(index))

    def dtype(self, index: int = 0) -> DType:
        return tensor_type(self.input(index)).dtype

    def array(self, index: int, name: str) -> np.ndarray:
        """Return the array of a constant input; raises ``UnsupportedModelError`` for others."""
        value = self.inputs[index] if self.has_input(index) else None
        if isinstance(value, Constant):
            return value.data
        if value is None:
            raise InvalidModelError(f"{self.op}: input {name!r} is missing", where=self.span)
        raise UnsupportedModelError(
            f"input {name!r} of {self.op} is computed at run time",
            where=self.span,
            expected="a constant, or a value computed from constants and shapes",
            help="fold constants before exporting, or fix the input shapes with inputs=",
        )

    def ints(self, index: int, name: str) -> tuple[int, ...]:
        """Return a constant integer input of rank 0 or 1 as a tuple."""
        array = self.array(index, name)
        if array.dtype.kind not in "iu" or array.ndim > 1:
            raise InvalidModelError(
                f"input {name!r} of {self.op} has the wrong type",
                where=self.span,
                expected="a vector of integers",
                got=f"shape {array.shape}, {array.dtype}",
            )
        return tuple(int(v) for v in array.reshape(-1))

    def integer(self, index: int, name: str) -> int:
        """Return the value of a constant integer input with one element."""
        values = self.ints(index, name)
        if len(values) != 1:
            raise self.fail(f"input {name!r} must have exactly one element", got=str(values))
        return values[0]

    def optional_ints(self, index: int, name: str) -> tuple[int, ...] | None:
        return self.ints(index, name) if self.has_input(index) else None

    def dims(self, index: int, name: str) -> tuple[Dim, ...]:
        """Return an input that holds a shape, as integers and symbolic dimensions."""
        value = self.inputs[index] if self.has_input(index) else None
        if not isinstance(value, ShapeValue):
            return self.ints(index, name)
        try:
            return value.flat()
        except TypeError:
            raise self.fail(f"input {name!r} holds numbers that are not sizes") from None

    def dim(self, index: int, name: str) -> Dim:
        """Return an input that holds one size."""
        sizes = self.dims(index, name)
        if len(sizes) != 1:
            raise self.fail(f"input {name!r} must have exactly one element", got=str(sizes))
        return sizes[0]

    def optional_dims(self, index: int, name: str) -> tuple[Dim, ...] | None:
        return self.dims(index, name) if self.has_input(index) else None

    def tensor(self, value: Value) -> Expr:
        """Return a converted value as an expression, sizes as data."""
        if isinstance(value, ShapeValue):
            return size_data(value, self.span)
        if not isinstance(value, Expr):
            raise self.fail("an optional value without an element is used as a tensor")
        return value

    def size(self, dim: Dim, dtype: DType | str = "int64") -> Expr:
        """Return a dimension as a scalar tensor, which is a constant if the dimension is fixed."""
        if isinstance(dim, int):
            return self.constant(dim, dtype)
        element = np.empty((), object)
        element[()] = dim
        return size_data(ShapeValue(element, DType.of(dtype)), self.span)


def items_of(sequence: Expr) -> list[Expr]:
    """Return the tensors of a sequence."""
    if isinstance(sequence, Tuple):
        return list(sequence.fields)
    fields = sequence.checked_type.fields  # type: ignore[union-attr]
    return [typed(TupleGetItem(sequence, i, span=sequence.span)) for i in range(len(fields))]


def constant_value(expr: Expr) -> np.ndarray | None:
    """Return the array of a constant, else ``None``."""
    return expr.data if isinstance(expr, Constant) else None
