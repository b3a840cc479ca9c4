"""Converter of Gradient (ai.onnx.preview.training), differentiated at import."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft.frontend.onnx.node import Node, Value
from weft.frontend.onnx.registry import converts
from weft.ir import Expr, Function, IRModule, Var, infer_type
from weft.ir.visitor import children, post_order, replace_children
from weft.support.errors import UnsupportedModelError
from weft.transform.autodiff.reverse.gradient import gradient
from weft.transform.autodiff.reverse.pure_graph import pure_graph


@converts("ai.onnx.preview.training::Gradient", attributes=("xs", "zs", "y"), outputs=1 << 20)
def gradient_of_graph(node: Node) -> Sequence[Value]:
    """Return the derivatives of ``y`` with respect to ``xs``, evaluated at the inputs.

    ``xs``, ``zs`` and ``y`` name values of the graph; ``y`` may depend on ``xs`` and ``zs`` only.
    """
    names = [*(node.attrs.texts("xs") or ()), *(node.attrs.texts("zs") or ())]
    inputs = node.all_inputs()
    if len(names) != len(inputs) or not node.attrs.texts("xs"):
        raise node.fail("the number of inputs does not match xs and zs", expected=str(len(names)),
                        got=str(len(inputs)))  # fmt: skip
    positions = [_named(node, name) for name in names]
    variables = [Var(f"x{i}", p.checked_type, checked_type=p.checked_type)
                 for i, p in enumerate(positions)]  # fmt: skip
    body = _replaced(_named(node, node.attrs.text("y", "")),
                     dict(zip(positions, variables, strict=True)))  # fmt: skip
    free = {v.name for v in post_order(body) if isinstance(v, Var)} - {v.name for v in variables}
    if free:
        raise UnsupportedModelError(
            "Gradient of a value that depends on more than xs and zs", where=node.span,
            got=", ".join(sorted(free)), help="name the others as zs",
        )  # fmt: skip
    derived = gradient(Function(tuple(variables), body, span=node.span))
    pure = Function(derived.params, pure_graph(derived.body), span=node.span)
    function = infer_type(IRModule.from_expr(pure))["main"]
    both = _replaced(function.body, dict(zip(function.params, inputs, strict=True)))
    gradients = node.field(both, 1)
    return [node.field(gradients, i) for i in range(len(node.attrs.texts("xs") or ()))]


def _named(node: Node, name: str) -> Expr:
    value = node.known.get(name)
    if not isinstance(value, Expr):
        raise node.fail("undefined value", got=repr(name))
    return value


def _replaced(root: Expr, values: Mapping[Expr, Expr]) -> Expr:
    """Replace expressions in ``root``; types are kept."""
    memo = dict(values)
    for node in post_order(root):
        if node in memo:
            continue
        memo[node] = replace_children(node, [memo[c] for c in children(node)])
    return memo[root]
