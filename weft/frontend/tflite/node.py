"""The argument of converters: an operator with its operands, results and options."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from weft import op
from weft.frontend.common.node import NodeBase
from weft.frontend.common.typed import tensor_type, typed
from weft.frontend.onnx.shape_value import ShapeValue, size_data
from weft.frontend.tflite.model import Quantization, Tensor
from weft.frontend.tflite.state import Variables
from weft.ir.dtype import DType
from weft.ir.expr import Constant, Expr
from weft.ir.shape import AnyDim
from weft.ir.span import Span
from weft.support.dataclass import dataclass

# A tensor as an expression, or sizes known at import, some of them symbolic.
Value: TypeAlias = "Expr | ShapeValue"
# The results of a subgraph for its inputs.
Body: TypeAlias = "Callable[[Sequence[Value]], list[Value]]"
_FLOAT = DType.of("float32")


class Operand:
    """A tensor: the value that is stored, and the real one that quantized integers stand for."""

    def __init__(self, value: Value, info: Tensor, span: Span) -> None:
        self.value, self.info, self.span = value, info, span

    @functools.cached_property
    def real(self) -> Expr:
        """The dequantized value; that of other tensors as it is, sizes as data."""
        if isinstance(self.value, ShapeValue):
            return size_data(self.value, self.span)
        if self.info.quantization is None:
            return self.value
        return dequantized(self.value, self.info.quantization, self.span)


def dequantized(stored: Expr, by: Quantization, span: Span) -> Expr:
    """The real numbers that ``stored`` integers stand for, as float32."""
    if tensor_type(stored).dtype == DType.of("int64"):
        if not isinstance(stored, Constant):
            stored = typed(op.cast(stored, dtype="int32", span=span))
        else:  # biases of 16-bit models: wider than the operator takes
            return Constant((stored.data * along(by.scale.astype(np.float64), by.axis,
                                                 stored.data.ndim)).astype(np.float32), span=span)
    return typed(op.qnn.dequantize(stored, *parameters(by, span), axis=axis_of(by), span=span))


def quantized(real: Expr, info: Tensor, span: Span, rounding: str = "even") -> Expr:
    """The integers that stand for ``real`` in a tensor of the model."""
    by = info.quantization
    assert by is not None
    return typed(op.qnn.quantize(real, *parameters(by, span), axis=axis_of(by),
                                 out_dtype=info.dtype, rounding=rounding, span=span))


def parameters(by: Quantization, span: Span) -> tuple[Constant, Constant]:
    """The scale and the zero point as constants."""
    shape = () if by.scale.size == 1 else by.scale.shape
    return (Constant(by.scale.reshape(shape), span=span),
            Constant(by.zero.reshape(shape), span=span))


def axis_of(by: Quantization) -> int:
    return -1 if by.scale.size == 1 else by.axis


def along(values: np.ndarray, axis: int, rank: int) -> np.ndarray:
    """A vector of parameters, shaped to broadcast with a tensor."""
    return values.reshape(()) if values.size == 1 else values.reshape(
        -1, *(1,) * (rank - 1 - axis))


@dataclass(frozen=True)
class Node(NodeBase):
    """An operator to convert; ``results`` are the tensors that it makes."""

    op: str
    span: Span
    operands: tuple[Operand | None, ...]
    results: tuple[Tensor, ...]
    options: Mapping[str, Any] | None
    custom: bytes
    body: Callable[[int], Body]
    variables: Variables

    def has(self, index: int) -> bool:
        """Whether an optional operand is given."""
        return index < len(self.operands) and self.operands[index] is not None

    def operand(self, index: int) -> Operand:
        found = self.operands[index] if index < len(self.operands) else None
        if found is None:
            raise self.fail(f"operand {index} is missing", got=f"{len(self.operands)} operands")
        return found

    def input(self, index: int = 0) -> Expr:
        """An operand as real numbers, dequantized if it is quantized."""
        return self.operand(index).real

    def inputs(self) -> list[Expr]:
        """All operands of an operator that takes any number of them, as real numbers."""
        if not self.operands:
            raise self.fail("no operands")
        return [self.input(index) for index in range(len(self.operands))]

    def stored(self, index: int = 0) -> Expr:
        """An operand as it is stored."""
        value = self.operand(index).value
        return size_data(value, self.span) if isinstance(value, ShapeValue) else value

    def weight(self, index: int, change: Callable[[np.ndarray], np.ndarray], axis: int
               ) -> Expr | None:
        """A constant operand with ``change`` applied to what is stored; ``None`` for others.

        ``axis`` is the axis along which its scales vary afterwards.
        """
        operand = self.operand(index)
        if not isinstance(operand.value, Constant):
            return None
        changed = Constant(np.ascontiguousarray(change(operand.value.data)), span=self.span)
        by = operand.info.quantization
        return changed if by is None else dequantized(
            changed, Quantization(by.scale, by.zero, axis), self.span)

    def shape(self, index: int = 0) -> tuple[Any, ...]:
        """The shape of an operand: integers and symbolic sizes."""
        value = self.operand(index).value
        if isinstance(value, ShapeValue):
            return value.dims.shape
        return tensor_type(value).shape

    def rank(self, index: int = 0) -> int:
        return len(self.shape(index))

    def dtype(self, index: int = 0) -> DType:
        return tensor_type(self.input(index)).dtype

    def result_dtype(self, index: int = 0) -> DType:
        """The dtype of a result, that of its real numbers if it is quantized."""
        if index >= len(self.results):
            raise self.fail("too few results", got=str(len(self.results)))
        info = self.results[index]
        if info.dtype is None:
            raise self.unsupported("a result of a type that weft lacks", got=info.type)
        return _FLOAT if info.quantization is not None else info.dtype

    def fixed(self, sizes: Sequence[Any], what: str) -> tuple[int, ...]:
        """``sizes`` as integers; ``UnsupportedModelError`` for symbolic ones."""
        if not all(isinstance(d, int) for d in sizes):
            raise self.unsupported(f"{what} needs fixed sizes", got=str(tuple(sizes)),
                                   help='give them: inputs={"x": (1, 224, 224, 3)}')
        return tuple(int(d) for d in sizes)

    def option(self, name: str, default: Any = 0) -> Any:
        """A field of the options by the name of its getter; ``default`` without options."""
        if self.options is None:
            return default
        if name not in self.options:
            raise self.fail(f"the options of another operator: {name} is missing",
                            got=", ".join(self.options))
        return self.options[name]

    def assign(self, index: int, real: Expr) -> None:
        """Make ``real`` the next value of an operand that persists between runs."""
        info, name = self.operand(index).info, self.variables.name_of(self, self.stored(index))
        value = real if info.quantization is None else quantized(real, info, self.span)
        self.variables.assign(self, name, value)

    def array(self, index: int, what: str) -> np.ndarray:
        """The value of an operand that is known; ``UnsupportedModelError`` for others."""
        value = self.operand(index).value
        if not isinstance(value, Constant):
            raise self.unsupported(f"{what} (operand {index}) is computed when the model runs",
                                   expected="a constant, or a value computed from shapes")
        return value.data

    def ints(self, index: int, what: str) -> tuple[int, ...]:
        found = self.array(index, what)
        if found.dtype.kind not in "iu":
            raise self.fail(f"{what} (operand {index}) is not integers", got=str(found.dtype))
        return tuple(int(v) for v in found.reshape(-1))

    def integer(self, index: int, what: str) -> int:
        found = self.ints(index, what)
        if len(found) != 1:
            raise self.fail(f"{what} (operand {index}) is not one number", got=str(found))
        return found[0]

    def is_known(self, index: int) -> bool:
        """Whether an operand is a constant, or sizes."""
        return isinstance(self.operand(index).value, (Constant, ShapeValue))

    def dims(self, index: int, what: str) -> tuple[Any, ...]:
        """The value of an operand as sizes, which may be symbolic."""
        value = self.operand(index).value
        if isinstance(value, ShapeValue):
            items = value.flat()
            if any(isinstance(d, AnyDim) for d in items):
                raise self.unsupported(f"{what} is data-dependent")
            return items
        return self.ints(index, what)

    def cast(self, x: Expr, dtype: DType | str) -> Expr:
        """``x`` in another dtype; itself if it has it."""
        return x if tensor_type(x).dtype == DType.of(dtype) else self.call(
            op.cast, x, dtype=DType.of(dtype))

    def fields(self, value: Expr, count: int) -> tuple[Expr, ...]:
        return tuple(self.field(value, index) for index in range(count))


def known_options(node: Node, names: Mapping[int, str], value: int, what: str) -> str:
    """The name of an enumerated option; ``InvalidModelError`` for an unknown number."""
    if value not in names:
        raise node.fail(f"unknown {what}", got=str(value), expected=", ".join(names.values()))
    return names[value]
