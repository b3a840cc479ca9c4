"""``CallWriter``: what the writer of an operator knows and can do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.export.onnx.graph import GraphWriter, element_type
from weft.export.writers import TypedCall, Value
from weft.ir import Call, Dim, DType, TensorType
from weft.ir.dtype import float32, int32, int64

if TYPE_CHECKING:
    from weft.export.onnx.sizes import Sizes


class CallWriter(TypedCall):
    """A typed call whose arguments are written: the node of the importer, the other way round."""

    def __init__(self, call: Call, args: Sequence[Value], graph: GraphWriter, sizes: Sizes) -> None:
        super().__init__(call, args)
        self.graph = graph
        self._sizes = sizes

    @property
    def ndim(self) -> int:
        """The rank of the first argument."""
        return self.types[0].ndim

    @property
    def dtype(self) -> DType:
        """The dtype of the first argument."""
        return self.types[0].dtype

    def emit(self, op: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Emit a node with one result."""
        return self.graph.emit(op, inputs, 1, self.name, attributes, domain)[0]

    def emit_many(self, op: str, count: int, *inputs: str, **attributes: Any) -> list[str]:
        """Emit a node with ``count`` results."""
        return self.graph.emit(op, inputs, count, self.name, attributes)

    def const(self, value: Any, dtype: DType | None = None) -> str:
        """A constant, of the first argument's dtype by default."""
        kind = dtype or self.dtype
        return self.graph.constant(np.asarray(value).astype(kind.numpy), kind)

    def ints(self, *values: int) -> str:
        """A constant vector of int64."""
        return self.graph.constant(np.array(values, np.int64))

    def value(self, name: str) -> np.ndarray | None:
        """The value of an argument that is a constant."""
        return self.graph.value_of(name)

    def sizes(self, dims: Sequence[Dim]) -> str:
        """An int64 vector of sizes, which may be symbolic."""
        return self._sizes.shape(dims)

    def size(self, dim: Dim) -> str:
        """A size as an int64 scalar."""
        return self._sizes.shape((dim,), scalar=True)

    def cast(self, name: str, dtype: DType) -> str:
        """``name`` as another dtype."""
        return self.emit("Cast", name, to=element_type(dtype))

    def as_dtype(self, name: str, have: DType, want: DType) -> str:
        """``name``, cast unless it has the dtype already."""
        return name if have == want else self.cast(name, want)

    def transposed(self, name: str, axes: Sequence[int]) -> str:
        """``name`` with its axes in another order."""
        if list(axes) == list(range(len(axes))):
            return name
        return self.emit("Transpose", name, perm=list(axes))

    def reshaped(self, name: str, shape: Sequence[Dim]) -> str:
        """``name`` in another shape."""
        unknown = [i for i, d in enumerate(shape) if not isinstance(d, int)]
        if len(unknown) == 1 and 0 not in shape:
            shape = [-1 if i in unknown else d for i, d in enumerate(shape)]
        return self.emit("Reshape", name, self.sizes(shape), allowzero=1)

    def zeros_of(self, type_: TensorType) -> str:
        """Zeros of a type."""
        return self.emit("Expand", self.const(0, type_.dtype), self.sizes(type_.shape))

    def upcast(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Emit an arithmetic node; narrow and unsigned integers are computed as wider ones."""
        wide = arithmetic_dtype(self.dtype, is_ordered=op not in ("Add", "Sub", "Mul"))
        if wide == self.dtype:
            return self.emit(op, *inputs, **attributes)
        result = self.emit(op, *(self.cast(name, wide) for name in inputs), **attributes)
        return result if self.result.dtype.is_bool else self.cast(result, self.result.dtype)


def arithmetic_dtype(dtype: DType, *, is_ordered: bool = True) -> DType:
    """The dtype that runtimes compute with where they lack ``dtype``; wrapping is kept.

    What does not depend on the order of values may be computed on their bits (not ``is_ordered``).
    """
    if dtype.is_bool or (dtype.is_int and dtype.bits < 32):
        return int32
    if dtype.is_int and dtype.bits == 32 and dtype.code == "uint":
        return int64
    if dtype.code == "uint" and not is_ordered:
        return int64
    if dtype.is_small_float:
        return float32
    return dtype
