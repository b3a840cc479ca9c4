"""Needle's operators: a class for each, and a function that applies it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

import weft
from weft.compat.needle.autograd import OPERATORS, TensorOp, TensorTuple
from weft.compat.needle.autograd import Tensor as NeedleTensor
from weft.eager.emitter import call
from weft.eager.tensor import Tensor as Array
from weft.nn.modules.function_layer import signature_of


class TableOp(TensorOp):
    """Computes ``function`` of its tensors and of the arguments of its constructor."""

    function: ClassVar[Callable[..., Any]]
    signature: ClassVar[Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        self.attributes = dict(bound.arguments)
        self.__dict__.update(self.attributes)

    def compute(self, *args: Any) -> Any:
        return type(self).function(*args, **self.attributes)


def _promoted(name: str) -> Callable[[Array, Array], Array]:
    """The operator ``name`` of two tensors, in the dtype to which NumPy promotes theirs."""

    def compute(a: Array, b: Array) -> Array:
        if a.dtype != b.dtype:
            common = np.result_type(_dtype(a), _dtype(b)).name
            a, b = a.to(common), b.to(common)
        return call(name, a, b)

    return compute


def _dtype(x: Array) -> str:
    return str(x.dtype).rpartition(".")[2]


def _swap(x: Array, axes: Any) -> Array:
    first, second = (-1, -2) if axes is None else axes
    order = list(range(x.ndim))
    order[first], order[second] = order[second], order[first]
    return call("transpose", x, axes=tuple(order))


def _sum(x: Array, axes: Any) -> Array:
    chosen = tuple(range(x.ndim)) if axes is None else axes
    return call("sum", x, axis=(chosen,) if isinstance(chosen, int) else tuple(chosen))


def _log_sum_exp(x: Array, axes: Any) -> Array:
    chosen = tuple(range(x.ndim)) if axes is None else axes
    return weft.logsumexp(x, chosen)


def _dilate(x: Array, axes: Any, dilation: int) -> Array:
    """``dilation`` zeros behind each element of ``axes``."""
    for axis in _axes(x, axes):
        shape = list(x.shape)
        wide = call("expand_dims", x, axis=axis + 1)
        pads = tuple((0, dilation if i == axis + 1 else 0) for i in range(wide.ndim))
        shape[axis] *= dilation + 1
        x = call("reshape", call("nn.pad", wide, 0.0, pad_width=pads), newshape=tuple(shape))
    return x


def _undilate(x: Array, axes: Any, dilation: int) -> Array:
    steps = [1] * x.ndim
    for axis in _axes(x, axes):
        steps[axis] = dilation + 1
    return call("strided_slice", x, begin=(0,) * x.ndim, end=tuple(x.shape),
                strides=tuple(steps))


def _axes(x: Array, axes: Any) -> list[int]:
    """The axes that ``x`` has, counted from the front."""
    given = (axes,) if isinstance(axes, int) else axes
    return [axis % x.ndim for axis in given if -x.ndim <= axis < x.ndim]


def _conv(x: Array, weight: Array, stride: int, padding: int) -> Array:
    """Images (N, H, W, C) with kernels (K, K, in, out)."""
    found = call("nn.conv2d", call("transpose", x, axes=(0, 3, 1, 2)),
                 call("transpose", weight, axes=(3, 2, 0, 1)), strides=(stride, stride),
                 padding=(padding,) * 4)
    return call("transpose", found, axes=(0, 2, 3, 1))


def _parts(x: Array, axis: int) -> TensorTuple:
    parts = call("split", x, indices_or_sections=x.shape[axis], axis=axis)
    return TensorTuple(call("squeeze", part, axis=axis) for part in parts)


def _flip(x: Array, axes: Any) -> Array:
    return weft.flip(x, _axes(x, axes))


# The operator, the function that applies it, how many tensors it takes, its arguments, and what it
# computes.
_ROWS: list[tuple[str, str, int, str, Callable[..., Any]]] = [
    ("EWiseAdd", "add", 2, "", _promoted("add")),
    ("AddScalar", "add_scalar", 1, "scalar", lambda a, scalar: call("add", a, scalar)),
    ("EWiseMul", "multiply", 2, "", _promoted("multiply")),
    ("MulScalar", "mul_scalar", 1, "scalar", lambda a, scalar: call("multiply", a, scalar)),
    ("EWisePow", "power", 2, "", _promoted("power")),
    ("PowerScalar", "power_scalar", 1, "scalar", lambda a, scalar: call("power", a, scalar)),
    ("EWiseDiv", "divide", 2, "", _promoted("divide")),
    ("DivScalar", "divide_scalar", 1, "scalar", lambda a, scalar: call("divide", a, scalar)),
    ("Transpose", "transpose", 1, "axes=None", _swap),
    ("Reshape", "reshape", 1, "shape", lambda a, shape: call("reshape", a, newshape=tuple(shape))),
    ("BroadcastTo", "broadcast_to", 1, "shape",
     lambda a, shape: call("broadcast_to", a, shape=tuple(shape))),
    ("Summation", "summation", 1, "axes=None", _sum),
    ("MatMul", "matmul", 2, "", _promoted("nn.matmul")),
    ("Negate", "negate", 1, "", lambda a: call("negative", a)),
    ("Log", "log", 1, "", lambda a: call("log", a)),
    ("Exp", "exp", 1, "", lambda a: call("exp", a)),
    ("ReLU", "relu", 1, "", lambda a: call("nn.relu", a)),
    ("Tanh", "tanh", 1, "", lambda a: call("tanh", a)),
    ("LogSoftmax", "logsoftmax", 1, "", lambda a: call("nn.log_softmax", a, axis=-1)),
    ("LogSumExp", "logsumexp", 1, "axes=None", _log_sum_exp),
    ("Stack", "stack", 1, "axis", lambda args, axis: call("stack", *args, axis=axis)),
    ("Split", "split", 1, "axis", _parts),
    ("Flip", "flip", 1, "axes=None", _flip),
    ("Dilate", "dilate", 1, "axes dilation", _dilate),
    ("UnDilate", "undilate", 1, "axes dilation", _undilate),
    ("Conv2d", "conv", 2, "stride=1 padding=1", _conv),
    ("TupleGetItem", "tuple_get_item", 1, "index", lambda args, index: args[index]),
]


def _class_of(name: str, takes: str, function: Callable[..., Any], count: int) -> type[TableOp]:
    text = f"{name} of {count} tensor{'s' * (count > 1)}" + (f", with {takes}" if takes else "")
    return type(name, (TableOp,), {"function": staticmethod(function), "__doc__": text + ".",
                                   "signature": signature_of(takes), "__module__": __name__})


def _function_of(name: str, cls: type[TableOp], count: int) -> Callable[..., Any]:
    def apply(*args: Any, **attributes: Any) -> Any:
        return cls(*args[count:], **attributes)(*args[:count])

    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = f"Apply ``{cls.__name__}``."
    return apply


for _name, _function, _count, _takes, _computes in _ROWS:
    globals()[_name] = _class_of(_name, _takes, _computes, _count)
    globals()[_function] = _function_of(_function, globals()[_name], _count)
    setattr(OPERATORS, _function, globals()[_function])

Tensor = Value = NeedleTensor  # whose operators are there now


def make_tuple(*args: Any) -> TensorTuple:
    """Tensors as one argument of an operator."""
    return TensorTuple(args)


MakeTensorTuple = TensorTuple
