"""The argument of a converter: an ONNX node with its attributes and typed inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np

from weft.frontend.common.node import NodeBase
from weft.frontend.common.random_keys import RandomKeys
from weft.frontend.common.typed import tensor_type, typed
from weft.frontend.onnx.protos import AttributeProto, NodeProto, TensorProto
from weft.frontend.onnx.shape_value import ShapeValue, size_data
from weft.ir import Constant, Dim, DType, Expr, Shape, Span, Tuple, TupleGetItem
from weft.support.dataclass import dataclass
from weft.support.errors import InvalidModelError, UnsupportedModelError

_FIELDS: dict[int, str] = {
    AttributeProto.INT: "i",
    AttributeProto.INTS: "ints",
    AttributeProto.FLOAT: "f",
    AttributeProto.FLOATS: "floats",
    AttributeProto.STRING: "s",
    AttributeProto.STRINGS: "strings",
    AttributeProto.TENSOR: "t",
}


@dataclass(frozen=True)
class Attributes:
    """The attributes of a node; the getters raise ``InvalidModelError`` for the wrong type."""

    values: Mapping[str, AttributeProto]
    where: object

    @staticmethod
    def of(node: NodeProto, where: object) -> Attributes:
        values: dict[str, AttributeProto] = {}
        for attribute in node.attribute:
            if attribute.name in values:
                raise InvalidModelError(
                    f"attribute {attribute.name!r} of {node.op_type} is given twice", where=where
                )
            values[attribute.name] = attribute
        return Attributes(values, where)

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def integer(self, name: str, default: int) -> int:
        value = self._read(name, AttributeProto.INT)
        return default if value is None else int(value)

    def flag(self, name: str, default: bool = False) -> bool:
        """Read an integer attribute as a bool; values other than 0 and 1 are rejected."""
        value = self.integer(name, int(default))
        if value not in (0, 1):
            raise InvalidModelError(
                f"attribute {name!r} is neither 0 nor 1", where=self.where, got=str(value)
            )
        return bool(value)

    def number(self, name: str, default: float) -> float:
        """Read a float attribute; ``default`` is rounded to float32 as in the ONNX standard."""
        value = self._read(name, AttributeProto.FLOAT)
        return float(np.float32(default)) if value is None else float(value)

    def text(self, name: str, default: str) -> str:
        value = self._read(name, AttributeProto.STRING)
        return default if value is None else self._decoded(name, value)

    def texts(self, name: str) -> tuple[str, ...] | None:
        values = self._read(name, AttributeProto.STRINGS)
        return None if values is None else tuple(self._decoded(name, v) for v in values)

    def _decoded(self, name: str, value: bytes) -> str:
        try:
            return str(value, "utf-8")
        except UnicodeDecodeError:
            raise InvalidModelError(
                f"attribute {name!r} is not UTF-8 text", where=self.where, got=repr(value[:40])
            ) from None

    def integers(self, name: str) -> tuple[int, ...] | None:
        value = self._read(name, AttributeProto.INTS)
        return None if value is None else tuple(int(v) for v in value)

    def numbers(self, name: str) -> tuple[float, ...] | None:
        value = self._read(name, AttributeProto.FLOATS)
        return None if value is None else tuple(float(v) for v in value)

    def tensor(self, name: str) -> TensorProto | None:
        return self._read(name, AttributeProto.TENSOR)

    def one_of(self, name: str, default: str, choices: Sequence[str]) -> str:
        """Read a string attribute that must be one of ``choices``."""
        value = self.text(name, default)
        if value not in choices:
            raise InvalidModelError(
                f"attribute {name!r} has an unknown value",
                where=self.where,
                expected=", ".join(choices),
                got=repr(value),
            )
        return value

    def _read(self, name: str, kind: AttributeProto.AttributeType.ValueType) -> Any:
        attribute = self.values.get(name)
        if attribute is None:
            return None
        if attribute.type != kind or attribute.ref_attr_name:
            raise InvalidModelError(
                f"attribute {name!r} has the wrong type",
                where=self.where,
                expected=AttributeProto.AttributeType.Name(kind),
                got=_type_name(attribute.type),
            )
        return getattr(attribute, _FIELDS[kind])


def _type_name(code: int) -> str:
    names = AttributeProto.AttributeType.DESCRIPTOR.values_by_number
    return names[code].name if code in names else f"number {code}"


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
