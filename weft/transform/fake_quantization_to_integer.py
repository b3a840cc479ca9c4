"""Real arithmetic between dequantize and quantize, done on the stored integers instead.

Tools for quantisation leave models in which every heavy operator is real and stands between
``qnn.dequantize`` and ``qnn.quantize``. Two kinds of operators move in between: those that keep
the scale of what they get (reshapes, maxima, products, whose scale is the product of scales), and
those that need the scale of their result, which ``qnn.quantize`` behind them names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from weft import op
from weft.ir.dtype import DType
from weft.ir.expr import Call, Constant, Expr, Function, Tuple, const
from weft.ir.op import Op
from weft.ir.passes import FunctionPass, PassContext, register_pass
from weft.ir.typing.infer import infer_expr
from weft.ir.visitor import children, post_order, rebuild
from weft.topi.layout import Layout
from weft.transform.graph import as_function, enters, op_name, tensor_type_of

BYTES = ("int8", "uint8")
INT = DType.of("int32")


@register_pass
@dataclass(frozen=True)
class FakeQuantizationToInteger(FunctionPass):
    """Compute on stored integers what stands between ``qnn.dequantize`` and ``qnn.quantize``.

    Sums of products are exact in int32 and rounded once, where real arithmetic rounded at each
    step: results may differ by one step. What has no integer form stays real.

    def @main(%x: Tensor[(2, 3), int8]) {
      qnn.quantize(nn.relu(qnn.dequantize(%x, 0.5f, 1)), 0.25f, 2)
    }
    =>
    def @main(%x: Tensor[(2, 3), int8]) {
      qnn.requantize(maximum(%x, cast(1, dtype="int8")), 0.5f, 1, 0.25f, 2)
    }
    """

    name: ClassVar[str] = "fake_quantization_to_integer"
    opt_level: ClassVar[int] = 0

    def run(self, fn: Function, ctx: PassContext) -> Function:  # noqa: ARG002
        return _Conversion().run(fn)


@dataclass(frozen=True, slots=True)
class _Stored:
    """A real value as ``scale * (expr - zero)``; scales may vary along ``axis``."""

    expr: Expr
    scale: Expr
    zero: Expr
    axis: int

    @property
    def is_byte(self) -> bool:
        return tensor_type_of(self.expr).dtype.name in BYTES

    @property
    def is_uniform(self) -> bool:
        """Whether one scale and one zero point hold for the whole tensor."""
        return all(tensor_type_of(p).shape in ((), (1,)) for p in (self.scale, self.zero))


_Keep: TypeAlias = "Callable[[Call, list[_Stored]], _Stored | None]"


class _Conversion:
    """One rewriting of one function: real values, and beside them stored ones where there are."""

    def __init__(self) -> None:
        self.real: dict[Expr, Expr] = {}
        self.stored: dict[Expr, _Stored] = {}

    def run(self, fn: Function) -> Function:
        for node in post_order(fn, enter=enters):
            self.real[node] = self._rebuilt(node)
            if isinstance(node, Call) and isinstance(node.op, Op):
                self._call(node)
        return as_function(self.real[fn])

    def _rebuilt(self, node: Expr) -> Expr:
        old = children(node) if enters(node) else ()
        parts = [self.real[c] for c in old]
        if all(a is b for a, b in zip(old, parts, strict=True)):
            return node
        return rebuild(node, parts, checked_type=node.checked_type)

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
            if len(found) == len(arguments):
                kept = _KEEPING[name](call, found)
                if kept is not None:
                    self.stored[call] = kept

    def _operand(self, argument: Expr) -> _Stored | None:
        """What is stored of an argument. Real constants take any scale later on."""
        found = self.stored.get(argument)
        if found is None and isinstance(argument, Constant):
            return _Stored(argument, const(1.0, "float32"), const(0, INT), -1)
        return found

    def _closed(self, call: Call) -> Expr | None:
        """A quantize on stored integers, together with the operator in front of it."""
        inner, scale, zero = call.args
        attrs: Any = call.attrs
        out = (self.real[scale], self.real[zero])
        known = self.stored.get(inner)
        if known is not None:
            if known.is_uniform or attrs.axis == known.axis or tensor_type_of(scale).ndim == 0:
                axis = attrs.axis if known.is_uniform else known.axis
                changes = {**dict(attrs.items()), "axis": axis}
                return op.qnn.requantize(known.expr, known.scale, known.zero, *out, **changes,
                                         span=call.span)
            return None
        rule = _CLOSING.get(op_name(inner))
        if rule is None or not isinstance(inner, Call) or tensor_type_of(scale).shape != ():
            return None
        fields = inner.args[0].fields if isinstance(inner.args[0], Tuple) else inner.args
        stored = [self.stored[f] for f in fields if f in self.stored]
        same = {tensor_type_of(s.expr).dtype for s in stored} == {attrs.out_dtype}
        if len(stored) != len(fields) or not same or not all(s.is_uniform for s in stored):
            return None
        return rule(inner, stored, out, attrs.rounding)


def _same(call: Call, stored: list[_Stored]) -> _Stored | None:
    """The operator moves numbers or picks among them."""
    (x,) = stored
    if not x.is_uniform:
        return None
    return _Stored(_typed(call.replace(args=(x.expr,), checked_type=None)), x.scale, x.zero, -1)


def _relu(_: Call, stored: list[_Stored]) -> _Stored | None:
    (x,) = stored
    if not x.is_uniform:
        return None
    least = op.cast(x.zero, dtype=tensor_type_of(x.expr).dtype)
    return _Stored(_typed(op.maximum(x.expr, least)), x.scale, x.zero, -1)


def _product(name: str, outputs: Callable[[Any], int], result: Callable[[Any], int]) -> _Keep:
    """Data and weight of bytes; the weight's scales vary along its outputs at most."""

    def keep(call: Call, stored: list[_Stored]) -> _Stored | None:
        x, w = stored
        rank = tensor_type_of(w.expr).ndim
        fits = w.is_uniform or w.axis % rank == outputs(call.attrs) % rank
        if not (x.is_byte and w.is_byte and x.is_uniform and fits):
            return None
        attrs = {**dict(call.attrs.items()), "out_dtype": INT}
        integers = getattr(op.qnn, name)(x.expr, w.expr, x.zero, w.zero, x.scale, w.scale, **attrs,
                                         span=call.span)
        scale = op.multiply(x.scale, w.scale)
        return _Stored(_typed(integers), _typed(scale), const(0, INT), result(call.attrs))

    return keep


def _bias_add(call: Call, stored: list[_Stored]) -> _Stored | None:
    """The bias goes to the scale of the sums, which it is mostly stored at already."""
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


def _typed(expr: Expr) -> Expr:
    return infer_expr(expr, trust=True)


def _output_channels(attrs: Any) -> int:
    return Layout.parse(attrs.data_layout).index_of("C")


_MOVING = ("expand_dims", "nn.batch_flatten", "nn.max_pool2d", "reshape", "squeeze",
           "strided_slice", "transpose", "max", "min", "copy")
_KEEPING: Mapping[str, _Keep] = {
    **dict.fromkeys(_MOVING, _same),
    "nn.relu": _relu,
    "nn.bias_add": _bias_add,
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
