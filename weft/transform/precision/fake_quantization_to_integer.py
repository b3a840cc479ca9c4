"""Fake quantization to integer: compute on stored integers between dequantize and quantize.

Quantization tools produce models in which every heavy operator computes on reals and stands
between ``qnn.dequantize`` and ``qnn.quantize``. The pass converts two kinds of operators: those
that keep the scale of their operands (reshapes, maxima, and GEMMs and convolutions, whose scale
is the product of the scales), and those that need the scale of their result, which the
``qnn.quantize`` after them gives.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias

from weft import op
from weft.codegen.backend import cost_model_of
from weft.ir import (
    Call,
    Constant,
    Expr,
    Function,
    Op,
    TensorType,
    Tuple,
    TupleGetItem,
    const,
    infer_expr,
)
from weft.ir.affine import TensorAffineType
from weft.ir.analysis import known_type
from weft.ir.contents import Seeks
from weft.ir.dtype import DType
from weft.ir.passes import FunctionPass, PassContext, register_pass
from weft.ir.visitor import post_order
from weft.op.qnn.composed import check_parameters
from weft.op.qnn.integer_forms import (
    BYTES,
    INT,
    RequantizedForm,
    Stored,
    integer_form_of,
    type_of_tensor,
    typed,
)
from weft.support.dataclass import dataclass
from weft.transform.analysis.graph import (
    as_function,
    enters,
    op_name,
    over_new_children,
    traits_of,
)

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
    Contractions stay real too where the cost model of the target says that it lacks instructions
    for their two dtypes.

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
    seeks: ClassVar[Seeks] = Seeks(operators=("qnn.quantize", "qnn.dequantize"))
    closing: bool = True

    def run(self, fn: Function, ctx: PassContext) -> Function:
        costs = cost_model_of(ctx)
        multiplies = (lambda _a, _b: True) if costs is None else costs.multiplies_bytes
        return _Conversion(self.closing, multiplies).run(fn)


def stored_values(fn: Function) -> dict[Expr, Stored]:
    """The values of a function that operators can compute on stored integers, by expression."""
    conversion = _Conversion(closing=False, multiplies=lambda _a, _b: True)
    conversion.run(fn)
    return conversion.stored


class _Conversion:
    """Rewrites one function: the real value of each node, and its stored integers if it has any."""

    def __init__(self, closing: bool, multiplies: MultipliesBytes) -> None:
        self.closing = closing
        self.multiplies = multiplies
        self.real: dict[Expr, Expr] = {}
        self.stored: dict[Expr, Stored] = {}

    def run(self, fn: Function) -> Function:
        for node in post_order(fn, enter=enters):
            self.real[node] = over_new_children(node, self.real.__getitem__)
            if isinstance(node, Call) and isinstance(node.op, Op):
                self._call(node)
            elif isinstance(node, TupleGetItem) and node.tuple_value in self.stored:
                whole = self.stored[node.tuple_value]
                field = typed(TupleGetItem(whole.expr, node.index))
                self.stored[node] = dataclasses.replace(whole, expr=field)
        return as_function(self.real[fn])

    def _call(self, call: Call) -> None:
        name, attrs = op_name(call), call.attrs
        if name.startswith("qnn."):
            check_parameters(call)
        keep = integer_form_of(call.op) if isinstance(call.op, Op) else None
        if name == "qnn.dequantize":
            data, scale, zero = (self.real[a] for a in call.args)
            self.stored[call] = Stored.of(data, scale, zero, attrs.axis)  # type: ignore[attr-defined]
        elif name == "qnn.quantize":
            closed = self._closed(call)
            if closed is not None:
                self.real[call] = infer_expr(closed, trust=True)
        elif keep is not None:
            operands = _operands(call)
            arguments = [self._operand(a) for a in operands]
            found = [a for a in arguments if a is not None]
            is_stored = any(a in self.stored for a in operands)
            if is_stored and len(found) == len(arguments) and self._may_multiply(call, found):
                kept = keep(call, found)
                if kept is not None:
                    self.stored[call] = kept
                    traits = traits_of(call)
                    # Moved as integers, elements take a quarter of the bytes.
                    is_moved = traits.keeps_scale and isinstance(known_type(call), TensorType)
                    if traits.is_contraction or is_moved:
                        self.real[call] = typed(op.qnn.dequantize(
                            kept.expr, kept.scale, kept.zero, axis=kept.axis, span=call.span))

    def _may_multiply(self, call: Call, operands: list[Stored]) -> bool:
        """Whether the call is no contraction, or the target multiplies its 8-bit operands."""
        if not traits_of(call).is_contraction:
            return True
        x, w = (type_of_tensor(s.expr).dtype for s in operands)
        return x.name in BYTES and w.name in BYTES and self.multiplies(x, w)

    def _operand(self, argument: Expr) -> Stored | None:
        """The stored integers of an argument. A real constant can take any scale later."""
        found = self.stored.get(argument)
        if found is None and isinstance(argument, Constant):
            return Stored.of(argument, const(1.0, "float32"), const(0, INT), -1)
        return found

    def _closed(self, call: Call) -> Expr | None:
        """A quantize, fused with the operator before it, on stored integers."""
        inner, scale, zero = call.args
        attrs: Any = call.attrs
        out = (self.real[scale], self.real[zero])
        known = self.stored.get(inner)
        wanted = TensorAffineType(*out, attrs.out_dtype, attrs.axis)
        if known is not None and known.is_uniform and known.type.is_same(wanted):
            return known.expr
        if known is not None:
            if known.is_uniform or attrs.axis == known.axis or type_of_tensor(scale).ndim == 0:
                axis = attrs.axis if known.is_uniform else known.axis
                changes = {**dict(attrs.items()), "axis": axis}
                return op.qnn.requantize(known.expr, known.scale, known.zero, *out, **changes,
                                         span=call.span)
            return None
        if not self.closing or not isinstance(inner, Call) or not isinstance(inner.op, Op):
            return None
        rule: RequantizedForm | None = inner.op.hook("requantized_form")
        if rule is None or type_of_tensor(scale).shape != ():
            return None
        fields = _operands(inner)
        stored = [self.stored[f] for f in fields if f in self.stored]
        same = {type_of_tensor(s.expr).dtype for s in stored} == {attrs.out_dtype}
        if len(stored) != len(fields) or not same or not all(s.is_uniform for s in stored):
            return None
        return rule(inner, stored, out, attrs.rounding)


def _operands(call: Call) -> tuple[Expr, ...]:
    """The arguments, or the fields of a single one that is a tuple."""
    (first, *others) = call.args
    return first.fields if isinstance(first, Tuple) and not others else call.args
