"""The argument of converters: an operation with its operands, attributes and regions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from weft import op
from weft.frontend.common.node import NodeBase
from weft.frontend.common.typed import tensor_type
from weft.frontend.onnx.shape_value import ShapeValue
from weft.frontend.stablehlo.syntax import HloType, Literal, Region
from weft.frontend.stablehlo.types import array_of, dtype_of
from weft.ir.dtype import DType
from weft.ir.expr import Constant, Expr
from weft.ir.shape import SymDim
from weft.ir.span import Span
from weft.support.dataclass import dataclass

# A value of a module: an expression, or sizes known at import, some of them symbolic.
Value: TypeAlias = "Expr | ShapeValue"


@dataclass(frozen=True, slots=True)
class Body:
    """A region of an operation; ``convert(*arguments)`` gives what it returns.

    ``size`` counts its operations, those of the functions that it calls included.
    """

    region: Region
    convert: Callable[..., list[Any]]
    size: int
    outer: Mapping[str, Value]


@dataclass(frozen=True)
class Node(NodeBase):
    """An operation to convert; ``types`` are those of its results."""

    op: str
    span: Span
    operands: tuple[Value, ...]
    attributes: Mapping[str, Any]
    operand_types: tuple[HloType, ...]
    types: tuple[HloType, ...]
    bodies: tuple[Body, ...] = ()

    def ints(self, name: str, default: Sequence[int] | None = None) -> tuple[int, ...]:
        """An attribute that is a list of integers, in any of its spellings."""
        value = self.attributes.get(name)
        if isinstance(value, Literal):
            return tuple(int(v) for v in array_of(value).reshape(-1))
        if isinstance(value, list) and all(isinstance(v, (int, bool)) for v in value):
            return tuple(int(v) for v in value)
        if value is None and default is not None:
            return tuple(default)
        raise self.fail(f"the attribute {name} is no list of integers", got=repr(value)[:100])

    def pairs(self, name: str, count: int) -> tuple[tuple[int, int], ...]:
        """An attribute with two integers for each of ``count`` axes; zeros if it is missing."""
        value = self.attributes.get(name)
        if value is None:
            return ((0, 0),) * count
        if isinstance(value, Literal):
            flat = array_of(value).reshape(-1).tolist()
        else:
            flat = [v for pair in value for v in pair]
        if len(flat) != 2 * count:
            raise self.fail(f"{name} has the wrong length", expected=str(2 * count),
                            got=str(len(flat)))
        return tuple(zip(flat[::2], flat[1::2], strict=True))

    def integer(self, name: str, default: int | None = None) -> int:
        value = self.attributes.get(name, default)
        if not isinstance(value, int):
            raise self.fail(f"the attribute {name} is no integer", got=repr(value)[:100])
        return value

    def word(self, name: str, default: str = "") -> str:
        return str(self.attributes.get(name, default))

    def dtype(self, index: int = 0) -> DType:
        """The dtype of a result."""
        if index >= len(self.types):
            raise self.fail("the operation has too few results", got=str(len(self.types)))
        found = dtype_of(self.types[index])
        if found is None:
            raise self.unsupported("a result of a type that weft lacks",
                                   got=str(self.types[index]))
        return found

    def shape(self, index: int = 0) -> tuple[int, ...]:
        """The sizes of a result, which have to be numbers."""
        if index >= len(self.types):
            raise self.fail("the operation has too few results", got=str(len(self.types)))
        sizes = self.types[index].shape
        if None in sizes:
            raise self.unsupported("a size that the text does not say", got=str(self.types[index]))
        return tuple(n for n in sizes if n is not None)

    def number(self, value: float, like: Expr) -> Expr:
        """A scalar with the dtype of ``like``."""
        return self.scalar_like(value, like)

    def cast(self, x: Expr, dtype: DType | str) -> Expr:
        """``x`` in another dtype; itself if it has it."""
        wanted = DType.of(dtype)
        if tensor_type(x).dtype == wanted:
            return x
        if wanted.is_bool:
            return self.call(op.not_equal, x, self.number(0, x))
        return self.call(op.cast, x, dtype=wanted)

    def broadcast(self, x: Expr, shape: Sequence[Any]) -> Expr:
        target = tuple(shape)
        return x if target == tensor_type(x).shape else self.call(op.broadcast_to, x, shape=target)

    def slice(self, x: Expr, starts: Mapping[int, Any], ends: Mapping[int, Any],
              steps: Mapping[int, int] | None = None) -> Expr:
        """``x`` from ``starts`` to ``ends`` along their axes."""
        shape, steps = tensor_type(x).shape, steps or {}
        axes = tuple(a for a in sorted(starts) if (starts[a], ends[a], steps.get(a, 1))
                     != (0, shape[a], 1))
        if not axes:
            return x
        return self.call(op.strided_slice, x, begin=tuple(starts[a] for a in axes),
                         end=tuple(ends[a] for a in axes), axes=axes,
                         strides=tuple(steps.get(a, 1) for a in axes))

    def iota(self, size: Any, dtype: DType | str) -> Expr:
        """0, 1, ... below ``size``."""
        return self.call(op.arange, start=0, stop=size, step=1, dtype=DType.of(dtype))


def rank_of(x: Expr) -> int:
    return tensor_type(x).ndim


def constant_in(x: object) -> np.ndarray | None:
    """The value of a constant; ``None`` for other values."""
    return x.data if isinstance(x, Constant) else None


def product(sizes: Sequence[Any]) -> Any:
    return math.prod(sizes)


def is_symbolic(*sizes: Any) -> bool:
    """Whether a size is a symbolic dimension."""
    return any(isinstance(size, SymDim) for size in sizes)
