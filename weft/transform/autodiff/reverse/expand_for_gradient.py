"""Expand operators without a gradient into operators that have one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from weft import ir, op
from weft.support.dataclass import dataclass
from weft.transform.analysis.graph import as_function, rewrite_function
from weft.transform.passes.canonicalize_ops import decomposed
from weft.transform.passes.simplify_inference import field_of_tuple


@ir.register_pass
@dataclass(frozen=True)
class ExpandForGradient(ir.FunctionPass):
    """Expand operators by their ``expansion`` or ``decomposition`` hook, for differentiation.

    Batch normalisation uses the given statistics, as in inference. With ``training`` it uses the
    mean and the (biased) variance of the batch, and returns them as its second and third result.
    Without ``hooks`` only batch normalisation and dropout are rewritten.

    def @main(%x: Tensor[(1, 2, 4, 4), float32]) { nn.global_avg_pool2d(%x) }
    =>
    def @main(%x: Tensor[(1, 2, 4, 4), float32]) { mean(%x, axis=(2, 3), keepdims=True) }
    """

    name: ClassVar[str] = "expand_for_gradient"
    opt_level: ClassVar[int] = 0
    training: bool = False
    hooks: bool = True

    def run(self, fn: ir.Function, ctx: ir.PassContext) -> ir.Function:  # noqa: ARG002
        # Typed again between the two steps, because the hooks look at types.
        simple = ir.infer_expr(rewrite_function(fn, self._without_training), trust=True)
        return rewrite_function(as_function(simple), _expand) if self.hooks else as_function(simple)

    def _without_training(self, _: ir.Expr, node: ir.Expr) -> ir.Expr:
        """Batch norm as arithmetic; dropout as its argument (the gradient pass has checked it)."""
        if isinstance(node, ir.TupleGetItem):
            return field_of_tuple(node)
        if not isinstance(node, ir.Call) or not isinstance(node.op, ir.Op) \
                or node.op.traits.is_annotation:
            return node
        if self.training and node.op is op.nn.batch_norm:
            return _by_batch(node)
        form: Callable[[ir.Call], ir.Expr] | None = node.op.hook("inference_form")
        return node if form is None else form(node)


def _by_batch(call: ir.Call) -> ir.Expr:
    """Batch norm by the statistics of the batch, which are the second and third result."""
    attrs: Any = call.attrs
    trained = op.nn.batch_norm_training(*call.args, **dict(attrs.items()), span=call.span)
    return ir.Tuple(tuple(ir.TupleGetItem(trained, i) for i in range(3)), span=call.span)


def _expand(original: ir.Expr, node: ir.Expr) -> ir.Expr:
    is_call = isinstance(node, ir.Call) and isinstance(original, ir.Call)
    return _by_hooks(node) if is_call else node


def _by_hooks(call: ir.Call) -> ir.Expr:
    """Apply the ``expansion`` of the operator, else its ``decomposition``, until none applies.

    A gradient rule is better than that of a decomposition.
    """
    expanded = decomposed(call, "expansion")
    if expanded is call and isinstance(call.op, ir.Op) and call.op.gradient_rule is None:
        expanded = decomposed(call)
    while isinstance(expanded, ir.Call) and expanded is not call:
        call, expanded = expanded, decomposed(expanded, "expansion")
    return expanded
