"""Mixed precision: compute-bound operators in 16 bits, numerically sensitive ones in 32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypeAlias

from weft import ir, op
from weft.support.dataclass import dataclass
from weft.support.errors import OptionError
from weft.transform.analysis.graph import as_function, enters, known_type, over_new_children


@ir.register_pass
@dataclass(frozen=True)
class ToMixedPrecision(ir.FunctionPass):
    """Mixed precision: compute in ``dtype`` (float16 or bfloat16) where the accuracy allows it.

    The trait ``mixed_precision`` of an operator decides; ``always`` and ``never``, if given, name
    operators in its stead. ``ALWAYS`` operators take float32 operands in ``dtype``, ``NEVER``
    operators in float32. The others follow their operands: they compute in ``dtype`` if every
    operand has it already or is constant. With ``accumulate``, ``ALWAYS`` operators accumulate in
    that dtype and round once. Parameters and results of functions keep their types, and so do
    operands of expressions other than operator calls.

    def @main(%x: Tensor[(2, 4), float32], %w: Tensor[(3, 4), float32]) {
      exp(nn.relu(nn.dense(%x, %w)))
    }
    =>
    def @main(%x: Tensor[(2, 4), float32], %w: Tensor[(3, 4), float32]) {
      %0 = nn.dense(cast(%x, dtype="float16"), cast(%w, dtype="float16"));
      exp(cast(nn.relu(%0), dtype="float32"))
    }
    """

    name: ClassVar[str] = "to_mixed_precision"
    opt_level: ClassVar[int] = 0
    dtype: str = "float16"
    always: tuple[str, ...] | None = None
    never: tuple[str, ...] | None = None
    accumulate: str | None = None

    def conversion_of(self, operator: ir.Op) -> ir.MixedPrecision:
        """Whether to convert calls of ``operator``: by the options if given, else by its trait."""
        declared = operator.traits.mixed_precision
        if _listed(operator, self.never, declared is ir.MixedPrecision.NEVER):
            return ir.MixedPrecision.NEVER
        if _listed(operator, self.always, declared is ir.MixedPrecision.ALWAYS):
            return ir.MixedPrecision.ALWAYS
        return ir.MixedPrecision.FOLLOW

    def run(self, fn: ir.Function, ctx: ir.PassContext) -> ir.Function:  # noqa: ARG002
        low = ir.DType.of(self.dtype)
        if not low.is_float or low.bits != 16:
            raise OptionError("mixed precision needs a 16-bit floating-point dtype",
                              expected="float16, bfloat16", got=self.dtype)
        return _Conversion(self, low).run(fn)


def _listed(operator: ir.Op, names: tuple[str, ...] | None, declared: bool) -> bool:
    return declared if names is None else operator.name in names


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A rewritten value; ``is_low`` if it was float32 and now has the low dtype."""

    expr: ir.Expr
    is_low: bool = False


_Value: TypeAlias = "_Tensor | tuple[_Value, ...]"


class _Conversion:
    """Rewrites one function."""

    def __init__(self, options: ToMixedPrecision, low: ir.DType) -> None:
        self.low = low
        self.options = options
        self.accumulate = None if options.accumulate is None else ir.DType.of(options.accumulate)
        self.values: dict[ir.Expr, _Value] = {}
        self.casts: dict[tuple[ir.Expr, ir.DType], ir.Expr] = {}

    def run(self, fn: ir.Function) -> ir.Function:
        for node in ir.post_order(fn, enter=enters):
            self.values[node] = self._visit(node)
        return as_function(self._written(self.values[fn]))

    def _visit(self, node: ir.Expr) -> _Value:
        if isinstance(node, ir.Call) and isinstance(node.op, ir.Op):
            return self._call(node, node.op)
        if isinstance(node, ir.Tuple):
            fields = tuple(self.values[f] for f in node.fields)
            return fields if any(map(_has_low, fields)) else _Tensor(self._rebuilt(node))
        if isinstance(node, ir.TupleGetItem):
            whole = self.values[node.tuple_value]
            if isinstance(whole, tuple):
                return whole[node.index]
        return _Tensor(self._rebuilt(node))

    def _rebuilt(self, node: ir.Expr) -> ir.Expr:
        return over_new_children(node, lambda c: self._written(self.values[c]))

    def _call(self, call: ir.Call, operator: ir.Op) -> _Value:
        values = [self.values[a] for a in call.args]
        conversion = self.options.conversion_of(operator)
        if conversion is ir.MixedPrecision.NEVER or hasattr(call.attrs, "dtype"):
            return _Tensor(self._rebuilt(call))  # an explicit dtype is intended
        if conversion is ir.MixedPrecision.ALWAYS:
            return self._always(call, values)
        if not any(map(_has_low, values)) or not all(map(self._may_follow, values)):
            return _Tensor(self._rebuilt(call))
        return self._applied(call, values)

    def _may_follow(self, value: _Value) -> bool:
        """Whether a value has the low dtype, or can have it without rounding at run time."""
        if isinstance(value, tuple):
            return all(map(self._may_follow, value))
        return value.is_low or isinstance(value.expr, ir.Constant) or not _is_float32(value.expr)

    def _always(self, call: ir.Call, values: Sequence[_Value]) -> _Value:
        if not _is_float32(call) or not all(_is_float32(a) for a in call.args):
            return _Tensor(self._rebuilt(call))
        if self.accumulate is None:
            return self._applied(call, values)
        args = tuple(self._lowered(v) for v in values)
        attrs = call.attrs.replace(out_dtype=self.accumulate)
        return _Tensor(self._cast(call.replace(args=args, attrs=attrs), self.low), is_low=True)

    def _applied(self, call: ir.Call, values: Sequence[_Value]) -> _Value:
        """The call with operands in the low dtype."""
        changes: dict[str, object] = {"args": tuple(self._lowered(v) for v in values)}
        if getattr(call.attrs, "out_dtype", None) is not None:
            changes["attrs"] = call.attrs.replace(out_dtype=None)
        result = ir.infer_expr(call.replace(**changes), trust=True)
        return _as_value(result, known_type(call), self.low)

    # -- dtypes ------------------------------------------------------------------------------

    def _lowered(self, value: _Value) -> ir.Expr:
        if isinstance(value, tuple):
            return ir.Tuple(tuple(map(self._lowered, value)))
        if value.is_low or not _is_float32(value.expr):
            return value.expr
        return self._cast(value.expr, self.low)

    def _written(self, value: _Value) -> ir.Expr:
        """The value in its original type."""
        if isinstance(value, tuple):
            return ir.infer_expr(ir.Tuple(tuple(map(self._written, value))), trust=True)
        return self._cast(value.expr, ir.float32) if value.is_low else value.expr

    def _cast(self, expr: ir.Expr, dtype: ir.DType) -> ir.Expr:
        key = expr, dtype
        if key not in self.casts:
            cast = op.cast(expr, dtype=dtype, span=expr.span)
            self.casts[key] = ir.infer_expr(cast, trust=True)
        return self.casts[key]


def _is_float32(expr: ir.Expr) -> bool:
    type_ = known_type(expr)
    return isinstance(type_, ir.TensorType) and type_.dtype == ir.float32


def _has_low(value: _Value) -> bool:
    return any(map(_has_low, value)) if isinstance(value, tuple) else value.is_low


def _as_value(expr: ir.Expr, written: ir.Type | None, low: ir.DType) -> _Value:
    if isinstance(written, ir.TupleType):
        type_ = known_type(expr)
        fields = type_.fields if isinstance(type_, ir.TupleType) else written.fields
        return tuple(
            _as_value(ir.TupleGetItem(expr, i, checked_type=f), w, low)
            for i, (w, f) in enumerate(zip(written.fields, fields, strict=True))
        )
    type_ = known_type(expr)
    changed = isinstance(type_, ir.TensorType) and type_.dtype == low and type_ != written
    return _Tensor(expr, is_low=changed)
