"""What a converter sees: one ONNX node with typed inputs, and the means to build expressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np

from weft.frontend.onnx.attributes import Attributes
from weft.frontend.onnx.shape_value import ShapeValue
from weft.frontend.typed import tensor_type, typed
from weft.ir.dtype import DType
from weft.ir.expr import Constant, Expr, Tuple, TupleGetItem
from weft.ir.op import Op
from weft.ir.shape import Dim, Shape
from weft.ir.span import Span
from weft.support.errors import InvalidModelError, UnsupportedModelError


@dataclass(frozen=True)
class Absent:
    """An optional value that is not there."""


ABSENT = Absent()
# A tuple of tensors stands for a sequence.
Value: TypeAlias = "Expr | ShapeValue | Absent"


class Body(Protocol):
    """A graph inside a node: what a branch or a loop computes."""

    @property
    def input_count(self) -> int: ...

    @property
    def size(self) -> int:
        """The number of its nodes."""

    def convert(self, inputs: Sequence[Value]) -> list[Value]:
        """Its outputs for these inputs; each call builds new expressions."""


@dataclass(frozen=True)
class Node:
    """``inputs`` holds ``None`` for optional inputs that are left out.

    ``output_count`` counts the outputs up to the last one that has a name; ``outputs_read`` only
    up to the last one that anything reads. ``bodies`` are the graphs among the attributes,
    ``known`` the values of the graph so far.
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

    def has_input(self, index: int) -> bool:
        return index < len(self.inputs) and self.inputs[index] is not None

    def input(self, index: int) -> Expr:
        """Input ``index`` as an expression; raises where it is missing."""
        if not self.has_input(index):
            raise InvalidModelError(f"{self.op}: input {index} is missing", where=self.span)
        value = self.inputs[index]
        if isinstance(value, Absent):
            raise self.fail(f"input {index} is an optional value without an element")
        if not isinstance(value, Expr):
            raise UnsupportedModelError(
                f"{self.op} computes with a shape that is only known at run time",
                where=self.span,
                help='fix the sizes at compile time: inputs={"x": (1, 3, 224, 224)}',
            )
        return value

    def all_inputs(self) -> list[Expr]:
        """The inputs of a variadic operator: at least one, and none left out."""
        return [self.input(i) for i in range(max(1, len(self.inputs)))]

    def body(self, name: str) -> Body:
        """The graph that is attribute ``name``."""
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
        """Input ``index``, which weft needs to know at compile time."""
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
        """A constant one-dimensional (or scalar) integer input."""
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
        """A constant integer input of one element."""
        values = self.ints(index, name)
        if len(values) != 1:
            raise self.fail(f"input {name!r} is not one number", got=str(values))
        return values[0]

    def optional_ints(self, index: int, name: str) -> tuple[int, ...] | None:
        return self.ints(index, name) if self.has_input(index) else None

    def dims(self, index: int, name: str) -> tuple[Dim, ...]:
        """An input that holds a shape: integers, and symbolic dimensions of other tensors."""
        value = self.inputs[index] if self.has_input(index) else None
        return value.flat() if isinstance(value, ShapeValue) else self.ints(index, name)

    def axis(self, axis: int, rank: int) -> int:
        """``axis`` counted from the front; raises where it is out of range."""
        if not -rank <= axis < rank:
            raise InvalidModelError(
                f"the axis of {self.op} is out of range",
                where=self.span,
                expected=f"{-rank} to {rank - 1} for a tensor of rank {rank}"
                if rank
                else "no scalar",
                got=str(axis),
            )
        return axis + rank if axis < 0 else axis

    def call(self, op: Op, *args: Any, **attrs: Any) -> Expr:
        """``op(*args, **attrs)`` with this node's span, typed, and folded where it is small."""
        return typed(op(*args, span=self.span, **attrs))

    def tuple_call(self, op: Op, parts: list[Expr], **attrs: Any) -> Expr:
        """As ``call``, for operators that take one tuple of tensors."""
        return self.call(op, Tuple(tuple(parts), span=self.span), **attrs)

    def field(self, value: Expr, index: int) -> Expr:
        return typed(TupleGetItem(value, index, span=self.span))

    def constant(self, value: Any, dtype: DType | str) -> Expr:
        return Constant(np.asarray(value, DType.of(dtype).numpy), span=self.span)

    def scalar_like(self, value: float, other: Expr) -> Expr:
        """A constant of rank 0 with the dtype of ``other``."""
        return self.constant(value, tensor_type(other).dtype)

    def fail(self, what: str, **details: Any) -> InvalidModelError:
        """The error to raise where this node contradicts itself."""
        return InvalidModelError(f"{self.op}: {what}", where=self.span, **details)


def items_of(sequence: Expr) -> list[Expr]:
    """The tensors of a sequence."""
    if isinstance(sequence, Tuple):
        return list(sequence.fields)
    fields = sequence.checked_type.fields  # type: ignore[union-attr]
    return [typed(TupleGetItem(sequence, i, span=sequence.span)) for i in range(len(fields))]


def constant_value(expr: Expr) -> np.ndarray | None:
    """The array of a constant; ``None`` for anything else."""
    return expr.data if isinstance(expr, Constant) else None
