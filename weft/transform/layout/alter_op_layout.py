"""Runs operators in the layouts that their kernels prefer, and keeps these between operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

from weft import ir, op
from weft.codegen.backend import cost_model_of
from weft.codegen.cost_model import NEUTRAL
from weft.ir.typing.infer import typed_call
from weft.op.layout_inference import LayoutResult
from weft.support.dataclass import dataclass
from weft.topi.layout import Layout
from weft.transform.analysis import graph
from weft.transform.layout.layout_choice import AlterLayoutHook, LayoutChoice
from weft.transform.layout.layout_cost import ConversionCost, LayoutCosts


@ir.register_pass
@dataclass(frozen=True)
class AlterOpLayout(ir.FunctionPass):
    """Give anchors their preferred layouts, and keep values in them between anchors.

    ``config["alter_layout"]`` of the context maps operator names to hooks that return a
    ``LayoutChoice``; the pass converts the arguments accordingly. Of several choices, it takes the
    one that is fastest together with the conversions before and after it, by the cost model of the
    target (``LayoutCosts``). Operators with a ``layout`` hook run in the layout of their data; the
    others, and the results of the function, get the original layout back.
    ``fold_constant`` converts constants, so weights are packed when the model is compiled. Without
    hooks nothing changes.

    With a hook that wants blocks of 8 channels:

    def @main(%x: Tensor[(1, 8, 4, 4), float32], %w: Tensor[(8, 8, 1, 1), float32]) {
      nn.relu(nn.conv2d(%x, %w))
    }
    =>
    def @main(%x: Tensor[(1, 8, 4, 4), float32], %w: Tensor[(8, 8, 1, 1), float32]) {
      %0 = layout_transform(%x, src_layout="NCHW", dst_layout="NCHW8c");
      %1 = layout_transform(%w, src_layout="OIHW", dst_layout="OIHW8i8o");
      %2 = nn.conv2d(%0, %1, data_layout="NCHW8c", kernel_layout="OIHW8i8o", out_layout="NCHW8c");
      layout_transform(nn.relu(%2), src_layout="NCHW8c", dst_layout="NCHW")
    }
    """

    name: ClassVar[str] = "alter_op_layout"
    opt_level: ClassVar[int] = 3
    seeks: ClassVar[ir.Seeks] = ir.Seeks(table="alter_layout")

    def run(self, fn: ir.Function, ctx: ir.PassContext) -> ir.Function:
        hooks: Mapping[str, AlterLayoutHook] = ctx.config.get("alter_layout", {})
        if not hooks:
            return fn
        costs = cost_model_of(ctx) or NEUTRAL
        return _Relayout(hooks, ctx.target, costs.conversion_seconds).run(fn)


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A rewritten value; ``layout`` is ``None`` if it has its original layout.

    The primal axes of ``layout`` are in the order of the original value.
    """

    expr: ir.Expr
    layout: Layout | None = None


@dataclass(frozen=True, slots=True)
class _Fields:
    """A rewritten tuple, each field with its layout."""

    fields: tuple[_Value, ...]


_Value: TypeAlias = "_Tensor | _Fields"
_Layouts: TypeAlias = Any  # Layout, None, or a tuple of these for an argument that is a tuple


class _Relayout:
    """One rewriting of one function."""

    def __init__(
        self, hooks: Mapping[str, AlterLayoutHook], target: Any, conversion: ConversionCost
    ) -> None:
        self.hooks = hooks
        self.conversion = conversion
        self.target = target
        self.values: dict[ir.Expr, _Value] = {}
        self.converted: dict[tuple[ir.Expr, str, str], ir.Expr] = {}

    def run(self, fn: ir.Function) -> ir.Function:
        nodes = list(ir.post_order(fn, enter=graph.enters))
        self.costs = LayoutCosts(nodes, self._choices, self.conversion)
        for node in nodes:
            self.values[node] = self._visit(node)
        return graph.as_function(self._original(self.values[fn]))

    def _visit(self, node: ir.Expr) -> _Value:
        if isinstance(node, ir.Call) and isinstance(node.op, ir.Op):
            return self._call(node, node.op)
        if isinstance(node, ir.Tuple):
            return self._tuple(node)
        if isinstance(node, ir.TupleGetItem):
            whole = self.values[node.tuple_value]
            if isinstance(whole, _Fields):
                return whole.fields[node.index]
        return _Tensor(self._rebuilt(node))

    def _tuple(self, node: ir.Tuple) -> _Value:
        fields = tuple(self.values[f] for f in node.fields)
        if all(isinstance(f, _Tensor) and f.layout is None for f in fields):
            return _Tensor(self._rebuilt(node))
        return _Fields(fields)

    def _rebuilt(self, node: ir.Expr) -> ir.Expr:
        """The node over operands in their original layouts."""
        return graph.over_new_children(node, lambda c: self._original(self.values[c]))

    def _choices(self, call: ir.Call, operator: ir.Op) -> Sequence[LayoutChoice]:
        """The choices that the hook of an operator offers for a call."""
        hook = self.hooks.get(operator.name)
        if hook is None:
            return ()
        offered = hook(call, [graph.type_of(a) for a in call.args], self.target)
        if offered is None:
            return ()
        return (offered,) if isinstance(offered, LayoutChoice) else offered

    # -- calls -------------------------------------------------------------------------------

    def _call(self, call: ir.Call, operator: ir.Op) -> _Value:
        if self.costs.has_choices(call):
            # The layout follows the data; constant weights are converted at compile time.
            arriving = self.values[call.args[0]]
            layout = arriving.layout if isinstance(arriving, _Tensor) else None
            return self._anchor(call, self.costs.cheapest(call, layout))
        result = self._propagated(call, operator)
        return _Tensor(self._rebuilt(call)) if result is None else result

    def _anchor(self, call: ir.Call, choice: LayoutChoice) -> _Value:
        paddings = choice.paddings or (None,) * len(call.args)
        args = tuple(
            self._original(self.values[arg]) if pair is None
            else self._from_to(arg, *pair) if padding is None
            else self._convert(self._padded(arg, padding), *pair)
            for arg, pair, padding in zip(call.args, choice.input_layouts, paddings, strict=True)
        )
        layout = None if choice.output_layout is None else Layout.parse(choice.output_layout)
        if layout is not None and layout.is_primal:
            layout = None
        result = _Tensor(typed_call(call.replace(args=args, attrs=choice.attrs)), layout)
        if choice.cut is None:
            return result
        axis, size = choice.cut
        kept = op.strided_slice(self._original(result), begin=(0,), end=(size,), axes=(axis,),
                                span=call.span)
        return _Tensor(typed_call(kept))

    def _padded(self, arg: ir.Expr, zeros: Sequence[int]) -> ir.Expr:
        """``arg`` in its original layout, with that many zeros appended along each axis."""
        value = self._original(self.values[arg])
        zero = ir.const(0, graph.tensor_type_of(arg).dtype)
        return typed_call(
            op.nn.pad(value, zero, pad_width=tuple((0, n) for n in zeros), span=arg.span))

    def _from_to(self, arg: ir.Expr, original: str, wanted: str) -> ir.Expr:
        value = self.values[arg]
        if isinstance(value, _Tensor) and value.layout is not None:
            present = value.layout
            if present.primal.name == original:
                return self._convert(value.expr, present.name, wanted)
        return self._convert(self._original(value), original, wanted)

    def _propagated(self, call: ir.Call, operator: ir.Op) -> _Value | None:
        """The call in the layout of its data, ``None`` if it cannot run in it."""
        infer = operator.hook("layout")
        arriving = tuple(_layouts_of(self.values[a]) for a in call.args)
        if infer is None or not any(map(_is_blocked, arriving)):
            return None
        types = tuple(map(graph.type_of, call.args))
        result: LayoutResult | None = infer(call.attrs, arriving, types)
        if result is None:
            return None
        wanted = zip(call.args, result.inputs, strict=True)
        args = tuple(self._in(self.values[arg], layouts) for arg, layouts in wanted)
        new = typed_call(call.replace(args=args, attrs=result.attrs))
        return _value_of(new, graph.type_of(call), result.outputs)

    # -- conversions -------------------------------------------------------------------------

    def _in(self, value: _Value, layouts: _Layouts) -> ir.Expr:
        """``value`` in the given layouts; ``None`` is the original layout."""
        if layouts is None:
            return self._original(value)
        if isinstance(layouts, tuple):
            fields = _fields_of(value, len(layouts))
            wanted = zip(fields, layouts, strict=True)
            return ir.Tuple(tuple(self._in(f, layout) for f, layout in wanted))
        if isinstance(value, _Fields):
            return self._in(value, (layouts,) * len(value.fields))
        if value.layout is None or value.layout.primal != layouts.primal:
            # The producer chose the names of the axes, so only their order means the same to both.
            return self._convert(self._original(value), layouts.primal.name, layouts.name)
        return self._convert(value.expr, value.layout.name, layouts.name)

    def _original(self, value: _Value) -> ir.Expr:
        if isinstance(value, _Fields):
            return ir.Tuple(tuple(self._original(f) for f in value.fields))
        if value.layout is None:
            return value.expr
        return self._convert(value.expr, value.layout.name, value.layout.primal.name)

    def _convert(self, expr: ir.Expr, src: str, dst: str) -> ir.Expr:
        if src == dst:
            return expr
        # All users of a value share its conversion.
        key = expr, src, dst
        if key not in self.converted:
            self.converted[key] = typed_call(
                op.layout_transform(expr, src_layout=src, dst_layout=dst, span=expr.span))
        return self.converted[key]


def _layouts_of(value: _Value) -> _Layouts:
    if isinstance(value, _Fields):
        return tuple(map(_layouts_of, value.fields))
    return value.layout


def _is_blocked(layouts: _Layouts) -> bool:
    return any(map(_is_blocked, layouts)) if isinstance(layouts, tuple) else layouts is not None


def _fields_of(value: _Value, count: int) -> tuple[_Value, ...]:
    if isinstance(value, _Fields):
        return value.fields
    if isinstance(value.expr, ir.Tuple):
        return tuple(map(_Tensor, value.expr.fields))
    return tuple(_Tensor(ir.TupleGetItem(value.expr, i)) for i in range(count))


def _value_of(call: ir.Expr, original: ir.Type, layouts: Sequence[Layout | None]) -> _Value:
    if not isinstance(original, ir.TupleType):
        return _Tensor(call, layouts[0])
    fields = tuple(_Tensor(ir.TupleGetItem(call, i), layout) for i, layout in enumerate(layouts))
    return _Fields(fields)
