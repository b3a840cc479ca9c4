"""Operators on stored integers: the forms that ``fake_quantization_to_integer`` chooses from.

Two kinds of operators have one. Those that keep the scale of their operands (reshapes, maxima, and
GEMMs and convolutions, whose scale is the product of the scales) name a rule here as their hook
``integer_form``; an operator with the trait ``keeps_scale`` needs none. Those that need the scale
of their result, which the ``qnn.quantize`` after them gives, name one as ``requantized_form``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from weft import op
from weft.ir import Call, Constant, DType, Expr, Op, TensorType, Tuple, const, infer_expr
from weft.ir.affine import TensorAffineType
from weft.ir.analysis import known_type
from weft.support.dataclass import dataclass
from weft.support.errors import InternalError
from weft.topi.layout import Layout

BYTES = ("int8", "uint8")
INT = DType.of("int32")


def type_of_tensor(expr: Expr) -> TensorType:
    """The type of a typed tensor."""
    found = known_type(expr)
    if not isinstance(found, TensorType):
        raise InternalError("expected a tensor", where=expr.span, got=str(found))
    return found


@dataclass(frozen=True, slots=True)
class Stored:
    """A real value, of which ``expr`` are the integers of an affine type."""

    expr: Expr
    type: TensorAffineType

    @staticmethod
    def of(expr: Expr, scale: Expr, zero: Expr, axis: int) -> Stored:
        return Stored(expr, TensorAffineType(scale, zero, type_of_tensor(expr).dtype, axis))

    @property
    def scale(self) -> Expr:
        return self.type.scale

    @property
    def zero(self) -> Expr:
        return self.type.zero

    @property
    def axis(self) -> int:
        return self.type.axis

    @property
    def is_byte(self) -> bool:
        return self.type.dtype.name in BYTES

    @property
    def is_uniform(self) -> bool:
        return self.type.is_uniform


# (call, its operands as stored) -> the result as stored; None if it must stay real.
IntegerForm: TypeAlias = "Callable[[Call, Sequence[Stored]], Stored | None]"
# (call, its operands as stored, scale and zero point of the result, rounding) -> stored integers.
RequantizedForm: TypeAlias = "Callable[[Call, Sequence[Stored], tuple[Expr, Expr], str], Expr]"


def integer_form_of(operator: Op) -> IntegerForm | None:
    """How calls of ``operator`` run on stored integers with the scales of their operands."""
    rule: IntegerForm | None = operator.hook("integer_form")
    return _same if rule is None and operator.traits.keeps_scale else rule


def _same(call: Call, stored: Sequence[Stored]) -> Stored | None:
    """For operators that move elements or select among them."""
    x = stored[0]
    if len(stored) > 1 or not x.is_uniform:
        return None
    return Stored.of(typed(call.replace(args=(x.expr,), checked_type=None)), x.scale, x.zero, -1)


def transpose(call: Call, stored: Sequence[Stored]) -> Stored | None:
    """The axis along which scales vary is permuted with the others."""
    (x,) = stored
    axis, ndim = -1, type_of_tensor(x.expr).ndim
    if not x.is_uniform:
        axes = call.attrs.axes or tuple(range(ndim))[::-1]  # type: ignore[attr-defined]
        axis = [a % ndim for a in axes].index(x.axis % ndim)
    moved = typed(call.replace(args=(x.expr,), checked_type=None))
    return Stored.of(moved, x.scale, x.zero, axis)


def concatenate_alike(call: Call, stored: Sequence[Stored]) -> Stored | None:
    """Parts that share a scale and a zero point are joined as they are."""
    first = stored[0]
    if not all(x.is_uniform and x.type.is_same(first.type) for x in stored):
        return None
    parts = Tuple(tuple(x.expr for x in stored))
    joined = typed(call.replace(args=(typed(parts),), checked_type=None))
    return Stored.of(joined, first.scale, first.zero, -1)


def relu(_: Call, stored: Sequence[Stored]) -> Stored | None:
    (x,) = stored
    is_around_zero = isinstance(x.zero, Constant) and not x.zero.data.any()
    if not x.is_uniform and not is_around_zero:
        return None
    zero = const(0, INT) if is_around_zero else x.zero
    least = op.cast(zero, dtype=type_of_tensor(x.expr).dtype)
    return Stored.of(typed(op.maximum(x.expr, least)), x.scale, x.zero, x.axis)


def _product(
    name: str, outputs: Callable[[Any], int] | None, result: Callable[[Any], int]
) -> IntegerForm:
    """8-bit data and weight; the scales of the weight vary at most along its output channels."""

    def keep(call: Call, stored: Sequence[Stored]) -> Stored | None:
        x, w = stored
        if getattr(call.attrs, "groups", 1) > 1:
            return None  # few multiplications per element: float32 is as fast
        rank = type_of_tensor(w.expr).ndim
        fits = w.is_uniform or (outputs is not None
                                and w.axis % rank == outputs(call.attrs) % rank)
        if not (x.is_byte and w.is_byte and x.is_uniform and fits):
            return None
        attrs = {**dict(call.attrs.items()), "out_dtype": INT}
        integers = getattr(op.qnn, name)(x.expr, w.expr, x.zero, w.zero, x.scale, w.scale, **attrs,
                                         span=call.span)
        scale = op.multiply(x.scale, w.scale)
        return Stored.of(typed(integers), typed(scale), const(0, INT), result(call.attrs))

    return keep


def matmul(call: Call, stored: Sequence[Stored]) -> Stored | None:
    """As ``nn.dense`` with a transposed weight; of batches of matrices as ``nn.batch_matmul``."""
    x, w = stored
    attrs: Any = call.attrs
    if not (x.is_byte and w.is_byte and x.is_uniform):
        return None
    ranks = [type_of_tensor(part.expr).ndim for part in stored]
    if ranks == [3, 3] and w.is_uniform:
        product = op.qnn.batch_matmul(x.expr, w.expr, x.zero, w.zero, x.scale, w.scale,
                                      transpose_a=attrs.transpose_a, out_dtype=INT,
                                      transpose_b=attrs.transpose_b, span=call.span)
        scale = op.multiply(x.scale, w.scale)
        return Stored.of(typed(product), typed(scale), const(0, INT), -1)
    if attrs.transpose_a or ranks[1] != 2:
        return None
    columns = 0 if attrs.transpose_b else 1
    if not (w.is_uniform or w.axis % 2 == columns):
        return None
    rows = w.expr if attrs.transpose_b else typed(op.transpose(w.expr, span=w.expr.span))
    integers = op.qnn.dense(x.expr, rows, x.zero, w.zero, x.scale, w.scale, out_dtype=INT,
                            span=call.span)
    scale = op.multiply(x.scale, w.scale)
    return Stored.of(typed(integers), typed(scale), const(0, INT), -1)


def bias_add(call: Call, stored: Sequence[Stored]) -> Stored | None:
    """The bias, requantized to the scale of the accumulator (models mostly store it so)."""
    x, bias = stored
    if type_of_tensor(x.expr).dtype != INT:
        return None
    zero = const(0, INT)
    if type_of_tensor(bias.expr).dtype.is_float:
        steps = op.qnn.quantize(bias.expr, x.scale, zero, out_dtype=INT)
    else:
        steps = op.qnn.requantize(bias.expr, bias.scale, bias.zero, x.scale, zero, out_dtype=INT)
    total = call.replace(args=(x.expr, typed(steps)), checked_type=None)
    return Stored.of(typed(total), x.scale, x.zero, x.axis)


def add_to_sums(call: Call, stored: Sequence[Stored]) -> Stored | None:
    """A vector added to the int32 result of a contraction, along its last axis."""
    x, bias = stored
    if type_of_tensor(x.expr).ndim < type_of_tensor(bias.expr).ndim:
        x, bias = bias, x
    sums, vector = type_of_tensor(x.expr), type_of_tensor(bias.expr)
    is_last = x.is_uniform or x.axis % sums.ndim == sums.ndim - 1
    if vector.ndim != 1 or vector.shape != sums.shape[-1:] or not is_last or sums.dtype != INT:
        return None
    return bias_add(call, [x, bias])


def typed(expr: Expr) -> Expr:
    return infer_expr(expr, trust=True)


def _output_channels(attrs: Any) -> int:
    return Layout.parse(attrs.data_layout).index_of("C")


batch_matmul = _product("batch_matmul", None, lambda _: -1)
dense = _product("dense", lambda a: Layout.parse(a.weight_layout).index_of("N"), lambda _: -1)
conv2d = _product("conv2d", lambda a: Layout.parse(a.kernel_layout).index_of("O"),
                  _output_channels)


def _binary(name: str) -> RequantizedForm:
    def close(call: Call, stored: Sequence[Stored], out: tuple[Expr, Expr], rounding: str) -> Expr:
        a, b = stored
        result: Expr = getattr(op.qnn, name)(a.expr, b.expr, a.scale, a.zero, b.scale, b.zero,
                                             *out, rounding=rounding, span=call.span)
        return result

    return close


def _unary(name: str, *attributes: str) -> RequantizedForm:
    def close(call: Call, stored: Sequence[Stored], out: tuple[Expr, Expr], rounding: str) -> Expr:
        (x,) = stored
        kept = {key: getattr(call.attrs, key) for key in attributes}
        result: Expr = getattr(op.qnn, name)(x.expr, x.scale, x.zero, *out, rounding=rounding,
                                             **kept, span=call.span)
        return result

    return close


def concatenate(
    call: Call, stored: Sequence[Stored], out: tuple[Expr, Expr], rounding: str
) -> Expr:
    data, scales, zeros = (Tuple(tuple(getattr(s, part) for s in stored))
                           for part in ("expr", "scale", "zero"))
    result: Expr = op.qnn.concatenate(data, scales, zeros, *out, rounding=rounding,
                                      axis=call.attrs.axis,  # type: ignore[attr-defined]
                                      span=call.span)
    return result


add, subtract, multiply = map(_binary, ("add", "subtract", "mul"))
leaky_relu, softmax = _unary("leaky_relu", "alpha"), _unary("softmax", "axis")
abs_, erf, exp, log = map(_unary, ("abs", "erf", "exp", "log"))
rsqrt, sigmoid, sqrt, tanh = map(_unary, ("rsqrt", "sigmoid", "sqrt", "tanh"))
