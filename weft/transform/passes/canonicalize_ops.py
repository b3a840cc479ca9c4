"""Canonicalization: one spelling for each computation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from weft import op
from weft.ir.expr import Call, Constant, Expr, Function
from weft.ir.op import Op
from weft.ir.passes import FunctionPass, PassContext, register_pass
from weft.ir.shape import dim_product
from weft.ir.typing.infer import infer_expr
from weft.support.dataclass import dataclass
from weft.topi.layout import Layout
from weft.topi.nn.conv import full_padding
from weft.topi.nn.pool import PoolWindow
from weft.transform.analysis.graph import (
    is_known_tensor,
    known_type,
    op_name,
    rewrite_function,
    shape_of,
)

_MATRIX = 2


@register_pass
@dataclass(frozen=True)
class CanonicalizeOps(FunctionPass):
    """Rewrite operators and attributes to a canonical spelling for later passes and strategies.

    ``nn.bias_add`` becomes ``add``, ``nn.batch_flatten`` becomes ``reshape``, a matrix
    multiplication with a constant becomes ``nn.dense``; pooling and convolutions get explicit
    padding on every side, and convolutions their channels and kernel size. Operators with a
    ``decomposition`` hook (transposed convolutions, ..) are replaced by it.

    def @main(%x: Tensor[(1, 2, 4), float32], %b: Tensor[(2,), float32]) {
      nn.batch_flatten(nn.bias_add(%x, %b, axis=1))
    }
    =>
    def @main(%x: Tensor[(1, 2, 4), float32], %b: Tensor[(2,), float32]) {
      reshape(add(%x, expand_dims(%b, axis=1, num_newaxis=1)), newshape=(1, 8))
    }
    """

    name: ClassVar[str] = "canonicalize_ops"
    opt_level: ClassVar[int] = 0

    def run(self, fn: Function, ctx: PassContext) -> Function:  # noqa: ARG002
        return rewrite_function(fn, _canonicalize)


def _canonicalize(original: Expr, node: Expr) -> Expr:
    rule = _RULES.get(op_name(node))
    if not isinstance(node, Call) or not isinstance(original, Call):
        return node
    return decomposed(node) if rule is None else rule(original, node)


def decomposed(call: Call, table: str = "decomposition") -> Expr:
    """The result of the operator's hook in ``table``, typed; ``call`` itself without one."""
    hook = call.op.hook(table) if isinstance(call.op, Op) else None
    simpler = hook(call) if hook is not None and all(map(known_type, call.args)) else None
    return call if simpler is None else infer_expr(simpler, trust=True)


def _batch_flatten(original: Call, call: Call) -> Expr:
    if not is_known_tensor(original.args[0]):
        return call
    batch, *rest = shape_of(original.args[0])
    size = dim_product(tuple(rest))
    if not isinstance(size, int):
        return call
    newshape: tuple[Any, ...] = (batch if isinstance(batch, int) else 0, size)
    # 0 copies a symbolic batch; then no other size may be zero, for 0 must keep that meaning.
    no_copy = isinstance(batch, int) and 0 in newshape
    if size == 0 and not no_copy:
        return call
    return op.reshape(call.args[0], newshape=newshape, allowzero=no_copy, span=call.span)


def _product(original: Call, call: Call) -> Expr:
    attrs: Any = call.attrs
    data, weight = call.args
    if any(is_known_tensor(x) and len(shape_of(x)) != _MATRIX for x in original.args):
        return decomposed(call)  # vectors and batches
    if attrs.transpose_a or not isinstance(weight, Constant) or not is_known_tensor(original):
        return call
    return op.nn.dense(
        data,
        weight if attrs.transpose_b else op.transpose(weight, span=weight.span),
        units=shape_of(original)[-1],
        out_dtype=attrs.out_dtype,
        span=call.span,
    )


def _dense(_: Call, call: Call) -> Expr:
    attrs: Any = call.attrs
    data, weight = call.args
    if attrs.weight_layout != "KN" or not isinstance(weight, Constant):
        return call
    rows = op.transpose(weight, span=weight.span)  # folded, because the weight is constant
    return call.replace(args=(data, rows), attrs=attrs.replace(weight_layout="NK"))


def _convolution(original: Call, call: Call) -> Expr:
    attrs: Any = call.attrs
    spatial = attrs.spatial
    changes: dict[str, Any] = {"padding": full_padding(attrs.padding, len(spatial))}
    kernel = Layout.parse(attrs.kernel_layout)
    if kernel.is_primal and is_known_tensor(original.args[1]):
        shape = shape_of(original.args[1])
        size = tuple(shape[kernel.index_of(letter)] for letter in spatial)
        channels = shape[kernel.index_of("O")]
        if all(isinstance(d, int) for d in (*size, channels)):
            changes.update(kernel_size=size, channels=channels)
    return _with_attrs(call, changes)


def _pool(_: Call, call: Call) -> Expr:
    window: PoolWindow = call.attrs.window  # type: ignore[attr-defined]
    return _with_attrs(call, {"padding": full_padding(window.padding, len(window.size))})


def _with_attrs(call: Call, changes: dict[str, Any]) -> Call:
    if all(getattr(call.attrs, name) == value for name, value in changes.items()):
        return call
    return call.replace(attrs=call.attrs.replace(**changes), checked_type=call.checked_type)


_RULES: dict[str, Callable[[Call, Call], Expr]] = {
    "nn.batch_flatten": _batch_flatten,
    "nn.matmul": _product,
    "nn.dense": _dense,
    **{f"nn.conv{axes}d": _convolution for axes in (1, 2, 3)},
    **{f"nn.{kind}_pool{axes}d": _pool for kind in ("max", "avg") for axes in (1, 2, 3)},
}
