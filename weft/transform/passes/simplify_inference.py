"""Replace operators of training by their inference behaviour."""

from __future__ import annotations

from typing import ClassVar

from weft import op
from weft.ir.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, const
from weft.ir.passes import FunctionPass, PassContext, register_pass
from weft.ir.types import TensorType
from weft.op.gradients import align_to_axis
from weft.support.dataclass import dataclass
from weft.transform.analysis.graph import op_name, rewrite_function, tensor_type_of
from weft.transform.passes.fold_constant import evaluate_constant


@register_pass
@dataclass(frozen=True)
class SimplifyInference(FunctionPass):
    """Turn batch norm into a scale and a shift; replace dropout and ``stop_gradient`` by ``x``.

    With constant statistics, as in a trained model, scale and shift are constants too.

    def @main(%x: Tensor[(1, 2, 4, 4), float32], %s: Tensor[(2,), float32]) {
      %0 = nn.dropout(%x, rate=0.5);
      annotation.stop_gradient(nn.relu(%0.0))
    }
    =>
    def @main(%x: Tensor[(1, 2, 4, 4), float32], %s: Tensor[(2,), float32]) { nn.relu(%x) }
    """

    name: ClassVar[str] = "simplify_inference"
    opt_level: ClassVar[int] = 0

    def run(self, fn: Function, ctx: PassContext) -> Function:  # noqa: ARG002
        return rewrite_function(fn, _simplify)


def _simplify(original: Expr, node: Expr) -> Expr:
    if isinstance(node, TupleGetItem):
        return field_of_tuple(node)
    if not isinstance(node, Call) or not isinstance(original, Call):
        return node
    name = op_name(node)
    if name == "nn.batch_norm":
        return normalised(node, tensor_type_of(original.args[0]).ndim)
    if name == "nn.dropout":
        return with_everything_kept(node, tensor_type_of(original.args[0]))
    return node.args[0] if name == "annotation.stop_gradient" else node


def field_of_tuple(node: TupleGetItem) -> Expr:
    """The field itself, if the tuple is constructed in place."""
    whole = node.tuple_value
    return whole.fields[node.index] if isinstance(whole, Tuple) else node


def with_everything_kept(call: Call, type_: TensorType) -> Expr:
    """Dropout in inference: its argument, which has type ``type_``, and a mask of ones."""
    mask = op.ones(shape=type_.shape, dtype=type_.dtype, span=call.span)
    return Tuple((call.args[0], mask), span=call.span)


def normalised(call: Call, ndim: int) -> Expr:
    """Batch norm in inference: ``(x - mean) / sqrt(var + epsilon) * gamma + beta``.

    It is computed as ``x * scale + shift``; the two statistics are returned unchanged.
    """
    data, gamma, beta, mean, variance = call.args
    attrs = call.attrs
    dtype = tensor_type_of(mean).dtype
    epsilon = const(attrs.epsilon, dtype)  # type: ignore[attr-defined]
    scale = _call("rsqrt", _call("add", variance, epsilon))
    if attrs.scale:  # type: ignore[attr-defined]
        scale = _call("multiply", gamma, scale)
    shift = _call("negative", _call("multiply", mean, scale))
    if attrs.center:  # type: ignore[attr-defined]
        shift = _call("add", beta, shift)
    axis = attrs.axis % ndim  # type: ignore[attr-defined]
    scale, shift = (_aligned(v, axis, ndim) for v in (scale, shift))
    scaled = op.multiply(data, scale, span=call.span)
    result = op.add(scaled, shift, span=call.span)
    return Tuple((result, mean, variance), span=call.span)


def _aligned(vector: Expr, axis: int, ndim: int) -> Expr:
    aligned = align_to_axis(vector, axis, ndim)
    return _fold(aligned) if isinstance(aligned, Call) and aligned is not vector else vector


def _call(name: str, *args: Expr) -> Expr:
    return _fold(getattr(op, name)(*args, span=args[0].span))


def _fold(call: Call) -> Expr:
    if all(isinstance(a, Constant) for a in call.args):
        return evaluate_constant(call)
    return call
