"""NNVM's operators by NNVM's names, in terms of weft's catalogue (NNVM's ``top`` operators)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft import op
from weft.compat.symbol.inference import same_shapes
from weft.compat.symbol.operator import NNVM_OPS, Lower, SymbolOp
from weft.compat.symbol.slots import set_attr
from weft.ir import Attrs, Expr, NoAttrs, Op, Tuple, TupleGetItem, attr, const
from weft.support.dataclass import dataclass


@dataclass(frozen=True, kw_only=True)
class ScalarAttrs(Attrs):
    scalar: float = attr(doc="the other operand")


@dataclass(frozen=True, kw_only=True)
class AxisAttrs(Attrs):
    axis: int = attr(-1, "the axis")


@dataclass(frozen=True, kw_only=True)
class ReduceAttrs(Attrs):
    axis: tuple[int, ...] = attr((), "the axes; none: all of them")
    keepdims: bool = attr(False, "whether reduced axes stay, with size 1")
    exclude: bool = attr(False, "whether to reduce over the other axes")


@dataclass(frozen=True, kw_only=True)
class ExpandDimsAttrs(Attrs):
    axis: int = attr(doc="where the new axes come")
    num_newaxis: int = attr(1, "how many")


@dataclass(frozen=True, kw_only=True)
class SqueezeAttrs(Attrs):
    axis: tuple[int, ...] = attr((), "axes of size 1; none: all of them")


@dataclass(frozen=True, kw_only=True)
class ShapeAttrs(Attrs):
    shape: tuple[int, ...] = attr(doc="the shape of the result")


@dataclass(frozen=True, kw_only=True)
class FilledAttrs(Attrs):
    shape: tuple[int, ...] = attr(doc="the shape of the result")
    dtype: str = attr("float32", "the dtype of the result")


@dataclass(frozen=True, kw_only=True)
class TransposeAttrs(Attrs):
    axes: tuple[int, ...] = attr((), "the axis of each axis of the result; none: reversed")


@dataclass(frozen=True, kw_only=True)
class LeakyReluAttrs(Attrs):
    alpha: float = attr(0.01, "the slope below 0")


@dataclass(frozen=True, kw_only=True)
class ClipAttrs(Attrs):
    a_min: float = attr(doc="the smallest value")
    a_max: float = attr(doc="the largest value")


@dataclass(frozen=True, kw_only=True)
class CastAttrs(Attrs):
    dtype: str = attr(doc="the dtype of the result")


@dataclass(frozen=True, kw_only=True)
class SplitAttrs(Attrs):
    indices_or_sections: int | tuple[int, ...] = attr(doc="how many parts, or where they begin")
    axis: int = attr(1, "the axis to split")


@dataclass(frozen=True, kw_only=True)
class DropoutAttrs(Attrs):
    rate: float = attr(0.5, "the share of zeros in training")


@dataclass(frozen=True, kw_only=True)
class MatmulAttrs(Attrs):
    transpose_a: bool = attr(False, "whether the first operand is transposed")
    transpose_b: bool = attr(False, "whether the second operand is transposed")


def define(name: str, inputs: Sequence[str] | Callable[[Any], tuple[str, ...]], lower: Lower,
           attrs: type[Attrs] = NoAttrs, *, base: Op | None = None,
           outputs: Callable[[Any, int], int] | None = None) -> SymbolOp:
    """Register an operator of NNVM."""
    names = inputs if callable(inputs) else _constantly(tuple(inputs))
    return NNVM_OPS.register(name, SymbolOp(name, attrs, names, lower, base, outputs))


def _constantly(names: tuple[str, ...]) -> Callable[[Any], tuple[str, ...]]:
    return lambda _attrs: names


def _unary(name: str, base: Op) -> None:
    define(name, ("data",), lambda _attrs, args: base(args[0]), base=base)


def _binary(name: str, base: Op) -> None:
    define(name, ("lhs", "rhs"), lambda _attrs, args: base(args[0], args[1]), base=base)


def _scalar(name: str, base: Op, *, is_reversed: bool = False) -> None:
    def lower(attrs: ScalarAttrs, args: Sequence[Expr]) -> Expr:
        number = _number(args[0], attrs.scalar)
        return base(number, args[0]) if is_reversed else base(args[0], number)

    define(name, ("data",), lower, ScalarAttrs)


def _number(like: Expr, value: float) -> Expr:
    """A scalar of the dtype of ``like``, whose type may be known only at the call."""
    type_ = like.checked_type
    dtype = getattr(type_, "dtype", None)
    return const(value, dtype) if dtype is not None else op.cast_like(const(value), like)


for _name, _op in {
    "relu": op.nn.relu, "sigmoid": op.sigmoid, "tanh": op.tanh, "exp": op.exp, "log": op.log,
    "sqrt": op.sqrt, "negative": op.negative, "copy": op.copy,
    "block_grad": op.annotation.stop_gradient, "floor": op.floor, "ceil": op.ceil,
    "round": op.round, "abs": op.abs, "trunc": op.trunc, "zeros_like": op.zeros_like,
    "ones_like": op.ones_like,
}.items():
    _unary(_name, _op)
    set_attr(_name, "FInferShape", same_shapes)
_unary("flatten", op.nn.batch_flatten)

for _name, _op in {
    "add": op.add, "sub": op.subtract, "mul": op.multiply, "div": op.divide, "pow": op.power,
}.items():
    _binary(f"elemwise_{_name}", _op)
    _binary(f"broadcast_{_name}", _op)
    _binary(f"__{_name}_symbol__", _op)
    _scalar(f"__{_name}_scalar__", _op)
for _name, _op in {"sub": op.subtract, "div": op.divide, "pow": op.power}.items():
    _scalar(f"__r{_name}_scalar__", _op, is_reversed=True)

for _name, _op in {"sum": op.sum, "max": op.max, "min": op.min, "mean": op.mean}.items():
    define(_name, ("data",), lambda attrs, args, base=_op: base(  # type: ignore[misc]
        args[0], axis=attrs.axis or None, keepdims=attrs.keepdims, exclude=attrs.exclude),
        ReduceAttrs)

define("softmax", ("data",), lambda a, x: op.nn.softmax(x[0], axis=a.axis), AxisAttrs)
define("log_softmax", ("data",), lambda a, x: op.nn.log_softmax(x[0], axis=a.axis), AxisAttrs)
define("leaky_relu", ("data",), lambda a, x: op.nn.leaky_relu(x[0], alpha=a.alpha), LeakyReluAttrs)
define("clip", ("data",), lambda a, x: op.clip(x[0], a_min=a.a_min, a_max=a.a_max), ClipAttrs)
define("cast", ("data",), lambda a, x: op.cast(x[0], dtype=a.dtype), CastAttrs)
define("reshape", ("data",), lambda a, x: op.reshape(x[0], newshape=a.shape), ShapeAttrs)
define("reshape_like", ("data", "shape_like"), lambda _, x: op.reshape_like(x[0], x[1]))
define("transpose", ("data",), lambda a, x: op.transpose(x[0], axes=a.axes or None),
       TransposeAttrs)
define("expand_dims", ("data",), lambda a, x: op.expand_dims(
    x[0], axis=a.axis, num_newaxis=a.num_newaxis), ExpandDimsAttrs)
define("squeeze", ("data",), lambda a, x: op.squeeze(x[0], axis=a.axis or None), SqueezeAttrs)
define("concatenate", ("*data",), lambda a, x: op.concatenate(Tuple(tuple(x)), axis=a.axis),
       AxisAttrs)
define("split", ("data",), lambda a, x: op.split(
    x[0], indices_or_sections=a.indices_or_sections, axis=a.axis), SplitAttrs,
    outputs=lambda a, _: a.indices_or_sections if isinstance(a.indices_or_sections, int)
    else len(a.indices_or_sections) + 1)
define("zeros", (), lambda a, _: op.zeros(shape=a.shape, dtype=a.dtype), FilledAttrs)
define("ones", (), lambda a, _: op.ones(shape=a.shape, dtype=a.dtype), FilledAttrs)
define("dropout", ("data",), lambda a, x: TupleGetItem(op.nn.dropout(x[0], rate=a.rate), 0),
       DropoutAttrs)
define("matmul", ("lhs", "rhs"), lambda a, x: op.nn.matmul(
    x[0], x[1], transpose_a=a.transpose_a, transpose_b=a.transpose_b), MatmulAttrs)


def _sum_of(_attrs: Any, args: Sequence[Expr]) -> Expr:
    total = args[0]
    for other in args[1:]:
        total = op.add(total, other)
    return total


define("elemwise_sum", ("*args",), _sum_of)
define("_assign", ("lhs", "rhs"), lambda _, x: x[1])
