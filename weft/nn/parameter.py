"""Tensors that register themselves as attributes of a module: parameters and buffers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from weft.eager.functions import creation
from weft.eager.tensor import Tensor
from weft.support.errors import InvalidInputError


class Parameter(Tensor):
    """A tensor that requires a gradient, and registers itself as an attribute of a module."""

    def __init__(self, data: Any = (), requires_grad: bool = True) -> None:
        super().__init__(data, requires_grad=requires_grad)

    def __repr__(self) -> str:
        return f"Parameter containing:\n{super().__repr__()}"


class Buffer(Tensor):
    """A tensor that an attribute of a module registers as a buffer."""

    def __init__(self, data: Any = (), *, persistent: bool = True) -> None:
        super().__init__(data)
        self.persistent = persistent


class Uninitialized(Tensor):
    """A tensor without a shape, which the first input of its module decides."""

    filled: ClassVar[type[Tensor]]

    def materialize(self, shape: Sequence[int], device: Any = None, dtype: Any = None) -> None:
        """Become zeros of ``shape``; the dtype is the one of the constructor unless given."""
        self.data = creation.zeros(tuple(shape), device=device, dtype=dtype or self.dtype)
        self.__class__ = self.filled  # type: ignore[assignment] - the same layout

    @property
    def shape(self) -> Any:
        raise InvalidInputError(
            f"{type(self).__name__} has no shape yet",
            help="call the module with an input, or load a state dict, first")

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


class UninitializedParameter(Uninitialized, Parameter):
    """A parameter whose shape is not known yet."""

    filled = Parameter

    def __init__(self, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> None:
        Parameter.__init__(self, creation.zeros((0,), device=device, dtype=dtype), requires_grad)


class UninitializedBuffer(Uninitialized):
    """A buffer whose shape is not known yet."""

    filled = Tensor

    def __init__(self, device: Any = None, dtype: Any = None) -> None:
        super().__init__(creation.zeros((0,), device=device, dtype=dtype))


def is_lazy(value: object) -> bool:
    """Whether ``value`` is a parameter or buffer without a shape yet."""
    return isinstance(value, Uninitialized)


def clear_grad(parameter: Tensor, set_to_none: bool) -> None:
    """Drop the gradient of ``parameter``, or set it to zero."""
    if set_to_none:
        parameter.grad = None  # not looked at: a compiled step need not know what it was
    elif parameter.grad is not None:
        parameter.grad = parameter.grad.detach() * 0
