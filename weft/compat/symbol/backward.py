"""The gradients of one node as a node: ``_backward_dense`` of the operands and of the gradient.

Such a node has the inputs of the forward node, then the gradient of each of its results, and gives
the gradient of each input. Its program is made when it is lowered, where types are known, by the
rules of ``weft.grad`` with ``training=False``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from weft import ir
from weft.compat.symbol.inference import Shapes, merged_shape
from weft.compat.symbol.operator import FAMILIES, SymbolOp, operator
from weft.compat.symbol.slots import DERIVED, set_attr
from weft.compat.symbol.symbol import Symbol, apply_operator
from weft.op.gradients import typed_zeros
from weft.transform.analysis.graph import as_function, type_of
from weft.transform.autodiff.reverse.adjoint import is_differentiable
from weft.transform.autodiff.reverse.differentiable import check_gradients_exist
from weft.transform.autodiff.reverse.expand_for_gradient import ExpandForGradient
from weft.transform.autodiff.reverse.pure_graph import pure_graph
from weft.transform.autodiff.reverse.sweep import gradients_of
from weft.transform.normal_form.alpha import fresh_copy

PREFIX = "_backward_"

# NNVM's FGradient: (node, the gradient of each of its results) -> that of each of its inputs.
FGradient: TypeAlias = "Callable[[Symbol, Sequence[Symbol]], Sequence[Symbol] | Symbol]"

_MADE: dict[str, SymbolOp] = {}


def by_weft(node: Symbol, out_grads: Sequence[Symbol]) -> Symbol:
    """The slot ``FGradient`` of operators without one of their own: weft's differentiation."""
    forward = node.node
    assert forward.op is not None
    inputs = [Symbol((entry,)) for entry in forward.inputs]
    own = {field: forward.attrs[field] for field in forward.attrs
           if field in forward.op.attrs_type.__dataclass_fields__}
    return apply_operator(_backward_of(forward.op), *inputs, *out_grads,
                          name=f"{forward.name}_grad", attr_texts=own)


def _backward_of(forward: SymbolOp) -> SymbolOp:
    """The operator that gives the gradients of the inputs of ``forward``."""
    name = f"{PREFIX}{forward.name}"
    known = _MADE.get(name)
    if known is not None:
        return known

    def lower(attrs: Any, args: Sequence[ir.Expr]) -> ir.Expr:
        count = _operands(forward, attrs, len(args))
        return _gradients(forward, attrs, args[:count], args[count:])

    def types(attrs: Any, args: Sequence[ir.Expr]) -> ir.Type:
        found = [type_of(x) for x in args[:_operands(forward, attrs, len(args))]]
        return found[0] if len(found) == 1 else ir.TupleType(tuple(found))

    def shapes(_attrs: Any, ins: Shapes, outs: Shapes) -> tuple[Shapes, Shapes]:
        both = [merged_shape(one, other) for one, other in zip(ins, outs, strict=False)]
        return [*both, *ins[len(both):]], both

    made = _MADE[name] = SymbolOp(
        name, forward.attrs_type, lambda _attrs: ("*inputs",), lower, None,
        lambda attrs, total: _operands(forward, attrs, total), types)
    set_attr(made, "FInferShape", shapes)
    return made


def _operands(forward: SymbolOp, attrs: Any, total: int) -> int:
    """How many of the inputs of the backward node are those of the forward node."""
    names = forward.inputs(attrs)
    if not (names and names[0].startswith("*")):
        return len(names)
    results = forward.outputs or (lambda _attrs, _count: 1)
    return next(n for n in range(total + 1) if n + results(attrs, n) == total)


def _gradients(forward: SymbolOp, attrs: Any, xs: Sequence[ir.Expr], dys: Sequence[ir.Expr]
               ) -> ir.Expr:
    """The gradients of ``xs``: one expression, or a tuple of several."""
    params = tuple(ir.Var(f"x{i}", type_of(x), checked_type=type_of(x)) for i, x in enumerate(xs))
    body = ir.infer_expr(forward.lower(attrs, params), trust=True)
    expanded = ExpandForGradient(training=False).run(ir.Function(params, body), ir.PassContext())
    function = as_function(ir.infer_expr(expanded))
    body = pure_graph(function.body)
    check_gradients_exist([function.replace(body=body)], frozenset())
    wanted = [p for p in function.params if is_differentiable(type_of(p))]
    seed = ir.Var("dy", type_of(body), checked_type=type_of(body))
    found = dict(zip(wanted, gradients_of(body, wanted, seed), strict=True))
    whole = ir.Tuple(tuple(found[p] if p in found else typed_zeros(p) for p in function.params))
    dy = dys[0] if isinstance(type_of(body), ir.TensorType) else ir.Tuple(tuple(dys))
    values: dict[ir.Expr, ir.Expr] = dict(zip(function.params, xs, strict=True))
    made = fresh_copy(ir.infer_expr(whole, trust=True), {**values, seed: dy})
    assert isinstance(made, ir.Tuple)
    return made.fields[0] if len(made.fields) == 1 else made


FAMILIES[PREFIX] = lambda rest: _backward_of(operator(rest))
DERIVED["FGradient"] = lambda found: by_weft if not found.name.startswith(PREFIX) else None
