"""``CallWriter``: what the writer of an operator knows and can do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.export.stablehlo.text import constant_text, type_text
from weft.export.writers import TypedCall, Value, Writers
from weft.ir import Call, DType, TensorType


class Body:
    """The lines of a function, and the types of its values."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.types: dict[str, TensorType] = {}
        self._count = 0

    def fresh(self) -> str:
        """A name that no other value has."""
        self._count += 1
        return f"%{self._count - 1}"

    def add(self, text: str, type_: TensorType) -> str:
        """A line ``%n = text``."""
        name = self.fresh()
        self.lines.append(f"    {name} = {text}")
        self.types[name] = type_
        return name

    def constant(self, data: np.ndarray, dtype: DType) -> str:
        """A constant."""
        type_ = TensorType(tuple(data.shape), dtype)
        return self.add(f"stablehlo.constant {constant_text(data, dtype)} : {type_text(type_)}",
                        type_)


class CallWriter(TypedCall):
    """A typed call whose arguments are written."""

    def __init__(self, call: Call, args: Sequence[Value], body: Body) -> None:
        super().__init__(call, args)
        self.body = body

    @property
    def dtype(self) -> DType:
        """The dtype of the first argument."""
        return self.type(self.inputs[0]).dtype

    def type(self, name: str) -> TensorType:
        """The type of a value."""
        return self.body.types[name]

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a value."""
        return self.type(name).concrete_shape

    def emit(self, op: str, names: Sequence[str], type_: TensorType) -> str:
        """``op %a, %b : type``, for operations of one type."""
        return self.body.add(f"{op} {', '.join(names)} : {type_text(type_)}", type_)

    def typed(self, op: str, names: Sequence[str], type_: TensorType, more: str = "") -> str:
        """``op %a, more : (types) -> type``."""
        given = ", ".join(type_text(self.type(n)) for n in names)
        text = ", ".join([*names, *([more] if more else [])])
        return self.body.add(f"{op} {text} : ({given}) -> {type_text(type_)}", type_)

    def const(self, value: Any, dtype: DType) -> str:
        """A constant of a dtype."""
        return self.body.constant(np.asarray(value).astype(dtype.numpy), dtype)

    def reshaped(self, name: str, shape: Sequence[int]) -> str:
        """``name`` in another shape."""
        if self.shape(name) == tuple(shape):
            return name
        return self.typed("stablehlo.reshape", [name],
                          TensorType(tuple(shape), self.type(name).dtype))

    def transposed(self, name: str, axes: Sequence[int]) -> str:
        """``name`` with its axes in another order."""
        if list(axes) == sorted(axes):
            return name
        shape = tuple(self.shape(name)[a] for a in axes)
        return self.typed("stablehlo.transpose", [name], TensorType(shape, self.type(name).dtype),
                          f"dims = [{', '.join(map(str, axes))}]")

    def broadcast(self, name: str, shape: Sequence[int], dims: Sequence[int] | None = None) -> str:
        """``name`` repeated up to ``shape``; its axes are ``dims`` of it, by default the last."""
        have = self.shape(name)
        if have == tuple(shape):
            return name
        along = list(dims) if dims is not None else range(len(shape) - len(have), len(shape))
        return self.typed("stablehlo.broadcast_in_dim", [name],
                          TensorType(tuple(shape), self.type(name).dtype),
                          f"dims = [{', '.join(map(str, along))}]")

    def filled(self, value: Any, type_: TensorType) -> str:
        """A tensor with one value in all places."""
        return self.broadcast(self.const(value, type_.dtype), type_.concrete_shape, ())

    def converted(self, name: str, dtype: DType) -> str:
        """``name`` as another dtype; a float is true unless it is zero."""
        have = self.type(name)
        if have.dtype == dtype:
            return name
        type_ = TensorType(have.shape, dtype)
        if dtype.is_bool:
            return self.compared("NE", name, self.filled(0, have))
        return self.typed("stablehlo.convert", [name], type_)

    def compared(self, how: str, a: str, b: str) -> str:
        """A comparison of values of one shape."""
        type_ = TensorType(self.type(a).shape, DType.of("bool"))
        return self.typed(f"stablehlo.compare {how},", [a, b], type_)


WRITERS: Writers[CallWriter] = Writers("StableHLO", "weft.export.stablehlo.ops")
writes, writer_of = WRITERS.writes, WRITERS.of
