"""Needle's tensors, which know the operator and the inputs that made them."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, Self

import numpy as np

import weft
from weft.compat.needle.ndarray import NDArray, default_device
from weft.eager import autograd
from weft.eager.tensor import Tensor as WeftTensor
from weft.support.errors import InvalidInputError

OPERATORS: Any = SimpleNamespace()  # the functions of ``needle.ops``, which fills it


class Op:
    """An operator: ``compute`` of tensors, and ``gradient`` of its inputs.

    Without a ``gradient`` of its own, an operator has that of what ``compute`` records.
    """

    def __call__(self, *args: Any) -> Any:
        for arg in _tensors(args):
            arg.take_changes()
        return Tensor.make_from_op(self, args)

    def compute(self, *args: Any) -> Any:
        """The result, from tensors."""
        raise InvalidInputError(f"{type(self).__name__} has no compute", got=f"{len(args)} inputs")

    def gradient(self, out_grad: Any, node: Any) -> Any:
        """The gradients of ``node.inputs``, from the gradient of the result: one, or a tuple."""
        inputs = [t if t.requires_grad else t.detach().requires_grad_() for t in node.inputs]
        unused = iter(inputs)
        with weft.enable_grad():
            result = self.compute(*(_replaced(a, unused) for a in node.arguments))
        found = autograd.grad(result, inputs, out_grad, create_graph=True, allow_unused=True)
        return tuple(weft.zeros_like(x) if g is None else g
                     for g, x in zip(found, inputs, strict=True))

    def gradient_as_tuple(self, out_grad: Any, node: Any) -> tuple[Any, ...]:
        """``gradient``, always as a tuple."""
        found = self.gradient(out_grad, node)
        found = tuple(found) if isinstance(found, tuple | list) else (found,)
        return tuple(_as_needle(g) for g in found)


class TensorOp(Op):
    """An operator whose result is a tensor."""


class TensorTupleOp(Op):
    """An operator whose result is a tuple of tensors."""


class Tensor(WeftTensor):
    """A tensor with ``op`` and ``inputs``; its operators are those of ``needle.ops``.

    The array ``realize_cached_data()`` may be changed: the next operator takes the change.
    """

    op: Op | None = None
    inputs: tuple[Any, ...] = ()
    arguments: tuple[Any, ...] = ()  # those of the operator, where inputs are in tuples

    def __init__(
        self, array: Any = (), *, device: Any = None, dtype: Any = None,
        requires_grad: bool = True, **_options: Any,
    ) -> None:
        if isinstance(array, NDArray):
            array = array.numpy()
        elif not isinstance(array, WeftTensor):
            keeps = (device or default_device()).is_numpy and dtype is None
            values = np.asarray(array)
            is_list = not isinstance(array, np.ndarray | np.generic) and values.dtype.kind in "iu"
            array = values if keeps and not is_list else values.astype(dtype or "float32")
        super().__init__(array)
        if dtype is not None and str(self.dtype).rpartition(".")[2] != str(dtype):
            self.data = self.detach().to(dtype)
        if self.is_floating_point():
            self.requires_grad_(requires_grad)
        self.__dict__["_place"] = device

    @classmethod
    def make_from_op(cls, op: Op, inputs: Sequence[Any]) -> Any:
        """The result of ``op``, which remembers it."""
        return _marked(op.compute(*inputs), op, tuple(inputs))

    @classmethod
    def make_const(cls, data: Any, *, requires_grad: bool = False) -> Self:
        """A tensor that is no result of an operator."""
        return cls(data, requires_grad=requires_grad)

    @property
    def device(self) -> Any:
        """Where the tensor is: a device of Needle."""
        return self.__dict__.get("_place") or default_device()

    def detach(self) -> Any:
        """The same value outside the graph of gradients, also as a tensor of Needle."""
        found = _as_needle(super().detach())
        found.__dict__["_place"] = self.__dict__.get("_place")
        return found

    def is_leaf(self) -> bool:  # type: ignore[override] - a method in Needle
        """Whether no operator made the tensor."""
        return self.op is None

    def numpy(self) -> np.ndarray:
        """The elements, also of a tensor with a gradient."""
        return WeftTensor.numpy(WeftTensor.detach(self)).copy()

    def realize_cached_data(self) -> Any:
        """The elements as an array of the device."""
        shown = self.__dict__.get("_shown")
        if shown is None:
            shown = self.__dict__["_shown"] = self.device.of(self.detach().numpy())
        return shown

    cached_data = property(realize_cached_data)

    def take_changes(self) -> None:
        """Take over the elements of the array that ``realize_cached_data`` has given out."""
        shown = self.__dict__.pop("_shown", None)
        if shown is not None and not self.inputs:
            values = np.asarray(shown)
            self.data = WeftTensor(values.astype(self.detach().numpy().dtype))

    def backward(self, out_grad: Any = None, *_args: Any, **_options: Any) -> None:
        """Set ``grad`` of the tensors that this was computed from; gradients have gradients."""
        self.take_changes()
        leaves = [t for t in find_topo_sort([self]) if not t.inputs and t.requires_grad]
        for leaf in leaves:
            leaf.grad = None
        given = weft.ones_like(self) if out_grad is None else out_grad
        super().backward(given, create_graph=True)
        for leaf in leaves:
            if leaf.grad is not None:
                _marked(leaf.grad, None, tuple(leaves))

    def transpose(self, *axes: Any) -> Any:  # type: ignore[override] - Needle's
        """The tensor with two axes exchanged, by default the last two."""
        chosen = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes or None
        return OPERATORS.transpose(self, chosen)

    def sum(self, axes: Any = None, **options: Any) -> Any:  # type: ignore[override] - Needle's name
        """The sum over ``axes``, or over all."""
        return super().sum(axes, **options) if options else OPERATORS.summation(self, axes)

    def reshape(self, *shape: Any) -> Any:
        return OPERATORS.reshape(self, shape[0] if len(shape) == 1 else shape)

    def broadcast_to(self, *shape: Any) -> Any:
        return OPERATORS.broadcast_to(self, shape[0] if len(shape) == 1 else shape)

    def matmul(self, other: Any) -> Any:
        return OPERATORS.matmul(self, other)

    __matmul__ = matmul

    def __add__(self, other: Any) -> Any:
        return _binary("add", self, other)

    def __mul__(self, other: Any) -> Any:
        return _binary("multiply", self, other)

    def __truediv__(self, other: Any) -> Any:
        return _binary("divide", self, other)

    def __pow__(self, other: Any) -> Any:
        return _binary("power", self, other)

    def __neg__(self) -> Any:
        return OPERATORS.negate(self)

    def __sub__(self, other: Any) -> Any:
        return self + -other

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    __radd__, __rmul__ = __add__, __mul__
    # Needle's tensors are equal to themselves alone.
    __eq__, __ne__, __hash__ = object.__eq__, object.__ne__, object.__hash__  # type: ignore[assignment]


Value = Tensor


def __getattr__(name: str) -> int:
    """``TENSOR_COUNTER``: how many tensors of Needle there are now."""
    if name != "TENSOR_COUNTER":
        raise AttributeError(name)
    # Not ``isinstance``, which asks weak proxies for their class.
    return sum(issubclass(type(one), Tensor) for one in gc.get_objects())


class TensorTuple(tuple[Any, ...]):
    """Tensors that one operator made, or takes."""

    __slots__ = ()


_SCALAR = {"add": "add_scalar", "multiply": "mul_scalar", "divide": "divide_scalar",
           "power": "power_scalar"}


def _binary(name: str, x: Tensor, other: Any) -> Any:
    chosen = name if isinstance(other, WeftTensor) else _SCALAR[name]
    return getattr(OPERATORS, chosen)(x, other)


def _as_needle(value: Any) -> Any:
    if isinstance(value, WeftTensor) and not isinstance(value, Tensor):
        value.__class__ = Tensor  # the same layout
    return value


def _marked(result: Any, op: Op | None, inputs: tuple[Any, ...]) -> Any:
    """``result`` as a tensor of Needle that ``op`` made of ``inputs``."""
    if isinstance(result, tuple | list):
        return TensorTuple(_marked(part, None if op is None else _Part(op, i), inputs)
                           for i, part in enumerate(result))
    found = _as_needle(result)
    found.op, found.arguments, found.inputs = op, inputs, _tensors(inputs)
    return found


class _Part(TensorOp):
    """One of the results of an operator."""

    def __init__(self, op: Op, index: int) -> None:
        self.op, self.index = op, index

    def compute(self, *args: Any) -> Any:
        return self.op.compute(*args)[self.index]


def _replaced(value: Any, tensors: Iterator[Any]) -> Any:
    """An argument of an operator with other tensors in the places of its own."""
    if isinstance(value, tuple | list):
        return TensorTuple(_replaced(part, tensors) for part in value)
    return next(tensors) if isinstance(value, WeftTensor) else value


def _tensors(inputs: Sequence[Any]) -> tuple[Any, ...]:
    flat: list[Any] = []
    for value in inputs:
        flat.extend(value if isinstance(value, tuple | list) else (value,))
    return tuple(_as_needle(value) for value in flat if isinstance(value, WeftTensor))


def find_topo_sort(node_list: Sequence[Any]) -> list[Any]:
    """The tensors that ``node_list`` depends on, and they, each after its inputs (post-order)."""
    order: list[Any] = []
    seen: set[int] = set()
    stack: list[tuple[Any, Iterator[Any]]] = []

    def visit(node: Any) -> None:
        if id(node) not in seen:
            seen.add(id(node))
            stack.append((node, iter(getattr(node, "inputs", ()))))

    for root in node_list:
        visit(root)
        while stack:
            node, below = stack[-1]
            child = next(below, None)
            if child is not None:
                visit(child)
            else:
                order.append(node)
                stack.pop()
    return order


def sum_node_list(node_list: Sequence[Any]) -> Any:
    """The sum of tensors, without a zero at its start."""
    total, *others = node_list
    for node in others:
        total = total + node
    return total


def compute_gradient_of_variables(output_tensor: Any, out_grad: Any) -> None:
    """Set ``grad`` of each tensor that ``output_tensor`` depends on, by those of its operators."""
    arriving: dict[int, list[Any]] = {id(output_tensor): [out_grad]}
    for node in reversed(find_topo_sort([output_tensor])):
        if id(node) not in arriving:
            continue
        node.grad = _as_needle(sum_node_list(arriving[id(node)]))
        if node.op is not None:
            found = node.op.gradient_as_tuple(node.grad, node)
            for given, gradient in zip(node.inputs, found, strict=True):
                arriving.setdefault(id(given), []).append(gradient)
