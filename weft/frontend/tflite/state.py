"""The variables of a model: resources that operators read and assign, and tensors that persist."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from weft.frontend.common import arrays
from weft.frontend.common.typed import tensor_type
from weft.frontend.tflite.model import Model, Tensor
from weft.ir.dtype import DType
from weft.ir.expr import Constant, Expr, Var
from weft.ir.span import Span
from weft.ir.types import TensorType
from weft.support.errors import UnsupportedModelError

if TYPE_CHECKING:
    from weft.frontend.tflite.node import Node


def has_state(model: Model) -> bool:
    """Whether a model has variables."""
    return any(operator.name == "VAR_HANDLE" for graph in model.subgraphs
               for operator in graph.operators) \
        or any(tensor.is_variable for graph in model.subgraphs for tensor in graph.tensors)


class Variables:
    """The variables while a model is converted: first, current and assigned values, by name.

    ``parameters`` are the inputs of the program for those that it reads before it assigns them.
    """

    def __init__(self) -> None:
        self.first: dict[str, np.ndarray] = {}
        self.current: dict[str, Expr] = {}
        self.parameters: dict[str, Var] = {}
        self.assigned: set[str] = set()
        self._names: dict[int, tuple[Expr, str]] = {}
        self._is_initial = False
        self._is_fixed = False

    @contextlib.contextmanager
    def initial(self) -> Iterator[None]:
        """Assignments in the block give first values."""
        before, self._is_initial = self._is_initial, True
        yield
        self._is_initial = before

    @contextlib.contextmanager
    def fixed(self) -> Iterator[None]:
        """Refuse assignments in the block, a branch or a loop."""
        before, self._is_fixed = self._is_fixed, True
        yield
        self._is_fixed = before

    def handle(self, name: str, span: Span) -> Expr:
        """A value that stands for a variable."""
        made = Constant(np.zeros((), np.int32), span=span)
        self._names[id(made)] = (made, name)
        return made

    def name_of(self, node: Node, value: Expr) -> str:
        """The name of the variable that a handle, or the value of a tensor, stands for."""
        if id(value) not in self._names:
            raise node.unsupported("a variable that is chosen when the model runs")
        return self._names[id(value)][1]

    def read(self, name: str, info: Tensor, span: Span) -> Expr:
        """The current value of a variable."""
        if name not in self.current:
            type_ = self._type_of(name, info, span)
            self.parameters[name] = Var(name, type_, span=span, checked_type=type_)
            self.current[name] = self.parameters[name]
        return self.current[name]

    def _type_of(self, name: str, info: Tensor, span: Span) -> TensorType:
        """The type of the first value of a variable, else of the tensor that it is read as."""
        first = self.first.get(name)
        if first is not None:
            return TensorType(first.shape, DType.of(first.dtype))
        if info.dtype is None or min(info.shape, default=0) < 0:
            raise UnsupportedModelError(f"the variable {name!r} has no type", where=span,
                                        got=f"{info.type.lower()} {info.shape}")
        return TensorType(info.shape, info.dtype)

    def tensor(self, name: str, info: Tensor, span: Span) -> Expr:
        """The current value of a tensor that keeps its value, at first zeros."""
        assert info.dtype is not None
        zero = 0 if info.quantization is None else int(info.quantization.zero.reshape(-1)[0])
        sizes = tuple(max(size, 1) for size in info.shape)
        self.first.setdefault(name, arrays.full(sizes, zero, info.dtype.numpy))
        value = self.read(name, info, span)
        self._names[id(value)] = (value, name)
        return value

    def assign(self, node: Node, name: str, value: Expr) -> None:
        """Make ``value`` the next value of a variable."""
        if self._is_initial:
            if not isinstance(value, Constant):
                raise node.unsupported(f"a computed first value of the variable {name!r}")
            self.first[name] = value.data
            return
        if self._is_fixed:
            raise node.unsupported(f"an assignment to the variable {name!r} in a branch or a loop")
        if name not in self.parameters:
            type_ = tensor_type(value)
            self.parameters[name] = Var(name, type_, span=node.span, checked_type=type_)
        self.current[name] = value
        self._names[id(value)] = (value, name)
        self.assigned.add(name)
