"""Replace dynamic operators by static ones where shapes turn out to be constant."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from weft import ir
from weft.ir.dynamic import static_form_of
from weft.ir.substitution import has_symbols
from weft.support.dataclass import dataclass
from weft.support.errors import AttrsError, TypeInferenceError
from weft.transform.analysis.graph import as_function, enters, is_constant, known_type, op_name
from weft.transform.analysis.shape_values import ShapeValues, is_determined, is_fixed
from weft.transform.passes.fold_constant import FoldConstant, bytes_of, evaluate_constant


@ir.register_pass
@dataclass(frozen=True)
class DynamicToStatic(ir.FunctionPass):
    """Replace known shapes by constants, and infer types again from there.

    ``shape_of`` of a tensor with a static shape is a constant. Arithmetic on constant shapes is
    evaluated, which may make further shapes known. An operator with constant shape operands
    becomes the static operator with these as attributes. A declared result type with unknown
    sizes is replaced by the inferred one.

    The same holds for symbolic sizes: an operator whose shape operands are sums of products of
    symbols becomes the static operator with these dimensions as attributes.

    def @main(%x: Tensor[(2, 3), float32]) { add(shape_of(%x), const([1, 1], (2,), int64)) }
    =>
    def @main(%x: Tensor[(2, 3), float32]) { const([3, 4], (2,), int64) }
    """

    name: ClassVar[str] = "dynamic_to_static"
    opt_level: ClassVar[int] = 2
    seeks: ClassVar[ir.Seeks] = ir.Seeks(
        hooks=("static_form",), operator=lambda op: op.traits.reads_shape_only, unknown_sizes=True)

    def run(self, fn: ir.Function, ctx: ir.PassContext) -> ir.Function:  # noqa: ARG002
        memo: dict[ir.Expr, ir.Expr] = {}
        shapes: set[ir.Expr] = set()
        values = ShapeValues()
        for node in ir.post_order(fn, enter=enters):
            memo[node] = _visit(node, memo, shapes, values)
        after = as_function(memo[fn])
        if after.ret_type is not None and _is_open(after.ret_type):
            return after.replace(ret_type=None)
        return after


def _visit(
    node: ir.Expr, memo: dict[ir.Expr, ir.Expr], shapes: set[ir.Expr], values: ShapeValues
) -> ir.Expr:
    """The rewritten node; ``shapes`` collects constants computed from shapes."""
    if enters(node):
        rebuilt = ir.rebuild(node, [memo[c] for c in ir.children(node)])
        is_new_call = rebuilt is not node and isinstance(rebuilt, ir.Call)
        node = ir.infer_expr(rebuilt, trust=True) if is_new_call else rebuilt
    node = _static(node, values)
    folded = _folded(node, shapes) or _fixed_part(node, values)
    if folded is None:
        return node
    shapes.add(folded)
    return folded


def _fixed_part(node: ir.Expr, values: ShapeValues) -> ir.Expr | None:
    """The constant for a value computed from symbolic shapes in which no symbol is left."""
    value, type_ = values.visit(node), known_type(node)
    is_new = isinstance(node, (ir.Call, ir.TupleGetItem)) and value is not None and is_fixed(value)
    if not is_new or value is None or not isinstance(type_, ir.TensorType):
        return None
    if isinstance(node, ir.Call) and op_name(node) != "shape_of" and all(map(is_constant,
                                                                             node.args)):
        return None
    return ir.Constant(value.astype(type_.dtype.numpy), span=node.span)


def _static(node: ir.Expr, values: ShapeValues) -> ir.Expr:
    """The static operator's call, for a dynamic one whose shape operands are known."""
    form = static_form_of(node.op) if isinstance(node, ir.Call) and isinstance(node.op,
                                                                               ir.Op) else None
    if form is None or not isinstance(node, ir.Call):
        return node
    operands = [node.args[at] for at in form.operands]
    if all(isinstance(arg, ir.Constant) for arg in operands):
        constants = [arg.data for arg in operands if isinstance(arg, ir.Constant)]
        return ir.infer_expr(form.make(node, constants), trust=True)
    known = [value for value in map(values.of, operands)
             if value is not None and is_determined(value)]
    if len(known) < len(operands):
        return node
    try:
        return ir.infer_expr(form.make(node, known), trust=True)
    except (AttrsError, TypeInferenceError):
        return node  # the static operator does not take these symbols


def _folded(node: ir.Expr, shapes: set[ir.Expr]) -> ir.Expr | None:
    if not isinstance(node, ir.Call):
        return None
    if op_name(node) == "shape_of":
        return _shape_constant(node)
    # Other constants are left to ``fold_constant``, which limits the size of results.
    from_shapes = any(part in shapes for arg in node.args
                      for part in (arg.fields if isinstance(arg, ir.Tuple) else (arg,)))
    if from_shapes and op_name(node) and all(map(is_constant, node.args)) \
            and not has_symbols(node.attrs) and _is_small(known_type(node)):
        return evaluate_constant(node)
    return None


def _is_small(type_: ir.Type | None) -> bool:
    return type_ is not None and ir.is_static(type_) and bytes_of(type_) <= FoldConstant.max_bytes


def _shape_constant(call: ir.Call) -> ir.Constant | None:
    source, result = known_type(call.args[0]), known_type(call)
    if not isinstance(source, ir.TensorType) or not ir.is_static(source):
        return None
    if not isinstance(result, ir.TensorType):
        return None
    return ir.Constant(np.asarray(source.concrete_shape, result.dtype.numpy), span=call.span)


def _is_open(type_: ir.Type) -> bool:
    pending = [type_]
    while pending:
        current = pending.pop()
        if isinstance(current, ir.TensorType) and ir.has_any(current.shape):
            return True
        pending.extend(ir.component_types(current))
    return False
