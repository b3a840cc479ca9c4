"""Fake quantization to integer: compute on stored integers between dequantize and quantize.

Quantization tools produce models in which every heavy operator computes on reals and stands
between ``qnn.dequantize`` and ``qnn.quantize``. The pass converts two kinds of operators: those
that keep the scale of their operands (reshapes, maxima, and GEMMs and convolutions, whose scale
is the product of the scales), and those that need the scale of their result, which the
``qnn.quantize`` after them gives.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeAlias

import numpy as np

from weft import op
from weft.codegen.cost_model import CostModel
from weft.ir.dtype import DType
from weft.ir.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, const
from weft.ir.op import Op
from weft.ir.passes import FunctionPass, PassContext, register_pass
from weft.ir.typing.infer import infer_expr
from weft.ir.visitor import post_order
from weft.support.dataclass import dataclass
from weft.topi.layout import Layout
from weft.transform.analysis.graph import (
    as_function,
    enters,
    op_name,
    over_new_children,
    tensor_type_of,
)

BYTES = ("int8", "uint8")
INT = DType.of("int32")
# (dtype of the data, dtype of the weight) -> whether the target multiplies these dtypes natively
MultipliesBytes: TypeAlias = Callable[[DType, DType], bool]


@register_pass
@dataclass(frozen=True)
class FakeQuantizationToInteger(FunctionPass):
    """Compute on stored integers between ``qnn.dequantize`` and ``qnn.quantize``.

    Integer contractions accumulate exactly in int32 and round once, where real arithmetic rounds
    at each step, so results may differ by one quantization step. Operators without an integer
    form stay real; they read the dequantized result of an integer contraction.

    ``closing=False`` leaves the second kind of operators real, which float32 computes as fast.
    Contractions stay real too where ``config["cost_model"]`` of the context says that the target
    lacks instructions for their two dtypes.

    def @main(%x: Tensor[(2, 3), int8]) {
      qnn.quantize(nn.relu(qnn.dequantize(%x, 0.5f, 1)), 0.25f, 2)
    }
    =>
    def @main(%x: Tensor[(2, 3), int8]) {
      qnn.requantize(maximum(%x, cast(1, dtype="int8")), 0.5f, 1, 0.25f, 2)
    }
    """

    name: ClassVar[str] = "fake_quantization_to_integer"
    opt_level: ClassVar[int] = 3
    closing: bool = True

    def run(self, fn: Function, ctx: PassContext) -> Function:
        costs: CostModel | None = ctx.config.get("cost_model")
        multiplies = (lambda _a, _b: True) if costs is None else costs.multiplies_bytes
        return _Conversion(self.closing, multiplies).run(fn)


@dataclass(frozen=True, slots=True)
class _Stored:
    """A real value stored as ``scale * (expr - zero)``; scales may vary along ``axis``."""

    expr: Expr
    scale: Expr
    zero: Expr
    axis: int

    @property
    def is_byte(self) -> bool:
        return tensor_type_of(self.expr).dtype.name in BYTES

    @property
    def is_uniform(self) -> bool:
        """Whether one scale and one zero point apply to the whole tensor."""
        return all(tensor_type_of(p).shape in ((), (1,)) for p in (self.scale, self.zero))


_Keep: TypeAlias = "Callable[[Call, list[_Stored]], _Stored | None]"


class _Conversion:
    """Rewrites one function: the real value of each node, and its stored integers if it has any."""

    def __init__(self, closing: bool, multiplies: MultipliesBytes) -> None:
        self.closing = closing
        self.multiplies = multiplies
        self.real: dict[Expr, Expr] = {}
        self.stored: dict[Expr, _Stored] = {}

    def run(self, fn: Function) -> Function:
        for node in post_order(fn, enter=enters):
            self.real[node] = over_new_children(node, self.real.__getitem__)
            if isinstance(node, Call) and isinstance(node.op, Op):
                self._call(node)
            elif isinstance(node, TupleGetItem) and node.tuple_value in self.stored:
                whole = self.stored[node.tuple_value]
                field = _typed(TupleGetItem(whole.expr, node.index))
                self.stored[node] = dataclasses.replace(whole, expr=field)
        return as_function(self.real[fn])

    def _call(self, call: Call) -> None:
        name, attrs = op_name(call), call.attrs
        if name == "qnn.dequantize":
            data, scale, zero = (self.real[a] for a in call.args)
            self.stored[call] = _Stored(data, scale, zero, attrs.axis)  # type: ignore[attr-defined]
        elif name == "qnn.quantize":
            closed = self._closed(call)
            if closed is not None:
                self.real[call] = infer_expr(closed, trust=True)
        elif name in _KEEPING:
            arguments = [self._operand(a) for a in call.args]
            found = [a for a in arguments if a is not None]
            is_stored = any(a in self.stored for a in call.args)
            if is_stored and len(found) == len(arguments) and self._may_multiply(name, found):
                kept = _KEEPING[name](call, found)
                if kept is not None:
                    self.stored[call] = kept
                    if name in _PRODUCTS:
                        self.real[call] = _typed(op.qnn.dequantize(
                            kept.expr, kept.scale, kept.zero, axis=kept.axis, span=call.span))

    def _may_multiply(self, name: str, operands: list[_Stored]) -> bool:
        """Whether the call is no contraction, or the target multiplies its 8-bit operands."""
        if name not in _PRODUCTS:
            return True
        x, w = (tensor_type_of(s.expr).dtype for s in operands)
        return x.name in BYTES and w.name in BYTES and self.multiplies(x, w)

    def _operand(self, argument: Expr) -> _Stored | None:
        """The stored integers of an argument. A real constant can take any scale later."""
        found = self.stored.get(argument)
        if found is None and isinstance(argument, Constant):
            return _Stored(argument, const(1.0, "float32"), const(0, INT), -1)
        return found

    def _closed(self, call: Call) -> Expr | None:
        """A quantize, fused with the operator before it, on stored integers."""
        inner, scale, zero = call.args
        attrs: Any = call.attrs
        out = (self.real[scale], self.real[zero])
        known = self.stored.get(inner)
        if known is not None and _is_alike(known, out, attrs.out_dtype):
            return known.expr
        if known is not None:
            if known.is_uniform or attrs.axis == known.axis or tensor_type_of(scale).ndim == 0:
                axis = attrs.axis if known.is_uniform else known.axis
                changes = {**dict(attrs.items()), "axis": axis}
                return op.qnn.requantize(known.expr, known.scale, known.zero, *out, **changes,
                                         span=call.span)
            return None
        rule = _CLOSING.get(op_name(inner)) if self.closing else None
        if rule is None or not isinstance(inner, Call) or tensor_type_of(scale).shape != ():
            return None
        fields = inner.args[0].fields if isinstance(inner.args[0], Tuple) else inner.args
        stored = [self.stored[f] for f in fields if f in self.stored]
        same = {tensor_type_of(s.expr).dtype for s in stored} == {attrs.out_dtype}
        if len(stored) != len(fields) or not same or not all(s.is_uniform for s in stored):
            return None
        return rule(inner, stored, out, attrs.rounding)


def _is_alike(x: _Stored, out: tuple[Expr, Expr], dtype: DType) -> bool:
    """Whether requantizing ``x`` with these parameters would leave it unchanged."""
    same = all(a is b or (isinstance(a, Constant) and isinstance(b, Constant)
                          and np.array_equal(a.data, b.data))
               for a, b in zip((x.scale, x.zero), out, strict=True))
    return same and x.is_uniform and tensor_type_of(x.expr).dtype == dtype


def _same(call: Call, stored: list[_Stored]) -> _Stored | None:
    """For operators that move elements or select among them."""
    (x,) = stored
    if not x.is_uniform:
        return None
    return _Stored(_typed(call.replace(args=(x.expr,), checked_type=None)), x.scale, x.zero, -1)


def _transpose(call: Call, stored: list[_Stored]) -> _Stored | None:
    """The axis along which scales vary is permuted with the others."""
    (x,) = stored
    axis, ndim = -1, tensor_type_of(x.expr).ndim
    if not x.is_uniform:
        axes = call.attrs.axes or tuple(range(ndim))[::-1]  # type: ignore[attr-defined]
        axis = [a % ndim for a in axes].index(x.axis % ndim)
    moved = _typed(call.replace(args=(x.expr,), checked_type=None))
    return _Stored(moved, x.scale, x.zero, axis)


def _relu(_: Call, stored: list[_Stored]) -> _Stored | None:
    (x,) = stored
    is_around_zero = isinstance(x.zero, Constant) and not x.zero.data.any()
    if not x.is_uniform and not is_around_zero:
        return None
    zero = const(0, INT) if is_around_zero else x.zero
    least = op.cast(zero, dtype=tensor_type_of(x.expr).dtype)
    return _Stored(_typed(op.maximum(x.expr, least)), x.scale, x.zero, x.axis)


def _product(
    name: str, outputs: Callable[[Any], int] | None, result: Callable[[Any], int]
) -> _Keep:
    """8-bit data and weight; the scales of the weight vary at most along its output channels."""

    def keep(call: Call, stored: list[_Stored]) -> _Stored | None:
        x, w = stored
        if getattr(call.attrs, "groups", 1) > 1:
            return None  # few multiplications per element: float32 is as fast
        rank = tensor_type_of(w.expr).ndim
        fits = w.is_uniform or (outputs is not None
                                and w.axis % rank == outputs(call.attrs) % rank)
        if not (x.is_byte and w.is_byte and x.is_uniform and fits):
            return None
        attrs = {**dict(call.attrs.items()), "out_dtype": INT}
        integers = getattr(op.qnn, name)(x.expr, w.expr, x.zero, w.zero, x.scale, w.scale, **attrs,
                                         span=call.span)
        scale = op.multiply(x.scale, w.scale)
        return _Stored(_typed(integers), _typed(scale), const(0, INT), result(call.attrs))

    return keep


def _matmul(call: Call, stored: list[_Stored]) -> _Stored | None:
    """As ``nn.dense`` with a transposed weight."""
    x, w = stored
    attrs: Any = call.attrs
    if attrs.transpose_a or not (x.is_byte and w.is_byte and x.is_uniform):
        return None
    columns = 0 if attrs.transpose_b else 1
    if not (w.is_uniform or w.axis % 2 == columns):
        return None
    rows = w.expr if attrs.transpose_b else _typed(op.transpose(w.expr, span=w.expr.span))
    integers = op.qnn.dense(x.expr, rows, x.zero, w.zero, x.scale, w.scale, out_dtype=INT,
                            span=call.span)
    scale = op.multiply(x.scale, w.scale)
    return _Stored(_typed(integers), _typed(scale), const(0, INT), -1)


def _bias_add(call: Call, stored: list[_Stored]) -> _Stored | None:
    """The bias, requantized to the scale of the accumulator (models mostly store it so)."""
    x, bias = stored
    if tensor_type_of(x.expr).dtype != INT:
        return None
    zero = const(0, INT)
    if tensor_type_of(bias.expr).dtype.is_float:
        steps = op.qnn.quantize(bias.expr, x.scale, zero, out_dtype=INT)
    else:
        steps = op.qnn.requantize(bias.expr, bias.scale, bias.zero, x.scale, zero, out_dtype=INT)
    total = call.replace(args=(x.expr, _typed(steps)), checked_type=None)
    return _Stored(_typed(total), x.scale, x.zero, x.axis)


def _add(call: Call, stored: list[_Stored]) -> _Stored | None:
    """A vector added to the int32 result of a contraction, along its last axis."""
    x, bias = stored
    if tensor_type_of(x.expr).ndim < tensor_type_of(bias.expr).ndim:
        x, bias = bias, x
    sums, vector = tensor_type_of(x.expr), tensor_type_of(bias.expr)
    is_last = x.is_uniform or x.axis % sums.ndim == sums.ndim - 1
    if vector.ndim != 1 or vector.shape != sums.shape[-1:] or not is_last or sums.dtype != INT:
        return None
    return _bias_add(call, [x, bias])


def _typed(expr: Expr) -> Expr:
    return infer_expr(expr, trust=True)


def _output_channels(attrs: Any) -> int:
    return Layout.parse(attrs.data_layout).index_of("C")


_MOVING = ("expand_dims", "nn.batch_flatten", "nn.max_pool2d", "reshape", "split", "squeeze",
           "strided_slice", "max", "min", "copy")
_PRODUCTS = ("nn.batch_matmul", "nn.conv2d", "nn.dense", "nn.matmul")
_KEEPING: Mapping[str, _Keep] = {
    **dict.fromkeys(_MOVING, _same),
    "transpose": _transpose,
    "nn.relu": _relu,
    "nn.bias_add": _bias_add,
    "add": _add,
    "nn.batch_matmul": _product("batch_matmul", None, lambda _: -1),
    "nn.matmul": _matmul,
    "nn.dense": _product("dense", lambda a: Layout.parse(a.weight_layout).index_of("N"),
                         lambda _: -1),
    "nn.conv2d": _product("conv2d", lambda a: Layout.parse(a.kernel_layout).index_of("O"),
                          _output_channels),
}
_Close: TypeAlias = "Callable[[Call, list[_Stored], tuple[Expr, Expr], str], Expr]"


def _binary(name: str) -> _Close:
    def close(call: Call, stored: list[_Stored], out: tuple[Expr, Expr], rounding: str) -> Expr:
        a, b = stored
        result: Expr = getattr(op.qnn, name)(a.expr, b.expr, a.scale, a.zero, b.scale, b.zero,
                                             *out, rounding=rounding, span=call.span)
        return result

    return close


def _unary(name: str, *attributes: str) -> _Close:
    def close(call: Call, stored: list[_Stored], out: tuple[Expr, Expr], rounding: str) -> Expr:
        (x,) = stored
        kept = {key: getattr(call.attrs, key) for key in attributes}
        result: Expr = getattr(op.qnn, name)(x.expr, x.scale, x.zero, *out, rounding=rounding,
                                             **kept, span=call.span)
        return result

    return close


def _concatenate(
    call: Call, stored: list[_Stored], out: tuple[Expr, Expr], rounding: str
) -> Expr:
    data, scales, zeros = (Tuple(tuple(getattr(s, part) for s in stored))
                           for part in ("expr", "scale", "zero"))
    result: Expr = op.qnn.concatenate(data, scales, zeros, *out, rounding=rounding,
                                      axis=call.attrs.axis,  # type: ignore[attr-defined]
                                      span=call.span)
    return result


_CLOSING: Mapping[str, _Close] = {
    "add": _binary("add"), "subtract": _binary("subtract"), "multiply": _binary("mul"),
    "concatenate": _concatenate, "nn.leaky_relu": _unary("leaky_relu", "alpha"),
    "nn.softmax": _unary("softmax", "axis"),
    **{name: _unary(name) for name in ("abs", "erf", "exp", "log", "rsqrt", "sigmoid", "sqrt",
                                       "tanh")},
}  # fmt: skip
