"""Converters of constants and shapes."""

from __future__ import annotations

import numpy as np

from weft import op
from weft.frontend.common import arrays
from weft.frontend.onnx.node import Node, Value
from weft.frontend.onnx.protos import TensorProto
from weft.frontend.onnx.registry import converts
from weft.frontend.onnx.reshaping import broadcast_to, known_sizes
from weft.frontend.onnx.shape_value import Ratio, ShapeValue, settle
from weft.frontend.onnx.tensors import checked_shape, tensor_to_numpy
from weft.ir import Constant, Dim, DType, Expr, SymDim, dim_product, dims_equal
from weft.support.allocation import may_allocate
from weft.support.errors import UnsupportedModelError

_VALUE_ATTRIBUTES = ("value", "value_float", "value_floats", "value_int", "value_ints")

_MOST_NUMBERS = 1 << 20  # of a range that becomes a constant


@converts("Constant", attributes=_VALUE_ATTRIBUTES)
def constant(node: Node) -> Expr:
    present = [name for name in _VALUE_ATTRIBUTES if name in node.attrs]
    if len(present) != 1:
        raise node.fail(
            "exactly one value attribute must be given",
            expected=f"one of {', '.join(_VALUE_ATTRIBUTES)}",
            got=", ".join(present) or "none",
        )
    return Constant(_constant_array(node, present[0]), span=node.span)


def _constant_array(node: Node, name: str) -> np.ndarray:
    attrs = node.attrs
    if name == "value":
        return tensor_to_numpy(attrs.tensor(name) or TensorProto(), node.folder, str(node.span))
    if name == "value_float":
        return np.asarray(attrs.number(name, 0.0), np.float32)
    if name == "value_floats":
        return np.asarray(attrs.numbers(name), np.float32)
    if name == "value_int":
        return np.asarray(attrs.integer(name, 0), np.int64)
    return np.asarray(attrs.integers(name), np.int64)


@converts("ConstantOfShape", since=9, attributes=("value",))
def constant_of_shape(node: Node) -> Expr:
    dims = node.dims(0, "input")
    tensor = node.attrs.tensor("value")
    fill = np.zeros(1, np.float32)
    if tensor is not None:
        fill = tensor_to_numpy(tensor, node.folder, str(node.span))
    if fill.size != 1:
        raise node.fail("the value is not a scalar", got=f"shape {fill.shape}")
    dtype = DType.of(fill.dtype)
    if all(isinstance(d, int) for d in dims):
        shape = checked_shape(dims, dtype, f"the result of {node.op}", node.span)
        if may_allocate(shape, dtype.itemsize):
            return Constant(np.full(shape, fill.reshape(()), fill.dtype), span=node.span)
    return node.call(op.full, node.constant(fill.reshape(()), dtype),
                     shape=known_sizes(node, dims))


@converts("Shape", attributes=("start", "end"))
def shape_(node: Node) -> Value:
    """Return the shape in the type of the input; symbolic dimensions stay symbolic."""
    shape = node.shape()
    start, end = node.attrs.integer("start", 0), node.attrs.integer("end", len(shape))
    return _known(node, ShapeValue.of_shape(shape[start:end]).dims)


@converts("Size")
def size(node: Node) -> Value:
    count = np.empty((), object)
    count[()] = dim_product(node.shape())
    return _known(node, count)


def _known(node: Node, dims: np.ndarray) -> Value:
    value = settle(dims)
    return Constant(value, span=node.span) if isinstance(value, np.ndarray) else value


@converts("Range", since=11)
def range_(node: Node) -> Expr:
    """Evaluate the range at import: its length is a dimension, so no input may be data."""
    if any(isinstance(value, ShapeValue) for value in node.inputs):
        return _symbolic_range(node)
    start, limit, delta = (
        node.array(i, name) for i, name in enumerate(("start", "limit", "delta"))
    )
    if not start.size == limit.size == delta.size == 1 or not delta.any():
        raise node.fail("invalid range", expected="scalars, delta not 0")
    if not np.isfinite([start.item(), limit.item(), delta.item()]).all():
        raise node.fail("a bound is not finite", got=f"{start}, {limit}, {delta}")
    count = max(0, int(np.ceil((limit.item() - start.item()) / delta.item())))
    dtype = DType.of(start.dtype)
    checked_shape((count,), dtype, "the result of Range", node.span)
    if count > _MOST_NUMBERS:
        return node.call(op.arange, start=start.item(), stop=limit.item(), step=delta.item(),
                         dtype=dtype)
    steps = arrays.arange(count).astype(start.dtype) * delta.reshape(()) + start.reshape(())
    return Constant(steps.astype(start.dtype), span=node.span)


def _symbolic_range(node: Node) -> Expr:
    """A range of whole numbers between sizes."""
    start, limit, delta = (_whole(node, i) for i in range(3))
    if not isinstance(delta, int) or delta == 0:
        raise UnsupportedModelError("Range with a symbolic step", where=node.span, got=str(delta))
    known = next(v for v in node.inputs if isinstance(v, ShapeValue))
    return node.call(op.arange, start=start, stop=limit, step=delta, dtype=known.dtype)


def _whole(node: Node, index: int) -> Dim:
    value = node.inputs[index]
    if isinstance(value, Constant) and value.data.size == 1:
        number = value.data.item()
        items = [int(number)] if number == int(number) else []
    else:
        items = value.dims.reshape(-1).tolist() if isinstance(value, ShapeValue) else []
    items = [v.numerator if isinstance(v, Ratio) and v.denominator == 1 else v for v in items]
    if len(items) != 1 or not isinstance(items[0], (int, SymDim)):
        raise UnsupportedModelError("Range with a bound that is not a size", where=node.span,
                                    expected="constants and sizes")
    return items[0]


@converts("Expand", since=8)
def expand(node: Node) -> Expr:
    """Broadcast in both directions: a size of 1 in the target keeps the size of the input."""
    target = node.dims(1, "shape")
    shape = node.shape()
    rank = max(len(shape), len(target))
    pairs = zip(
        (1,) * (rank - len(shape)) + shape,
        (1,) * (rank - len(target)) + target,
        strict=True,
    )
    return broadcast_to(node, node.input(0), tuple(_expanded(node, *pair) for pair in pairs))


def _expanded(node: Node, have: Dim, want: Dim) -> Dim:
    """The broadcast of two sizes."""
    if want in (1, have):
        return have
    if have == 1 or dims_equal(want, 1) is False:
        return want
    if isinstance(have, int):
        return have  # the target is this size, or 1
    raise UnsupportedModelError("Expand to a size that may be 1 or that of the input",
                                where=node.span, expected=str(have), got=str(want),
                                help=f'say that they are equal, or at least 2: "{want} >= 2"')
